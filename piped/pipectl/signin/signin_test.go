package signin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/pipectl/signin/signintest"
)

const someToken = "6f1c9a0e-8a55-4d8e-9a07-3a2e9f1d2c4b.abcdefghijklmnopqrstuvwxyz012345"

func clientOf(t *testing.T, address string) *Client {
	t.Helper()
	c, err := New(address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func started(t *testing.T) (*Client, *signintest.Server) {
	server := signintest.Start(t, func() string { return someToken })
	return clientOf(t, server.URL), server
}

// visit opens a page like a browser, and reports its last answer.
func visit(t *testing.T, page string) (status int, text string) {
	t.Helper()
	resp, err := http.Get(page)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode, string(body)
}

func TestBrowser(t *testing.T) {
	c, _ := started(t)
	seen := make(chan string, 1)
	got, err := c.Browser(t.Context(), time.Minute, func(page string) {
		go func() {
			status, text := visit(t, page)
			seen <- http.StatusText(status) + ": " + text
		}()
	})
	want := Grant{Token: someToken, Subject: "ana@example.com", Issuer: "corp", ExpiresAt: time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if text := <-seen; !strings.HasPrefix(text, "OK: pipectl continues") {
		t.Errorf("the browser shows %q", text)
	}
}

// TestForeignAnswers: what other pages send to the listener neither signs in nor ends the
// sign-in of the user.
func TestForeignAnswers(t *testing.T) {
	c, _ := started(t)
	got, err := c.Browser(t.Context(), time.Minute, func(page string) {
		u, err := url.Parse(page)
		if err != nil {
			t.Error(err)
			return
		}
		back, state := "http://127.0.0.1:"+u.Query().Get("cli_port"), u.Query().Get("state")
		for path, want := range map[string]int{
			"/callback?code=evil&state=" + strings.Repeat("x", len(state)): http.StatusBadRequest,
			"/callback?code=evil":          http.StatusBadRequest,
			"/callback?state=" + state:     http.StatusBadRequest,
			"/other?code=x&state=" + state: http.StatusNotFound,
			"/":                            http.StatusNotFound,
		} {
			if status, _ := visit(t, back+path); status != want {
				t.Errorf("%s: %d, want %d", path, status, want)
			}
		}
		renamed := strings.Replace(back, "127.0.0.1", "localhost", 1) // as a rebound name
		if status, _ := visit(t, renamed+"/callback?code=evil&state="+state); status != http.StatusNotFound {
			t.Errorf("by another host name: %d", status)
		}
		visit(t, page)
	})
	if err != nil || got.Token != someToken {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestBrowserFails(t *testing.T) {
	tests := map[string]struct {
		change   func(*signintest.Server)
		patience time.Duration
		want     string
	}{
		"another state": {func(s *signintest.Server) { s.State = func(string) string { return "another-state-0123456789" } }, 200 * time.Millisecond, "nobody has signed in in time"},
		"a wrong code":  {func(s *signintest.Server) { s.Code = func(string) string { return "wrong" } }, time.Minute, "the agent refuses the sign-in: the sign-in failed (access_denied)"},
		"no token":      {func(s *signintest.Server) { s.Token = func() string { return "x\r\nother: header" } }, time.Minute, "sent no token"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, server := started(t)
			tc.change(server)
			_, err := c.Browser(t.Context(), tc.patience, func(page string) { visit(t, page) })
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		c, _ := started(t)
		if _, err := c.Browser(t.Context(), time.Millisecond, func(string) {}); !errors.Is(err, errNoAnswer) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		c, _ := started(t)
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.Browser(ctx, time.Minute, func(string) { cancel() }); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// TestChallenge: the example of RFC 7636, appendix B.
func TestChallenge(t *testing.T) {
	if got := challengeOf("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"); got != "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM" {
		t.Error(got)
	}
}

// TestDevice: polls keep the interval, and lengthen it by 5 s when told so (RFC 8628, 3.5).
func TestDevice(t *testing.T) {
	pending, slower, away := signintest.Answer{Status: 400, Code: "authorization_pending"}, signintest.Answer{Status: 400, Code: "slow_down"}, signintest.Answer{Status: 503, Code: "temporarily_unavailable"}
	tests := map[string]struct {
		interval int
		answers  []signintest.Answer
		waits    []time.Duration
		want     string // error
	}{
		"at once":           {1, nil, []time.Duration{time.Second}, ""},
		"the usual":         {0, nil, []time.Duration{5 * time.Second}, ""},
		"pending":           {2, []signintest.Answer{pending, pending}, []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second}, ""},
		"slower":            {2, []signintest.Answer{slower, pending, away}, []time.Duration{2 * time.Second, 7 * time.Second, 7 * time.Second, 12 * time.Second}, ""},
		"denied":            {1, []signintest.Answer{pending, {Status: 403, Code: "access_denied"}}, []time.Duration{time.Second, time.Second}, "access_denied"},
		"expired":           {1, []signintest.Answer{{Status: 400, Code: "expired_token"}}, []time.Duration{time.Second}, "expired_token"},
		"a foreign answer":  {1, []signintest.Answer{{Status: 500}}, []time.Duration{time.Second}, "does not answer as the agent's web server: 500"},
		"control sequences": {1, []signintest.Answer{{Status: 400, Code: "bad\x1b[2J"}}, []time.Duration{time.Second}, "(bad[2J)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c, server := started(t)
			server.Interval, server.Answers = tc.interval, tc.answers
			var waits []time.Duration
			c.sleep = func(_ context.Context, d time.Duration) error {
				waits = append(waits, d)
				return nil
			}
			var shown Device
			got, err := c.Device(t.Context(), "corp", time.Minute, func(d Device) { shown = d })
			if tc.want == "" && (err != nil || got.Token != someToken) || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %+v, %v, want %s", got, err, tc.want)
			}
			if diff := cmp.Diff(tc.waits, waits); diff != "" {
				t.Errorf("waits (-want +got):\n%s", diff)
			}
			if shown.UserCode != "WDJB-MJHT" || shown.URI != "https://issuer.example.com/device" || shown.Complete == "" || server.Issuers()[0] != "corp" {
				t.Errorf("shown: %+v, issuers %q", shown, server.Issuers())
			}
		})
	}
}

// TestDeviceThatNobodyUses: the sign-in ends when the user has no time left.
func TestDeviceThatNobodyUses(t *testing.T) {
	c, server := started(t)
	server.Interval = 1
	if _, err := c.Device(t.Context(), "", time.Millisecond, func(Device) {}); !errors.Is(err, errNoAnswer) {
		t.Errorf("got %v", err)
	}
}

// TestUnsafePages: a page that is none, or controls the terminal, is not shown.
func TestUnsafePages(t *testing.T) {
	for _, page := range []string{"", "javascript:alert(1)", "file:///etc/passwd", "https://x\x1b[2J", "//x"} {
		if isPage(page) {
			t.Errorf("%q is shown", page)
		}
	}
}

// TestAddresses: no token is sent in plaintext over the network.
func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"https://piped.example.com": "", "https://piped.example.com/": "", "http://127.0.0.1:9085": "", "http://localhost:1": "", "http://[::1]:1": "",
		"http://piped.example.com": "unencrypted", "http://127.0.0.1.example.com": "unencrypted", "piped.example.com": "not the address", "https://u:p@x": "not the address",
		"https://x/path": "not the address", "https://x?y": "not the address", "ftp://127.0.0.1": "unencrypted", "": "not the address",
	} {
		_, err := New(address, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// TestRedirect: a redirect does not take the verifier to another server.
func TestRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the other server was asked") }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	if _, err := clientOf(t, server.URL).Device(t.Context(), "", time.Minute, func(Device) {}); err == nil || !strings.Contains(err.Error(), "does not answer as the agent's web server") {
		t.Errorf("got %v", err)
	}
}
