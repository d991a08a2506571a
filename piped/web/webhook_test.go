package web

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/githost"
)

const (
	secret  = "correct horse battery staple"
	another = "what another webhook is signed with"
)

// pushOf returns a push as sent by GitHub.
func pushOf(repo, branch string) string {
	return fmt.Sprintf(`{"ref": "refs/heads/%s", "repository": {"clone_url": "https://github.com/%s.git"}}`, branch, repo)
}

func signed(secret, body string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(h.Sum(nil))
}

// env is a running server with two webhooks and four tracked branches; it records polls and
// previews.
type env struct {
	t      *testing.T
	server *Server
	mu     sync.Mutex
	polled []string
	out    bytes.Buffer
}

func newEnv(t *testing.T, change func(*limits)) *env {
	t.Helper()
	b, l := &env{t: t}, defaultLimits()
	change(&l)
	var err error
	b.server, err = newServer(Config{
		Address: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(b, nil)),
		Poll: func(repoID string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.polled = append(b.polled, repoID)
		},
		Preview: func(_ context.Context, repoID string, p githost.Proposal) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if p.Number == 13 {
				return errors.New("the store is away")
			}
			b.polled = append(b.polled, fmt.Sprintf("%s#%d %s %s", repoID, p.Number, p.Head, p.Commit[:7]))
			return nil
		},
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	b.server.hooks.bursts.pause = time.Hour // what a test sends is one burst, also on a busy machine
	b.server.SetWebhooks(Webhooks{
		Receivers: map[string]*githost.Receiver{"github": receiver(t, secret), "other": receiver(t, another)},
		Repositories: []Repository{
			{ID: "config", Remote: "git@github.com:shop/config.git", Branch: "main"},
			{ID: "config-again", Remote: "https://robot:t0ken@github.com/shop/config", Branch: "main"},
			{ID: "config-next", Remote: "https://github.com/shop/config", Branch: "next"},
			{ID: "infra", Remote: "https://github.com/shop/infra", Branch: "main"},
		},
	})
	run(t, b.server)
	return b
}

// Write collects the server's log.
func (b *env) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *env) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// takePolled returns the polls and previews since the last call.
func (b *env) takePolled() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	polled := b.polled
	b.polled = nil
	return polled
}

func receiver(t *testing.T, secret string) *githost.Receiver {
	t.Helper()
	r, err := githost.New(config.WebhookGitHub, strict.NewSecret(secret))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// header returns the headers of a signed push.
func header(secret, body string) http.Header {
	return http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"push"}, "X-Hub-Signature-256": {signed(secret, body)}}
}

func (b *env) send(method, path string, h http.Header, body io.Reader) (code int, answer string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+b.server.Addr()+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header = h
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 20 * time.Second}}
	resp, err := client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestPullRequests: a pull request is previewed for each repository with its base branch;
// if that cannot be requested, the sender is asked to retry.
func TestPullRequests(t *testing.T) {
	b := newEnv(t, func(*limits) {})
	for name, c := range map[string]struct {
		number     int
		base, from string
		code       int
		answer     string
		previewed  []string
	}{
		"for a watched branch":     {7, "main", "shop/config", http.StatusAccepted, "accepted: the pull request is previewed\n", []string{"config#7 more a6ae82c", "config-again#7 more a6ae82c"}},
		"for another branch":       {7, "old", "shop/config", http.StatusAccepted, "nothing to do: the agent does not watch the base branch of the pull request\n", nil},
		"from a fork":              {7, "main", "ann/config", http.StatusAccepted, "nothing to do: this is no push to a branch\n", nil},
		"that cannot be asked for": {13, "main", "shop/config", http.StatusServiceUnavailable, "the preview cannot be requested now: retry later\n", nil},
	} {
		body := fmt.Sprintf(`{"action": "opened", "number": %d, "pull_request": {"head": {"ref": "more", "sha": "a6ae82c7b1a177c8d03f9e96e0adf2466113728f", "repo": {"full_name": %q}}, "base": {"ref": %q}},
			"repository": {"full_name": "shop/config", "clone_url": "https://github.com/shop/config.git"}}`, c.number, c.from, c.base)
		h := header(secret, body)
		h.Set("X-GitHub-Event", "pull_request")
		code, answer := b.send(http.MethodPost, "/webhooks/github", h, strings.NewReader(body))
		if got := b.takePolled(); code != c.code || answer != c.answer || !slices.Equal(got, c.previewed) {
			t.Errorf("%s: %d %q, previewed %q", name, code, answer, got)
		}
	}
	if !strings.Contains(b.log(), "the store is away") {
		t.Error("the log does not say why")
	}
}

func TestWebhook(t *testing.T) {
	const wrong = "the signature or token is missing or wrong: set the same secret at both ends\n"
	b := newEnv(t, func(*limits) {})
	body := pushOf("shop/config", "main")
	with := func(name, value string) http.Header {
		h := header(secret, body)
		h.Set(name, value)
		return h
	}
	tests := map[string]struct {
		method, path string
		header       http.Header
		body         string
		code         int
		answer       string
		polled       []string
	}{
		"push polls all its clones": {"POST", "/webhooks/github", header(secret, body), body, 202, "accepted: the repository is fetched\n", []string{"config", "config-again"}},
		"push to another branch": {"POST", "/webhooks/github", header(secret, pushOf("shop/config", "next")), pushOf("shop/config", "next"),
			202, "accepted: the repository is fetched\n", []string{"config-next"}},
		"unwatched branch": {"POST", "/webhooks/github", header(secret, pushOf("shop/config", "old")), pushOf("shop/config", "old"),
			202, "nothing to do: the agent does not watch this repository and branch\n", nil},
		"unwatched repository": {"POST", "/webhooks/github", header(secret, pushOf("shop/other", "main")), pushOf("shop/other", "main"),
			202, "nothing to do: the agent does not watch this repository and branch\n", nil},
		"ping":                       {"POST", "/webhooks/github", with("X-Github-Event", "ping"), body, 200, "the webhook works\n", nil},
		"another event":              {"POST", "/webhooks/github", with("X-Github-Event", "issues"), body, 202, "nothing to do: this is no push to a branch\n", nil},
		"wrong signature":            {"POST", "/webhooks/github", with("X-Hub-Signature-256", signed("guess", body)), body, 401, wrong, nil},
		"another's secret":           {"POST", "/webhooks/github", header(another, body), body, 401, wrong, nil},
		"secret of another":          {"POST", "/webhooks/other", header(secret, body), body, 401, wrong, nil},
		"no signature":               {"POST", "/webhooks/github", with("X-Hub-Signature-256", ""), body, 401, wrong, nil},
		"ping, unsigned":             {"POST", "/webhooks/github", http.Header{"X-Github-Event": {"ping"}}, body, 401, wrong, nil},
		"not understood":             {"POST", "/webhooks/github", header(secret, "main"), "main", 400, "the payload of event \"push\" is not the JSON that GitHub sends\n", nil},
		"unknown name":               {"POST", "/webhooks/gitlab", header(secret, body), body, 404, "404 page not found\n", nil},
		"no name":                    {"POST", "/webhooks/", header(secret, body), body, 404, "404 page not found\n", nil},
		"below a name":               {"POST", "/webhooks/github/x", header(secret, body), body, 404, "404 page not found\n", nil},
		"other method":               {"GET", "/webhooks/github", http.Header{}, "", 405, "Method Not Allowed\n", nil},
		"other method, unknown name": {"PUT", "/webhooks/gitlab", http.Header{}, "", 405, "Method Not Allowed\n", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, answer := b.send(tc.method, tc.path, tc.header, strings.NewReader(tc.body))
			if code != tc.code || answer != tc.answer {
				t.Errorf("answer %d %q, want %d %q", code, answer, tc.code, tc.answer)
			}
			if diff := cmp.Diff(tc.polled, b.takePolled()); diff != "" {
				t.Errorf("polled (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWebhooksAreReplacedWhileRunning(t *testing.T) {
	b := newEnv(t, func(*limits) {})
	body := pushOf("shop/config", "main")
	post := func(path string) int {
		code, _ := b.send("POST", path, header(secret, body), strings.NewReader(body))
		return code
	}
	if code := post("/webhooks/github"); code != 202 {
		t.Fatalf("before: code %d, want 202", code)
	}
	b.takePolled()
	b.server.SetWebhooks(Webhooks{
		Receivers:    map[string]*githost.Receiver{"renamed": receiver(t, secret)},
		Repositories: []Repository{{ID: "moved", Remote: "https://github.com/shop/config", Branch: "main"}},
	})
	if code := post("/webhooks/github"); code != 404 {
		t.Errorf("the old name: code %d, want 404", code)
	}
	if code := post("/webhooks/renamed"); code != 202 {
		t.Errorf("the new name: code %d, want 202", code)
	}
	if diff := cmp.Diff([]string{"moved"}, b.takePolled()); diff != "" {
		t.Errorf("polled (-want +got):\n%s", diff)
	}
}

func TestNoWebhooksUntilSet(t *testing.T) {
	url := start(t, nil)
	if code, _ := get(t, "POST", url+"/webhooks/github"); code != 404 {
		t.Errorf("code %d, want 404", code)
	}
}

// TestABurstIsOneLine: a burst of deliveries is logged in one line.
func TestABurstIsOneLine(t *testing.T) {
	b := newEnv(t, func(*limits) {})
	body := pushOf("shop/config", "main")
	for range 40 {
		if code, _ := b.send("POST", "/webhooks/github", header(secret, body), strings.NewReader(body)); code != 202 {
			t.Fatalf("code %d, want 202", code)
		}
	}
	if n := strings.Count(b.log(), "push announced"); n != 1 {
		t.Errorf("%d lines for 40 pushes, want one:\n%s", n, b.log())
	}
	if n := len(b.takePolled()); n != 80 {
		t.Errorf("%d polls, want one for each delivery and repository", n)
	}
}

func TestBursts(t *testing.T) {
	type event struct {
		key    string
		after  time.Duration // since the previous event
		begins bool
		before int
	}
	b, now := bursts{pause: 10 * time.Second}, time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for i, e := range []event{
		{"a", 0, true, 0}, {"a", 9 * time.Second, false, 0}, {"a", 9 * time.Second, false, 0}, {"b", 0, true, 0},
		{"a", 10 * time.Second, true, 2}, {"a", 10 * time.Second, true, 0},
	} {
		now = now.Add(e.after)
		if begins, before := b.begins(e.key, now); begins != e.begins || begins && before != e.before {
			t.Errorf("event %d: begins %v, %d before; want %v, %d", i, begins, before, e.begins, e.before)
		}
	}
}

func TestRefusalsAreLoggedSparingly(t *testing.T) {
	b := newEnv(t, func(*limits) {})
	body := pushOf("shop/config", "main")
	for range 40 {
		b.send("POST", "/webhooks/github", header("guess", body), strings.NewReader(body))
	}
	lines := strings.Count(b.log(), "webhook delivery refused")
	if lines != 1 {
		t.Errorf("%d lines for 40 refusals, want one", lines)
	}
	for _, want := range []string{"webhook=github", "from=127.0.0.1:", "signed with another secret"} {
		if !strings.Contains(b.log(), want) {
			t.Errorf("log lacks %q:\n%s", want, b.log())
		}
	}
}

func TestNothingSentIsLogged(t *testing.T) {
	b := newEnv(t, func(*limits) {})
	body := pushOf("shop/config", "main")
	odd := `{"ref": "a-payload-word", "repository": "a-payload-word"}`
	b.send("POST", "/webhooks/github", header(secret, body), strings.NewReader(body))
	b.send("POST", "/webhooks/github", header(secret, odd), strings.NewReader(odd))
	b.send("POST", "/webhooks/github", header("guess", odd), strings.NewReader(odd))
	log := b.log()
	for what, text := range map[string]string{
		"secret": secret, "signature": signed("guess", odd)[len("sha256="):], "payload": "a-payload-word", "remote": "github.com", "credentials of a remote": "t0ken",
	} {
		if strings.Contains(log, text) {
			t.Errorf("the log shows the %s:\n%s", what, log)
		}
	}
	if !strings.Contains(log, `msg="push announced"`) || !strings.Contains(log, "repo=config,config-again") {
		t.Errorf("the log lacks the announcement:\n%s", log)
	}
}
