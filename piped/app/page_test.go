package app

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPageOfAnAgent: the web address serves the page to a browser that has signed in with the
// owner key, and sends others to the sign-in page and back.
func TestPageOfAnAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(t.TempDir(), "piped.yaml")
	replaceFile(t, config, spec{dataDir: dir}.text(t.Name()))
	cfg, _, err := Kinds().LoadPiped(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	agent, err := New(ctx, cfg, Options{Logger: testLogger(t), LeaseEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	key, err := os.ReadFile(filepath.Join(dir, ownerKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, "http://"+agent.WebAddr())
	if at, _ := b.get("/applications?state=FAILED"); at != "/sign-in?next=%2Fapplications%3Fstate%3DFAILED" {
		t.Errorf("without a session, the browser is at %s", at)
	}
	at, body := b.post("/sign-in/key", url.Values{"key": {strings.TrimSpace(string(key))}, "next": {"/applications?state=FAILED"}})
	if at != "/applications?state=FAILED" || !strings.Contains(body, "piped") || !strings.Contains(body, "0 applications") {
		t.Errorf("after the sign-in, the browser is at %s: %s", at, body)
	}
	if at, body := b.get("/"); at != "/" || !strings.Contains(body, "There are no applications yet.") {
		t.Errorf("the start page is %s: %s", at, body)
	}
	if at, _ := b.post("/sign-out", nil); at != "/sign-in" {
		t.Errorf("after the sign-out, the browser is at %s", at)
	}
	if at, _ := b.get("/"); at != "/sign-in?next=%2F" {
		t.Errorf("after the sign-out, the start page is %s", at)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// browser keeps cookies and follows redirects, as a browser does.
type browser struct {
	t      *testing.T
	base   string
	client *http.Client
}

func newBrowser(t *testing.T, base string) browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return browser{t, base, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// get opens a path, and returns where the browser is then, and the page.
func (b browser) get(path string) (at, body string) {
	b.t.Helper()
	return b.do(http.MethodGet, path, nil)
}

func (b browser) post(path string, form url.Values) (at, body string) {
	b.t.Helper()
	return b.do(http.MethodPost, path, form)
}

func (b browser) do(method, path string, form url.Values) (at, body string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.Request.URL.RequestURI(), string(text)
}
