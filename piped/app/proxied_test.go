package app

import (
	"net/http"
	"testing"

	"github.com/c785c783/piped/piped/app/agenttest"
)

// proxied starts a proxy for the API server of a cluster, which is closed when the test ends, and
// returns it with a kubeconfig for it. seen and answered are those of agenttest.ServeAPIAnswers.
func proxied(t *testing.T, kubeconfig string, seen func(*http.Request), answered func(*http.Response)) (proxy *agenttest.APIProxy, through string) {
	t.Helper()
	proxy, err := agenttest.ServeAPIAnswers(kubeconfig, seen, answered)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	if through, err = proxy.Kubeconfig(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return proxy, through
}
