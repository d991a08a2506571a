package signin

import (
	"crypto/subtle"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/deploy"
)

// codeLifetime is how long pipectl may take to exchange its code.
const codeLifetime = time.Minute

// confirmation is a user who must confirm that pipectl signs in as them.
type confirmation struct {
	Who     who    `json:"who"`
	CLI     cli    `json:"cli"`
	Browser []byte `json:"browser"`
}

// grant is what pipectl's code stands for.
type grant struct {
	Who       who    `json:"who"`
	Challenge string `json:"challenge"`
}

// askToConfirm shows who pipectl will be signed in as.
func (h *Handler) askToConfirm(w http.ResponseWriter, r *http.Request, user who, c cli) {
	browser, err := h.bind(w, r)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	ticket, err := h.tickets.issue(r.Context(), ticketConfirm, confirmation{user, c, browser}, attemptLifetime)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	w.Header().Set("Content-Security-Policy", policy("'self' "+c.origin()))
	h.render(w, http.StatusOK, "confirm", confirmPage{Subject: user.User.Subject, Issuer: user.User.Issuer, Port: c.Port, Ticket: ticket})
}

// origin is where pipectl listens. The address is never anything but this machine.
func (c cli) origin() string { return "http://127.0.0.1:" + strconv.Itoa(c.Port) }

// confirm sends the browser to pipectl with a code.
func (h *Handler) confirm(w http.ResponseWriter, r *http.Request) {
	if !h.form(w, r) {
		return
	}
	var c confirmation
	if err := h.tickets.take(r.Context(), ticketConfirm, r.PostForm.Get("ticket"), &c); err != nil {
		h.failed(w, r, err)
		return
	}
	if !h.bound(r, c.Browser) {
		h.failed(w, r, deploy.Errorf(deploy.Denied, "the confirmation belongs to another browser"))
		return
	}
	if r.PostForm.Get("answer") != "yes" {
		h.say(w, http.StatusOK, "Not signed in", "pipectl was not signed in. You can close this page.")
		return
	}
	code, err := h.tickets.issue(r.Context(), ticketCode, grant{c.Who, c.CLI.Challenge}, codeLifetime)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	w.Header().Set("Content-Security-Policy", policy("'self' "+c.CLI.origin()))
	http.Redirect(w, r, c.CLI.origin()+"/callback?"+url.Values{"code": {code}, "state": {c.CLI.State}}.Encode(), http.StatusSeeOther)
}

// tokenRequest is the body of POST /sign-in/token.
type tokenRequest struct {
	Code     string `json:"code"`
	Verifier string `json:"verifier"`
}

// tokenResponse answers with a session.
type tokenResponse struct {
	Token     string    `json:"token"`
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	ExpiresAt time.Time `json:"expires_at"`
}

// token exchanges pipectl's code for a session. A code is invalid after one use, also with a
// wrong verifier.
func (h *Handler) token(w http.ResponseWriter, r *http.Request) {
	var in tokenRequest
	if !read(w, r, &in) {
		return
	}
	var g grant
	if err := h.tickets.take(r.Context(), ticketCode, in.Code, &g); err != nil {
		h.failedJSON(w, r, err)
		return
	}
	if subtle.ConstantTimeCompare([]byte(signin.Challenge(in.Verifier)), []byte(g.Challenge)) != 1 {
		h.failedJSON(w, r, deploy.Errorf(deploy.Denied, "the verifier does not belong to the code"))
		return
	}
	h.answerToken(w, r, g.Who)
}

// answerToken opens a session of pipectl.
func (h *Handler) answerToken(w http.ResponseWriter, r *http.Request, user who) {
	token, s, err := h.open(r, user, clientCLI)
	if err != nil {
		h.failedJSON(w, r, err)
		return
	}
	write(w, http.StatusOK, tokenResponse{Token: token, Subject: user.User.Subject, Issuer: user.User.Issuer, ExpiresAt: s.ExpiresAt.UTC()})
}
