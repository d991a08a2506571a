package browsertest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/web/page"
	"github.com/c785c783/piped/piped/web/page/browsertest"
)

// TestSlowNetwork: the stream of changes begins also if the last script arrives long after the
// others.
func TestSlowNetwork(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Policy = access.NewPolicy(nil) })
	token := agent.SignInWithKey(agent.LimitedKey("admin", nil))
	handler := page.New(page.Config{Conn: agent.Server.Conn(), Now: agent.Now, Token: func(*http.Request) string { return token }})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/assets/sse-") {
			time.Sleep(time.Second)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	browser, err := browsertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = browser.Close() })
	tab := browser.Tab(t, server.URL)
	tab.Permit("sse")
	tab.Permit("ERR_")
	tab.Open("/applications")
	tab.Await("the stream of changes", `document.documentElement.hasAttribute("data-live")`)
}
