package git

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRedirectedRemote: a repository on an allowed host leads neither to the agent's own
// network nor the credentials to another host.
func TestRedirectedRemote(t *testing.T) {
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the inner server was asked") }))
	defer inner.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL+r.URL.RequestURI(), http.StatusMovedPermanently)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for want, auth := range map[string]Auth{
		"is a private address":               {},
		"which the credentials are not for;": {Username: "u", Password: "swordfish"},
	} {
		r := openRemotes(t)
		r.Allow([]string{u.Host}, func(string) (Auth, error) { return auth, nil })
		if _, _, err := r.At(t.Context(), server.URL+"/org/repo", "main"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestRemoteFile: a file is read from an allowed host, within bounds, and neither a
// redirect nor an address of another host reaches the agent's own network.
func TestRemoteFile(t *testing.T) {
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("inner")) }))
	defer inner.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved.yaml":
			http.Redirect(w, r, "/file.yaml", http.StatusFound)
		case "/inner.yaml":
			http.Redirect(w, r, inner.URL+"/file.yaml", http.StatusFound)
		case "/round.yaml":
			http.Redirect(w, r, "/round.yaml", http.StatusFound)
		case "/broken.yaml":
			w.WriteHeader(http.StatusBadGateway)
		case "/file.yaml":
			_, _ = w.Write([]byte("kind: A\n"))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("credentials were sent")
		}
	}))
	defer server.Close()
	r := openRemotes(t)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r.Allow([]string{u.Host}, func(string) (Auth, error) { return Auth{}, errors.New("credentials were asked for") })
	for _, name := range []string{"/file.yaml", "/moved.yaml"} {
		if data, err := r.File(t.Context(), server.URL+name, 100); err != nil || string(data) != "kind: A\n" {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
	}
	for address, c := range map[string]struct {
		kind deploy.Kind
		want string
	}{
		server.URL + "/gone.yaml":                      {deploy.Invalid, "the server answers 404"},
		server.URL + "/broken.yaml":                    {deploy.Unavailable, "the server answers 502"},
		server.URL + "/inner.yaml":                     {deploy.Invalid, "is a private address"},
		server.URL + "/round.yaml":                     {deploy.Invalid, "redirects more than 5 times"},
		inner.URL + "/file.yaml":                       {deploy.Invalid, "is not allowed; add it to git.remoteHosts"},
		"https://elsewhere.example/file.yaml":          {deploy.Invalid, "the host elsewhere.example is not allowed"},
		"file:///etc/passwd":                           {deploy.Invalid, "expected the address of a file"},
		strings.Replace(server.URL, "//", "//u:p@", 1): {deploy.Invalid, "without a user"},
	} {
		if _, err := r.File(t.Context(), address, 100); err == nil || !strings.Contains(err.Error(), c.want) || deploy.KindOf(err) != c.kind {
			t.Errorf("%s: got %v (%v), want %s", address, err, deploy.KindOf(err), c.want)
		}
	}
	if _, err := r.File(t.Context(), server.URL+"/file.yaml", 3); err == nil || err.Error() != "it has more than 3 bytes" {
		t.Errorf("got %v", err)
	}
}
