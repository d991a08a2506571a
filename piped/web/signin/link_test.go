package signin_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// linkFor returns the path of a link for the holder of a key.
func (e *env) linkFor(key, next string) (path string, status int) {
	e.t.Helper()
	body, err := json.Marshal(map[string]string{"key": key, "next": next})
	if err != nil {
		e.t.Fatal(err)
	}
	resp := e.call("/sign-in/link/new", string(body))
	var got struct {
		Path      string    `json:"path"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(resp.text), &got); err != nil {
		e.t.Fatal(err)
	}
	if resp.StatusCode == http.StatusOK && (got.ExpiresAt.Sub(e.clock.Now()) <= 9*time.Minute || got.ExpiresAt.Sub(e.clock.Now()) > 10*time.Minute) {
		e.t.Errorf("the link expires at %s", got.ExpiresAt)
	}
	return got.Path, resp.StatusCode
}

func linkForm(t *testing.T, path string) url.Values {
	t.Helper()
	u, err := url.Parse(path)
	if err != nil || u.Path != "/sign-in/link/use" || u.Query().Get("ticket") == "" {
		t.Fatalf("the link is %q, %v", path, err)
	}
	return url.Values{"ticket": {u.Query().Get("ticket")}}
}

// TestLinksSignInOnce: a link signs the holder of the key in who made it, at the first use; to
// fetch it is no use.
func TestLinksSignInOnce(t *testing.T) {
	e := newEnv(t)
	path, _ := e.linkFor(ownerKey, "/private")
	for range 2 {
		if got := e.get(e.browser, path); got.StatusCode != http.StatusOK || !strings.Contains(got.text, "signs you in once") || len(got.Cookies()) > 0 {
			t.Fatalf("the link answers %s %q", got.Status, got.text)
		}
	}
	got := e.post(e.browser, "/sign-in/link/use", linkForm(t, path))
	if got.text != "hello owner" || got.Request.URL.Path != "/private" {
		t.Errorf("got %s %s %q", got.Request.URL, got.Status, got.text)
	}
	s, ok := e.sessions.Find(e.handler.Token(withCookies(e)))
	if !ok || s.KeyID != "owner" || s.Client != "page" {
		t.Errorf("the session is %+v", s)
	}
	if got := e.post(e.newBrowser(e.browser.Transport), "/sign-in/link/use", linkForm(t, path)); got.StatusCode != http.StatusForbidden {
		t.Errorf("the second use: %s", got.Status)
	}
	e.checkLog()
}

// TestLinksAtOnce: of simultaneous uses of a link one signs in.
func TestLinksAtOnce(t *testing.T) {
	e := newEnv(t)
	path, _ := e.linkFor(ownerKey, "")
	form := linkForm(t, path)
	var uses sync.WaitGroup
	for range 8 {
		uses.Go(func() { e.post(e.newBrowser(e.browser.Transport), "/sign-in/link/use", form) })
	}
	uses.Wait()
	if n := e.sessions.Count(); n != 1 {
		t.Errorf("%d sessions were opened", n)
	}
}

// TestLinksThatAreRefused: a link needs a key that is valid when it is made and when it is used,
// ends in time, and leads to this server only.
func TestLinksThatAreRefused(t *testing.T) {
	e := newEnv(t)
	if path, status := e.linkFor("owner.wrong", ""); status != http.StatusForbidden || path != "" {
		t.Errorf("a wrong key gets the link %q, %d", path, status)
	}
	late, _ := e.linkFor(ownerKey, "")
	e.clock.Advance(10*time.Minute + time.Second)
	if got := e.post(e.browser, "/sign-in/link/use", linkForm(t, late)); got.StatusCode != http.StatusForbidden {
		t.Errorf("after ten minutes: %s", got.Status)
	}
	away, _ := e.linkFor(ownerKey, "https://evil.example.com/")
	if got := e.post(e.staying(), "/sign-in/link/use", linkForm(t, away)); got.Header.Get("Location") != "/" {
		t.Errorf("a link leads to %q", got.Header.Get("Location"))
	}
	disabled, _ := e.linkFor(ownerKey, "")
	e.sessions.Disable("", "owner")
	if got := e.post(e.newBrowser(e.browser.Transport), "/sign-in/link/use", linkForm(t, disabled)); got.StatusCode != http.StatusForbidden {
		t.Errorf("with a disabled key: %s", got.Status)
	}
	if got := e.get(e.browser, "/sign-in/link/use?ticket=short"); got.StatusCode != http.StatusBadRequest {
		t.Errorf("an incomplete link: %s", got.Status)
	}
}
