package helm

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestPrivateHostsMustBeNamed: a private address is asked only when the configuration
// names the host, also when a name or a redirect leads there.
func TestPrivateHostsMustBeNamed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("chart")) }))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	byName := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	for name, c := range map[string]struct {
		hosts   hosts
		address string
		refused bool
	}{
		"no chart names it":      {namedHosts(nil, nil, nil), server.URL, true},
		"its name is no help":    {namedHosts(nil, nil, nil), byName, true},
		"allowed with its port":  {namedHosts(nil, nil, []string{at}), server.URL, false},
		"allowed by name":        {namedHosts(nil, nil, []string{"localhost"}), byName, false},
		"another port":           {namedHosts(nil, nil, []string{"127.0.0.1:1"}), server.URL, true},
		"a chart repository":     {namedHosts([]config.ChartRepository{{Address: server.URL + "/charts"}}, nil, nil), server.URL, false},
		"a registry":             {namedHosts(nil, []config.ChartRegistry{{Address: at}}, nil), server.URL, false},
		"another one is allowed": {namedHosts(nil, nil, []string{"example.com"}), server.URL, true},
	} {
		_, err := newClient(Limits{}.withDefaults(), nil, c.hosts).get(t.Context(), c.address, access{}, 100)
		if (err != nil) != c.refused || c.refused && (!deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "is a private address")) {
			t.Errorf("%s: %v, want refused %t", name, err, c.refused)
		}
	}
}
