package pipectl_test

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/pipectl"
	"github.com/c785c783/piped/piped/pipectl/signin/signintest"
)

// surfer is a terminal whose user opens the sign-in page that is printed.
type surfer struct {
	bytes.Buffer
	visits sync.WaitGroup
}

var printedPage = regexp.MustCompile(`\n  (http://\S+/sign-in\?\S+)\n`)

func (s *surfer) Write(text []byte) (int, error) {
	if page := printedPage.FindSubmatch(text); page != nil {
		s.visits.Go(func() {
			if resp, err := http.Get(string(page[1])); err == nil {
				resp.Body.Close()
			}
			http.DefaultClient.CloseIdleConnections()
		})
	}
	return s.Buffer.Write(text)
}

// TestLoginWithABrowser signs in through the loopback listener.
func TestLoginWithABrowser(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	agent := controltest.Start(t, t.TempDir(), withRoles)
	web := signintest.Start(t, func() string { return agent.SignIn(ana) })
	at := []string{"--insecure", "--address=" + agent.Server.Addr()}
	login := func(args ...string) (code int, stderr string) {
		var terminal surfer
		var out bytes.Buffer
		code = pipectl.Run(t.Context(), append(append([]string{"login", "--no-browser", "--web-address=" + web.URL}, at...), args...), strings.NewReader(""), &out, &terminal)
		terminal.visits.Wait()
		return code, terminal.String()
	}
	if code, stderr := login(); code != 0 || !strings.Contains(stderr, "Signed in at "+agent.Server.Addr()+" as ana@example.com until 2099-01-02T03:04:05Z") {
		t.Fatalf("code %d: %s", code, stderr)
	}
	if code, stdout, stderr := run(t.Context(), append(at, "whoami")...); code != 0 || !strings.Contains(stdout, "ana@example.com") {
		t.Errorf("whoami: code %d, %s%s", code, stdout, stderr)
	}

	// What fails leaves the stored sign-in as it is.
	web.Code = func(string) string { return "wrong" }
	if code, stderr := login(); code != 1 || !strings.Contains(stderr, "the sign-in failed (access_denied)\nHint: begin again") {
		t.Errorf("a wrong code: code %d: %s", code, stderr)
	}
	web.Code, web.State = nil, func(string) string { return "another-state-0123456789" }
	if code, stderr := login("--timeout=300ms"); code != 1 || !strings.Contains(stderr, "nobody has signed in in time") {
		t.Errorf("another state: code %d: %s", code, stderr)
	}
	other := controltest.Start(t, t.TempDir())
	web.State, web.Token = nil, func() string { return other.SignIn(deploy.User{Issuer: "corp", Subject: "ana@example.com"}) }
	if code, stderr := login(); code != 1 || !strings.Contains(stderr, "does not accept it: ") || !strings.Contains(stderr, "Hint: check that --address and --web-address are those of the same agent") {
		t.Errorf("another agent: code %d: %s", code, stderr)
	}
	if code, stdout, stderr := run(t.Context(), append(at, "whoami")...); code != 0 || !strings.Contains(stdout, "ana@example.com") {
		t.Errorf("whoami afterwards: code %d, %s%s", code, stdout, stderr)
	}
}

// TestLogoutWithoutAgent: the token is removed also if the agent does not answer.
func TestLogoutWithoutAgent(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	agent := controltest.Start(t, t.TempDir(), withRoles, func(c *control.Config) { c.Address = ownHost + ":0" })
	web := signintest.Start(t, func() string { return agent.SignIn(ana) })
	at := []string{"--insecure", "--address=" + agent.Server.Addr()}
	if code, _, stderr := run(t.Context(), append(at, "login", "--device", "--web-address="+web.URL)...); code != 0 {
		t.Fatal(stderr)
	}
	agent.Restart() // on another port
	if code, _, stderr := run(t.Context(), append(at, "logout")...); code != 1 || !strings.Contains(stderr, "the token of the sign-in was removed, but the session is still open") {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, _, stderr := run(t.Context(), append(at, "logout")...); code != 0 || !strings.Contains(stderr, "Not signed in at") {
		t.Errorf("again: code %d: %s", code, stderr)
	}
}

// TestLoginLink prints the link alone to the standard output.
func TestLoginLink(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	web := signintest.Start(t, func() string { return "" })
	code, stdout, stderr := run(t.Context(), "login-link", "--api-key=good", "--web-address="+web.URL)
	if want := web.URL + "/sign-in/link/use?ticket=" + strings.Repeat("a", 43) + "\n"; code != 0 || stdout != want || !strings.Contains(stderr, "until 2099-01-02T03:04:05Z") {
		t.Errorf("code %d, %q, %s; want %q", code, stdout, stderr, want)
	}
	if code, stdout, stderr := run(t.Context(), "login-link", "--api-key=wrong", "--web-address="+web.URL); code != 1 || stdout != "" || !strings.Contains(stderr, "check that the API key") {
		t.Errorf("a wrong key: code %d, %q, %s", code, stdout, stderr)
	}
	if code, _, stderr := run(t.Context(), "login-link", "--api-key=good", "--web-address=http://piped.example.com"); code != 1 || !strings.Contains(stderr, "unencrypted") {
		t.Errorf("without TLS: code %d, %s", code, stderr)
	}
}
