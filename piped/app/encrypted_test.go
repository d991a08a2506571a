package app

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/source/secret"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestSecretsAreDecrypted deploys an encrypted secret with an agent that has no
// key, then another one's, then its own: the key's file is followed, and nothing
// the agent says or logs shows the secret.
func TestSecretsAreDecrypted(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter2"
	cluster := clustertest.Shared(t)
	ns, api := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	file := filepath.Join(t.TempDir(), "identity")
	management := func(id *age.X25519Identity) string {
		return fmt.Sprintf("  secretManagement: {type: AGE, config: {identityFile: %q, recipient: %s}}\n", file, id.Recipient())
	}
	own, other := ageIdentity(t), ageIdentity(t)
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	agent := runReloading(t, s, 10*time.Millisecond)
	web := appID("web")

	commit := repo.Push(t, "a secret", encryptedApp(t, ns, own, password))
	d := agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "web/app.pipecd.yaml:6: spec.encryption: the agent has no keys to decrypt secrets with; add secretManagement")

	replaceFile(t, file, other.String())
	s.more = management(other)
	agent.write(s, inEffect, "changed=secretManagement")
	commit = repo.Push(t, "again", map[string]string{"web/a": "1"})
	d = agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, d.GetStatusReason(), "spec.encryption.encryptedSecrets.password: cannot be decrypted with the agent's identity")

	replaceFile(t, file, own.String())
	agent.awaitLog("is rejected, the former one stays", "it does not belong to the identity")
	s.more = management(own)
	agent.write(s, inEffect, "changed=secretManagement")
	commit = repo.Push(t, "and again", map[string]string{"web/a": "2"})
	d = agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	live, err := api.CoreV1().Secrets(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(live.Data["password"]); got != password {
		t.Errorf("the live Secret holds %q", got)
	}
	if said := agent.log.String() + agent.logs(d.GetId()) + d.String(); strings.Contains(said, password) {
		t.Errorf("the secret is shown:\n%s", said)
	}
}

// TestRefusedSecretsAreNotShown: what the API server, or the parser, quotes of a
// manifest that cannot be applied holds the decrypted value.
func TestRefusedSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const password = "Hunter2 is no name"
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	own := ageIdentity(t)
	s := spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()},
		more: fmt.Sprintf("  secretManagement: {type: AGE, config: {identityData: %s, recipient: %s}}\n", base64.StdEncoding.EncodeToString([]byte(own.String())), own.Recipient()),
	}
	agent := runReloading(t, s, time.Hour)
	for name, manifest := range map[string]string{
		"an API server that quotes a value": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {\"{{ .encryptedSecrets.password }}\": x}\n",
		"a parser that quotes a value":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {x: *{{ .encryptedSecrets.password | replace \" \" \"\" }}}\n# {{ .encryptedSecrets.password }}\n",
	} {
		files := encryptedApp(t, ns, own, password)
		files["web/web.yaml"] = manifest
		if strings.HasPrefix(name, "a parser") {
			files = encryptedApp(t, ns, own, strings.ReplaceAll(password, " ", ""))
			files["web/web.yaml"] = manifest
		}
		d := agent.mustEnd(appID("web"), repo.Push(t, name, files), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
		mustContain(t, d.GetStatusReason(), "[redacted]")
		said := agent.log.String() + agent.logs(d.GetId()) + d.String() + agent.application(appID("web")).String()
		if strings.Contains(strings.ReplaceAll(said, " ", ""), "Hunter2isnoname") {
			t.Errorf("%s: the secret is shown:\n%s", name, said)
		}
	}
}

func ageIdentity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// encryptedApp returns the files of an application in the directory "web" that
// consists of one Secret with a password.
func encryptedApp(t *testing.T, namespace string, id *age.X25519Identity, password string) map[string]string {
	t.Helper()
	keys, err := secret.Age(strict.NewSecret(id.String()), id.Recipient().String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := keys.Encrypt([]byte(password))
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"web/app.pipecd.yaml": fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: web
  input: {namespace: %s}
  encryption:
    decryptionTargets: [web.yaml]
    encryptedSecrets:
      password: |
        %s
`, namespace, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n        ")),
		"web/web.yaml": `apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {password: "{{ .encryptedSecrets.password }}"}
`,
	}
}
