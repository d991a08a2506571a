package cluster

import (
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestPodsServiceAccountIsUsed: without a kubeconfig the agent acts as its pod's service
// account, with the current token in the file, not the token at the agent's start. The
// path of the file and its reload every minute are client-go's.
func TestPodsServiceAccountIsUsed(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	token, err := shared.Client(t).CoreV1().ServiceAccounts(shared.Namespace(t)).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	access := shared.RESTConfig(t)
	c, err := NewCluster(ClusterConfig{Name: "here", InCluster: func() (*rest.Config, error) {
		return &rest.Config{
			Host: access.Host, TLSClientConfig: rest.TLSClientConfig{CAFile: access.CAFile, CAData: access.CAData},
			BearerToken: "one that has expired", BearerTokenFile: file,
		}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Capabilities(t.Context()); err == nil {
		t.Error("a token that has expired is accepted")
	}
	if err := os.WriteFile(file, []byte(token.Status.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Capabilities(t.Context()); err != nil || !c.Contact().Answered {
		t.Errorf("with the token of the file: %v, %+v", err, c.Contact())
	}
}
