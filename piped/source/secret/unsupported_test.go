package secret

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestKeysThatCannotBeHad: with a way of encrypting that this version has not, the agent
// has keys that refuse every secret, and applications without any go on.
func TestKeysThatCannotBeHad(t *testing.T) {
	for _, kind := range []config.SecretManagementType{config.SecretManagementGCPKMS, config.SecretManagementAWSKMS} {
		keys, err := LoadKeys(config.SecretManagement{Type: kind}, config.SOPS{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := keys.decrypt(&config.Encryption{}); err != nil || len(got) > 0 {
			t.Errorf("%s: nothing to decrypt: %v, %v", kind, got, err)
		}
		_, err = keys.decrypt(&config.Encryption{EncryptedSecrets: map[string]string{"password": "AbC"}, Position: "web/app.pipecd.yaml:5"})
		want := "web/app.pipecd.yaml:5: spec.encryption.encryptedSecrets.password: secretManagement of the agent's configuration is of type " + string(kind)
		if !deploy.IsKind(err, deploy.Invalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if _, err := keys.Encrypt([]byte("x")); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s encrypts: %v", kind, err)
		}
	}
}
