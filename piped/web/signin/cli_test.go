package signin_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// verifier and challenge are the example of RFC 7636, appendix B.
const (
	verifier  = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
	cliState  = "state-of-pipectl-0123456789"
)

const cliQuery = "cli_port=40123&challenge=" + challenge + "&state=" + cliState

// confirmed goes through the page that asks to confirm and returns where the browser is sent.
func (e *env) confirmed(p page) *url.URL {
	e.t.Helper()
	got := e.post(e.staying(), "/sign-in/confirm", url.Values{"ticket": {ticketOf(e.t, p)}, "answer": {"yes"}})
	location, err := got.Location()
	if err != nil || got.StatusCode != http.StatusSeeOther {
		e.t.Fatalf("the confirmation answers %s: %s", got.Status, got.text)
	}
	return location
}

// redeem exchanges a code.
func (e *env) redeem(code, verifier string) page {
	e.t.Helper()
	body, _ := json.Marshal(map[string]string{"code": code, "verifier": verifier})
	return e.call("/sign-in/token", string(body))
}

type tokenAnswer struct {
	Token, Subject, Issuer, Error string
	ExpiresAt                     time.Time `json:"expires_at"`
}

func answerOf(t testing.TB, p page) (a tokenAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.text), &a); err != nil {
		t.Fatalf("%s: %v: %s", p.Status, err, p.text)
	}
	return a
}

func TestPipectlSignsInThroughTheBrowser(t *testing.T) {
	e := newEnv(t)
	choose := e.get(e.browser, "/sign-in?"+cliQuery)
	if !strings.Contains(choose.text, "pipectl") || !strings.Contains(choose.text, "/sign-in/staff?challenge="+challenge+"&amp;cli_port=40123&amp;state="+cliState) {
		t.Fatalf("the page does not carry what pipectl needs:\n%s", choose.text)
	}
	asked := e.get(e.browser, "/sign-in/staff?"+cliQuery)
	if !strings.Contains(asked.text, "ann@example.com") || !strings.Contains(asked.Header.Get("Content-Security-Policy"), "form-action 'self' http://127.0.0.1:40123") {
		t.Fatalf("the page does not say as whom: %s\n%s", asked.Header.Get("Content-Security-Policy"), asked.text)
	}
	if e.sessions.Count() != 0 {
		t.Fatal("there is a session before the user has confirmed")
	}
	back := e.confirmed(asked)
	if back.Scheme != "http" || back.Host != "127.0.0.1:40123" || back.Path != "/callback" || back.Query().Get("state") != cliState {
		t.Fatalf("the browser is sent to %s", back)
	}
	got := answerOf(t, e.redeem(back.Query().Get("code"), verifier))
	s, ok := e.sessions.Find(got.Token)
	if !ok || s.User.Subject != "ann@example.com" || s.Client != "pipectl" || s.Refresh == nil || got.Subject != "ann@example.com" || got.Issuer != "staff" {
		t.Errorf("got %+v, session %+v", got, s)
	}
	if left := time.Until(got.ExpiresAt); left < 6*24*time.Hour {
		t.Errorf("the session expires in %s", left)
	}
	if again := e.redeem(back.Query().Get("code"), verifier); again.StatusCode != http.StatusForbidden {
		t.Errorf("a replayed code: %s", again.Status)
	}
	e.checkLog()
}

func TestPipectlSignsInWithAKeyInTheBrowser(t *testing.T) {
	e := newEnv(t)
	form, _ := url.ParseQuery(cliQuery)
	form.Set("key", ownerKey)
	back := e.confirmed(e.post(e.browser, "/sign-in/key", form))
	got := answerOf(t, e.redeem(back.Query().Get("code"), verifier))
	if s, ok := e.sessions.Find(got.Token); !ok || s.KeyID != "owner" {
		t.Errorf("got %+v, session %+v", got, s)
	}
}

func TestCodesOfPipectl(t *testing.T) {
	e := newEnv(t)
	code := func() string { return e.confirmed(e.get(e.browser, "/sign-in/staff?"+cliQuery)).Query().Get("code") }
	stolen := code()
	if got := e.redeem(stolen, strings.Repeat("a", 43)); got.StatusCode != http.StatusForbidden {
		t.Errorf("a wrong verifier: %s", got.Status)
	}
	if got := e.redeem(stolen, verifier); got.StatusCode != http.StatusForbidden {
		t.Errorf("a code after a wrong verifier: %s", got.Status)
	}
	if got := e.redeem(code(), challenge); got.StatusCode != http.StatusForbidden {
		t.Errorf("the challenge in place of the verifier: %s", got.Status)
	}
	late := code()
	e.clock.Advance(61 * time.Second)
	if got := e.redeem(late, verifier); got.StatusCode != http.StatusForbidden {
		t.Errorf("a code after a minute: %s", got.Status)
	}
	asked := e.get(e.browser, "/sign-in/staff?"+cliQuery)
	if got := e.redeem(ticketOf(t, asked), verifier); got.StatusCode != http.StatusForbidden {
		t.Errorf("a ticket of the confirmation in place of a code: %s", got.Status)
	}
	e.confirmed(asked) // the ticket was not even found
	if e.sessions.Count() != 0 {
		t.Errorf("%d sessions were opened", e.sessions.Count())
	}
}

func TestConfirmations(t *testing.T) {
	e := newEnv(t)
	ask := func() url.Values {
		return url.Values{"ticket": {ticketOf(t, e.get(e.browser, "/sign-in/staff?"+cliQuery))}, "answer": {"yes"}}
	}
	form := ask()
	if got := e.post(e.newBrowser(e.browser.Transport), "/sign-in/confirm", form); got.StatusCode != http.StatusForbidden {
		t.Errorf("another browser: %s", got.Status)
	}
	if got := e.post(e.staying(), "/sign-in/confirm", form); got.StatusCode != http.StatusForbidden {
		t.Errorf("a ticket that another browser used: %s", got.Status)
	}
	form = ask()
	form.Set("answer", "no")
	if got := e.post(e.staying(), "/sign-in/confirm", form); got.StatusCode != http.StatusOK || got.Header.Get("Location") != "" {
		t.Errorf("the user says no: %s", got.Status)
	}
	form = ask()
	e.clock.Advance(11 * time.Minute)
	if got := e.post(e.staying(), "/sign-in/confirm", form); got.StatusCode != http.StatusForbidden {
		t.Errorf("after 11 minutes: %s", got.Status)
	}
}

// TestRequestsOfPipectl: what does not come from pipectl is refused before a user signs in.
func TestRequestsOfPipectl(t *testing.T) {
	e := newEnv(t)
	for _, query := range []string{
		"cli_port=0&challenge=" + challenge + "&state=" + cliState, "cli_port=65536&challenge=" + challenge + "&state=" + cliState,
		"cli_port=40123@evil.example.com&challenge=" + challenge + "&state=" + cliState, "cli_port=&challenge=" + challenge + "&state=" + cliState,
		"cli_port=40123&challenge=short&state=" + cliState, "cli_port=40123&challenge=" + challenge, "cli_port=40123&challenge=" + challenge + "&state=a",
		"cli_port=40123&state=" + cliState, "cli_port=40123&challenge=" + challenge + "&state=" + cliState + "%0d%0aX:y",
	} {
		for _, path := range []string{"/sign-in?", "/sign-in/staff?"} {
			if got := e.get(e.staying(), path+query); got.StatusCode != http.StatusBadRequest {
				t.Errorf("%s%s: %s", path, query, got.Status)
			}
		}
		e.clock.Advance(time.Minute)
	}
	for _, body := range []string{"", "[]", "{}", `{"code":1}`, `{"code":"x","verifier":"y"}`} {
		if got := e.call("/sign-in/token", body); got.StatusCode < 400 || got.StatusCode > 403 {
			t.Errorf("POST /sign-in/token %s: %s", body, got.Status)
		}
	}
}

func TestPipectlSignsInOnAnotherDevice(t *testing.T) {
	e := newEnv(t)
	e.clock.Stop() // a poll at once stays one on a busy machine
	var flow struct {
		Handle    string
		UserCode  string `json:"user_code"`
		URI       string `json:"verification_uri"`
		Interval  int
		ExpiresIn int `json:"expires_in"`
	}
	begun := e.call("/sign-in/device", `{"issuer":"staff"}`)
	if err := json.Unmarshal([]byte(begun.text), &flow); err != nil || flow.Handle == "" || flow.UserCode == "" || flow.URI == "" || flow.Interval != 5 || flow.ExpiresIn < 590 {
		t.Fatalf("%s %s: %+v, %v", begun.Status, begun.text, flow, err)
	}
	if strings.Contains(begun.text, "hunter2") {
		t.Errorf("the issuer's device code leaves the agent: %s", begun.text)
	}
	poll := func() page { return e.call("/sign-in/device/token", fmt.Sprintf(`{"handle":%q}`, flow.Handle)) }
	if got := poll(); answerOf(t, got).Error != "slow_down" {
		t.Errorf("a poll at once: %s", got.text)
	}
	e.clock.Advance(6 * time.Second)
	if got := poll(); answerOf(t, got).Error != "authorization_pending" || got.StatusCode != http.StatusBadRequest {
		t.Errorf("before the user signs in: %s", got.text)
	}
	e.provider.SetDown(true)
	e.clock.Advance(6 * time.Second)
	if got := poll(); answerOf(t, got).Error != "temporarily_unavailable" {
		t.Errorf("while the issuer is away: %s", got.text)
	}
	e.provider.SetDown(false)
	e.provider.Approve(flow.UserCode, true)
	e.clock.Advance(6 * time.Second)
	got := answerOf(t, poll())
	if s, ok := e.sessions.Find(got.Token); !ok || s.User.Subject != "ann@example.com" || s.Client != "pipectl" {
		t.Errorf("got %+v, session %+v", got, s)
	}
	if got := answerOf(t, poll()); got.Error != "expired_token" {
		t.Errorf("after the sign-in: %+v", got)
	}
	e.checkLog()
}

func TestDeviceFlowsThatEnd(t *testing.T) {
	e := newEnv(t)
	begin := func() (handle, userCode string) {
		var flow map[string]any
		_ = json.Unmarshal([]byte(e.call("/sign-in/device", `{}`).text), &flow) // the only issuer
		return fmt.Sprint(flow["handle"]), fmt.Sprint(flow["user_code"])
	}
	poll := func(handle string) string {
		return answerOf(t, e.call("/sign-in/device/token", fmt.Sprintf(`{"handle":%q}`, handle))).Error
	}
	handle, userCode := begin()
	e.provider.Approve(userCode, false)
	e.clock.Advance(6 * time.Second)
	if got := poll(handle); got != "access_denied" {
		t.Errorf("the user refuses: %q", got)
	}
	if got := poll(handle); got != "expired_token" {
		t.Errorf("after the refusal: %q", got)
	}
	handle, _ = begin()
	e.clock.Advance(11 * time.Minute)
	if got := poll(handle); got != "expired_token" {
		t.Errorf("after 11 minutes: %q", got)
	}
	if got := poll("unknown"); got != "expired_token" {
		t.Errorf("an unknown handle: %q", got)
	}
	if got := answerOf(t, e.call("/sign-in/device", `{"issuer":"other"}`)).Error; got != "unknown_issuer" {
		t.Errorf("an unknown issuer: %q", got)
	}
	e.provider.SetDiscovery("device_authorization_endpoint", nil)
	e.access.Issuers[0].Name = "partners" // what is known of "staff" stays known
	if err := e.issuers.Set(e.access); err != nil {
		t.Fatal(err)
	}
	if got := answerOf(t, e.call("/sign-in/device", `{}`)).Error; got != "unsupported" {
		t.Errorf("an issuer without device flow: %q", got)
	}
}

// TestOnlyJSON: a form of another site cannot send it.
func TestOnlyJSON(t *testing.T) {
	e := newEnv(t)
	for _, path := range []string{"/sign-in/token", "/sign-in/device", "/sign-in/device/token"} {
		if got := e.post(e.staying(), path, url.Values{"issuer": {"staff"}}); got.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("a form at %s: %s", path, got.Status)
		}
	}
}

// TestExampleOfTheSpecification holds the constants of this file against RFC 7636.
func TestExampleOfTheSpecification(t *testing.T) {
	sum := sha256.Sum256([]byte(verifier))
	if got := base64.RawURLEncoding.EncodeToString(sum[:]); got != challenge {
		t.Errorf("got %s, want %s", got, challenge)
	}
}
