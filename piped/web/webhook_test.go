package web

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
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

// pushOf is a payload as GitHub sends it.
func pushOf(repo, branch string) string {
	return fmt.Sprintf(`{"ref": "refs/heads/%s", "repository": {"clone_url": "https://github.com/%s.git"}}`, branch, repo)
}

func signed(secret, body string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(body))
	return "sha256=" + hex.EncodeToString(h.Sum(nil))
}

// lab is a running server with two webhooks and four watched branches, and what
// it was asked to look at.
type lab struct {
	t      *testing.T
	server *Server
	mu     sync.Mutex
	looked []string
	out    bytes.Buffer
}

func newLab(t *testing.T, change func(*limits)) *lab {
	t.Helper()
	b, l := &lab{t: t}, defaultLimits()
	change(&l)
	var err error
	b.server, err = newServer(Config{
		Address: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(b, nil)),
		Look: func(repoID string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.looked = append(b.looked, repoID)
		},
	}, l)
	if err != nil {
		t.Fatal(err)
	}
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

// Write takes what the server logs.
func (b *lab) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *lab) log() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.String()
}

// takeLooked returns what was looked at since the last call.
func (b *lab) takeLooked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	looked := b.looked
	b.looked = nil
	return looked
}

func receiver(t *testing.T, secret string) *githost.Receiver {
	t.Helper()
	r, err := githost.New(config.WebhookGitHub, strict.NewSecret(secret))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// header of a signed push.
func header(secret, body string) http.Header {
	return http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"push"}, "X-Hub-Signature-256": {signed(secret, body)}}
}

func (b *lab) send(method, path string, h http.Header, body io.Reader) (code int, answer string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+b.server.Addr()+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header = h
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
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

func TestWebhook(t *testing.T) {
	const wrong = "the signature or token is missing or wrong: set the same secret at both ends\n"
	b := newLab(t, func(*limits) {})
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
		looked       []string
	}{
		"push wakes all who watch it": {"POST", "/webhooks/github", header(secret, body), body, 202, "looking\n", []string{"config", "config-again"}},
		"push to another branch": {"POST", "/webhooks/github", header(secret, pushOf("shop/config", "next")), pushOf("shop/config", "next"),
			202, "looking\n", []string{"config-next"}},
		"unwatched branch": {"POST", "/webhooks/github", header(secret, pushOf("shop/config", "old")), pushOf("shop/config", "old"),
			202, "nothing to do: nothing here watches this repository and branch\n", nil},
		"unwatched repository": {"POST", "/webhooks/github", header(secret, pushOf("shop/other", "main")), pushOf("shop/other", "main"),
			202, "nothing to do: nothing here watches this repository and branch\n", nil},
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
			if diff := cmp.Diff(tc.looked, b.takeLooked()); diff != "" {
				t.Errorf("looked at (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWebhooksAreReplacedWhileRunning(t *testing.T) {
	b := newLab(t, func(*limits) {})
	body := pushOf("shop/config", "main")
	post := func(path string) int {
		code, _ := b.send("POST", path, header(secret, body), strings.NewReader(body))
		return code
	}
	if code := post("/webhooks/github"); code != 202 {
		t.Fatalf("before: code %d, want 202", code)
	}
	b.takeLooked()
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
	if diff := cmp.Diff([]string{"moved"}, b.takeLooked()); diff != "" {
		t.Errorf("looked at (-want +got):\n%s", diff)
	}
}

func TestNoWebhooksUntilSet(t *testing.T) {
	url := start(t, nil)
	if code, _ := get(t, "POST", url+"/webhooks/github"); code != 404 {
		t.Errorf("code %d, want 404", code)
	}
}

func TestDeliveryTooLarge(t *testing.T) {
	b := newLab(t, func(l *limits) { l.body = 1000 })
	fits := pushOf("shop/config", "main")
	fits += strings.Repeat(" ", 1000-len(fits))
	for name, tc := range map[string]struct {
		body string
		as   func(string) io.Reader
		code int
	}{
		"just fits":                 {fits, func(s string) io.Reader { return strings.NewReader(s) }, 202},
		"one byte more":             {fits + " ", func(s string) io.Reader { return strings.NewReader(s) }, 413},
		"one byte more, not told":   {fits + " ", func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }, 413},
		"unsigned is not even read": {strings.Repeat("x", 1<<20), func(s string) io.Reader { return strings.NewReader(s) }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			h := header(secret, tc.body)
			if tc.code == 401 {
				h.Del("X-Hub-Signature-256")
			}
			if code, answer := b.send("POST", "/webhooks/github", h, tc.as(tc.body)); code != tc.code {
				t.Errorf("answer %d %q, want %d", code, answer, tc.code)
			}
		})
	}
}

// slow is a delivery whose header is sent and whose body is awaited.
type slow struct {
	conn  net.Conn
	reply *bufio.Reader
}

// beginDelivery returns when the server has begun to read the body.
func (b *lab) beginDelivery(body string) slow {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.server.Addr())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		b.t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /webhooks/github HTTP/1.1\r\nHost: piped\r\nContent-Type: application/json\r\nX-Github-Event: push\r\n"+
		"X-Hub-Signature-256: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", signed(secret, body), len(body))
	s := slow{conn, bufio.NewReader(conn)}
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := s.reply.ReadString('\n'); err != nil || line != want {
			b.t.Fatalf("read %q, %v; want %q", line, err, want)
		}
	}
	return s
}

// response reads the answer.
func (s slow) response(t *testing.T) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(s.reply, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestTooManyDeliveries(t *testing.T) {
	b := newLab(t, func(l *limits) { l.deliveries = 3 })
	body := pushOf("shop/config", "main")
	var open []slow
	for range 3 {
		open = append(open, b.beginDelivery(body))
	}
	post := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+b.server.Addr()+"/webhooks/github", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header(secret, body)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := post(); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("one more: code %d, Retry-After %q; want 503, 5", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if code, _ := b.send("GET", "/healthz", http.Header{}, nil); code != 200 {
		t.Errorf("health while deliveries are read: code %d, want 200", code)
	}
	for _, s := range open {
		if _, err := io.WriteString(s.conn, body); err != nil {
			t.Fatal(err)
		}
		if resp := s.response(t); resp.StatusCode != 202 {
			t.Errorf("held delivery: code %d, want 202", resp.StatusCode)
		}
	}
	if resp := post(); resp.StatusCode != 202 {
		t.Errorf("after they ended: code %d, want 202", resp.StatusCode)
	}
	if want := 4 * 2; len(b.takeLooked()) != want {
		t.Errorf("not every accepted delivery was announced, want %d looks", want)
	}
}

func TestSlowDelivery(t *testing.T) {
	b := newLab(t, func(l *limits) { l.read, l.deliveries = 300*time.Millisecond, 1 })
	body := pushOf("shop/config", "main")
	s := b.beginDelivery(body)
	if _, err := io.WriteString(s.conn, body[:10]); err != nil {
		t.Fatal(err)
	}
	if resp := s.response(t); resp.StatusCode != 408 {
		t.Errorf("code %d, want 408", resp.StatusCode)
	}
	if _, err := s.reply.ReadByte(); err != io.EOF {
		t.Errorf("reading on: %v; want that the connection is closed", err)
	}
	if code, _ := b.send("POST", "/webhooks/github", header(secret, body), strings.NewReader(body)); code != 202 {
		t.Errorf("the next delivery: code %d, want 202", code)
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*limits)
		send   string
		want   string // what the answer begins with
	}{
		"header never ends":   {func(l *limits) { l.header = 200 * time.Millisecond }, "GET /healthz HTTP/1.1\r\nHost: piped\r\nX-A: ", ""},
		"no second request":   {func(l *limits) { l.idle = 200 * time.Millisecond }, "GET /healthz HTTP/1.1\r\nHost: piped\r\n\r\n", "HTTP/1.1 200 OK\r\n"},
		"header has no bound": {func(l *limits) { l.headerBytes = 1 << 10 }, "GET /healthz HTTP/1.1\r\nHost: piped\r\nX-A: " + strings.Repeat("a", 8<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t, tc.change)
			conn, err := net.Dial("tcp", b.server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, tc.send); err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(conn) // ends when the server closes
			if err != nil {
				t.Fatalf("the connection was not closed: %v", err)
			}
			if !strings.HasPrefix(string(data), tc.want) || tc.want == "" && len(data) > 0 {
				t.Errorf("answer %q, want it to begin with %q", data, tc.want)
			}
		})
	}
}

// TestDefaultLimits holds what the others rely on with limits of their own.
func TestDefaultLimits(t *testing.T) {
	s, err := New(Config{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := s.http
	if s.hooks.maxBody != 25<<20 || cap(s.hooks.slots) != 8 {
		t.Errorf("%d bytes and %d deliveries at once, want 25 MiB and 8", s.hooks.maxBody, cap(s.hooks.slots))
	}
	order := []time.Duration{0, h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout}
	if !slices.IsSorted(order) || h.ReadHeaderTimeout == 0 || h.WriteTimeout == h.ReadTimeout {
		t.Errorf("timeouts %v: a request that took as long as it may could not be answered", order)
	}
	if h.IdleTimeout == 0 || h.MaxHeaderBytes == 0 {
		t.Errorf("idle timeout %v, header bytes %d; want bounds", h.IdleTimeout, h.MaxHeaderBytes)
	}
}

func TestRefusalsAreLoggedSparingly(t *testing.T) {
	b := newLab(t, func(*limits) {})
	body := pushOf("shop/config", "main")
	for range 40 {
		b.send("POST", "/webhooks/github", header("guess", body), strings.NewReader(body))
	}
	lines := strings.Count(b.log(), "webhook delivery refused")
	if lines < 1 || lines > 12 {
		t.Errorf("%d lines for 40 refusals, want few and at least one", lines)
	}
	for _, want := range []string{"webhook=github", "from=127.0.0.1:", "signed with another secret"} {
		if !strings.Contains(b.log(), want) {
			t.Errorf("log lacks %q:\n%s", want, b.log())
		}
	}
}

func TestNothingSentIsLogged(t *testing.T) {
	b := newLab(t, func(*limits) {})
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
	if !strings.Contains(log, `msg="push announced"`) || !strings.Contains(log, "repo=config-again") {
		t.Errorf("the log lacks the announcement:\n%s", log)
	}
}

// TestShutdownWaitsForDeliveries: what was begun within the grace ends.
func TestShutdownWaitsForDeliveries(t *testing.T) {
	b := newLab(t, func(*limits) {})
	s, err := New(Config{Address: "127.0.0.1:0", Look: b.server.hooks.look})
	if err != nil {
		t.Fatal(err)
	}
	s.SetWebhooks(*b.server.hooks.current.Load())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	body := pushOf("shop/infra", "main")
	d := (&lab{t: t, server: s}).beginDelivery(body)
	cancel()
	if _, err := io.WriteString(d.conn, body); err != nil {
		t.Fatal(err)
	}
	if resp := d.response(t); resp.StatusCode != 202 {
		t.Errorf("code %d, want 202", resp.StatusCode)
	}
	if err := <-done; err != nil {
		t.Errorf("Run returned %v", err)
	}
	if diff := cmp.Diff([]string{"infra"}, b.takeLooked()); diff != "" {
		t.Errorf("looked at (-want +got):\n%s", diff)
	}
}
