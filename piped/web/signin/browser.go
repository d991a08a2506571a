package signin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/deploy"
)

// attemptLifetime is how long a user may take to sign in at an issuer, and to confirm.
const attemptLifetime = 10 * time.Minute

// attempt is a sign-in at an issuer that is under way.
type attempt struct {
	Issuer   string `json:"issuer"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Browser  []byte `json:"browser"` // hash of the cookie of the browser that began it
	Next     string `json:"next"`
	CLI      *cli   `json:"cli,omitempty"`
}

// cli is a pipectl that waits on a loopback port for a code.
type cli struct {
	Port      int    `json:"port"`
	Challenge string `json:"challenge"`
	State     string `json:"state"`
}

var (
	challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`) // SHA-256 in base64url
	stateForm     = regexp.MustCompile(`^[A-Za-z0-9_-]{16,128}$`)
)

// cliOf returns the pipectl that a query or form is for, nil if for none. If ok is false, it
// has answered that the request is incomplete.
func (h *Handler) cliOf(w http.ResponseWriter, form url.Values) (_ *cli, ok bool) {
	if !form.Has("cli_port") {
		return nil, true
	}
	port, err := strconv.Atoi(form.Get("cli_port"))
	c := &cli{Port: port, Challenge: form.Get("challenge"), State: form.Get("state")}
	if err != nil || port < 1 || port > 65535 || !challengeForm.MatchString(c.Challenge) || !stateForm.MatchString(c.State) {
		h.say(w, http.StatusBadRequest, "This address is incomplete", "Run pipectl login again, and open the whole address that it prints.")
		return nil, false
	}
	return c, true
}

// query returns the parameters that carry c and the path to return to.
func query(next string, c *cli) url.Values {
	q := url.Values{}
	if next != "/" {
		q.Set("next", next)
	}
	if c != nil {
		q.Set("cli_port", strconv.Itoa(c.Port))
		q.Set("challenge", c.Challenge)
		q.Set("state", c.State)
	}
	return q
}

// choose serves the page that lists the issuers.
func (h *Handler) choose(w http.ResponseWriter, r *http.Request) {
	c, ok := h.cliOf(w, r.URL.Query())
	if !ok {
		return
	}
	next := localPath(r.URL.Query().Get("next"))
	page := choosePage{CLI: c, Next: next}
	for _, issuer := range h.config.Issuers.All() {
		link := url.URL{Path: "/sign-in/" + issuer.Name(), RawQuery: query(next, c).Encode()}
		page.Issuers = append(page.Issuers, issuerLink{Name: issuer.Name(), Link: link.String(), Away: issuer.Away() != nil})
	}
	h.render(w, http.StatusOK, "choose", page)
}

// begin sends the browser to an issuer.
func (h *Handler) begin(w http.ResponseWriter, r *http.Request) {
	issuer, ok := h.config.Issuers.Find(r.PathValue("issuer"))
	if !ok {
		h.say(w, http.StatusNotFound, "Unknown issuer", "This issuer is not configured.")
		return
	}
	c, ok := h.cliOf(w, r.URL.Query())
	if !ok {
		return
	}
	a, err := signin.NewAttempt(h.config.Rand)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	target, err := issuer.AuthURL(r.Context(), a)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	browser, err := h.bind(w, r)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	err = h.tickets.put(r.Context(), ticketAttempt, a.State, attempt{
		Issuer: issuer.Name(), Nonce: a.Nonce, Verifier: a.Verifier, Browser: browser, Next: localPath(r.URL.Query().Get("next")), CLI: c,
	}, h.config.Now().Add(attemptLifetime))
	if err != nil {
		h.failed(w, r, err)
		return
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// bind gives the browser a cookie, unless it has one of an attempt in another tab, and returns
// the cookie's hash.
func (h *Handler) bind(w http.ResponseWriter, r *http.Request) (hash []byte, err error) {
	value := h.cookie(r, browserCookie)
	if !challengeForm.MatchString(value) {
		if value, err = signin.NewToken(h.config.Rand); err != nil {
			return nil, err
		}
	}
	h.setCookie(w, r, browserCookie, value, attemptLifetime)
	return hashOf(value), nil
}

func hashOf(cookie string) []byte {
	sum := sha256.Sum256([]byte(cookie))
	return sum[:]
}

// bound reports whether a request comes from the browser with a cookie of that hash.
func (h *Handler) bound(r *http.Request, hash []byte) bool {
	cookie := h.cookie(r, browserCookie)
	return cookie != "" && subtle.ConstantTimeCompare(hash, hashOf(cookie)) == 1
}

// callback completes an attempt at an issuer.
func (h *Handler) callback(w http.ResponseWriter, r *http.Request) {
	issuer, ok := h.config.Issuers.Find(r.PathValue("issuer"))
	if !ok {
		h.say(w, http.StatusNotFound, "Unknown issuer", "This issuer is not configured.")
		return
	}
	var a attempt
	if err := h.tickets.take(r.Context(), ticketAttempt, r.URL.Query().Get("state"), &a); err != nil {
		h.failed(w, r, err)
		return
	}
	if a.Issuer != issuer.Name() || !h.bound(r, a.Browser) {
		h.failed(w, r, deploy.Errorf(deploy.Denied, "the callback belongs to an attempt of another browser or issuer; was the page opened at another address than access.externalURL?"))
		return
	}
	got, err := issuer.Finish(r.Context(), signin.Attempt{Nonce: a.Nonce, Verifier: a.Verifier}, r.URL.Query())
	if err != nil {
		h.failed(w, r, err)
		return
	}
	h.signedIn(w, r, who{User: got.User, Refresh: got.Refresh}, a.Next, a.CLI)
}

// key signs in the holder of an API key.
func (h *Handler) key(w http.ResponseWriter, r *http.Request) {
	if !h.form(w, r) {
		return
	}
	c, ok := h.cliOf(w, r.PostForm)
	if !ok {
		return
	}
	caller, err := h.config.Keys.FindKey(r.Context(), r.PostForm.Get("key"))
	if err != nil {
		h.failed(w, r, err)
		return
	}
	h.signedIn(w, r, who{User: deploy.User{Subject: caller.Subject}, KeyID: caller.ID}, localPath(r.PostForm.Get("next")), c)
}

// form parses a form, or answers that it cannot.
func (h *Handler) form(w http.ResponseWriter, r *http.Request) bool {
	if err := r.ParseForm(); err != nil {
		h.say(w, http.StatusBadRequest, "The form cannot be read", "Go to the sign-in page and try again.")
		return false
	}
	return true
}

// signedIn opens the session of a browser and sends it to the path it came for. A user who
// signs in for pipectl is asked to confirm that instead, and the browser gets no session.
func (h *Handler) signedIn(w http.ResponseWriter, r *http.Request, user who, next string, c *cli) {
	if c != nil {
		h.askToConfirm(w, r, user, *c)
		return
	}
	before := h.Token(r)
	token, s, err := h.open(r, user, clientPage)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	if before != "" {
		if _, err := h.config.Sessions.End(r.Context(), before); err != nil && !deploy.IsKind(err, deploy.NotFound) {
			h.config.Logger.WarnContext(r.Context(), "cannot end the session that another one replaces; it ends when it expires", "error", err)
		}
	}
	h.setCookie(w, r, sessionCookie, token, s.ExpiresAt.Sub(h.config.Now()))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// signOut ends the session of a browser.
func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	if token := h.Token(r); token != "" {
		s, err := h.config.Sessions.End(r.Context(), token)
		switch {
		case err == nil:
			h.record(r, deploy.AuditRecord{Method: methodSignOut, Subject: s.User.Subject, Issuer: s.User.Issuer, CallerID: s.ID, Session: true, Code: "OK"})
		case !deploy.IsKind(err, deploy.NotFound):
			h.config.Logger.ErrorContext(r.Context(), "cannot end a session", "error", err)
			h.say(w, http.StatusServiceUnavailable, "You are still signed in", "The session could not be ended now. Try again.")
			return
		}
	}
	h.setCookie(w, r, sessionCookie, "", 0)
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}
