package signin

import (
	"net/http"
	"net/url"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// linkLifetime is how long a sign-in link can be used.
const linkLifetime = 10 * time.Minute

// link is a user whom a link signs in, once.
type link struct {
	Who  who    `json:"who"`
	Next string `json:"next"`
}

// linkRequest is the body of POST /sign-in/link/new.
type linkRequest struct {
	Key  string `json:"key"`  // API key; a secret
	Next string `json:"next"` // local path that the link leads to; empty means the start page
}

// linkResponse answers with a link.
type linkResponse struct {
	Path      string    `json:"path"` // of the link, below the address of the web server; a secret
	ExpiresAt time.Time `json:"expires_at"`
}

// makeLink makes a link that signs the holder of an API key in.
func (h *Handler) makeLink(w http.ResponseWriter, r *http.Request) {
	var in linkRequest
	if !read(w, r, &in) {
		return
	}
	caller, err := h.config.Keys.FindKey(r.Context(), in.Key)
	if err != nil {
		h.failedJSON(w, r, err)
		return
	}
	expires := h.config.Now().Add(linkLifetime)
	ticket, err := h.tickets.issue(r.Context(), ticketLink, link{who{User: deploy.User{Subject: caller.Subject}, KeyID: caller.ID}, localPath(in.Next)}, linkLifetime)
	if err != nil {
		h.failedJSON(w, r, err)
		return
	}
	h.record(r, deploy.AuditRecord{Method: methodLink, Subject: caller.Subject, CallerID: caller.ID, Code: "OK"})
	write(w, http.StatusOK, linkResponse{Path: "/sign-in/link/use?" + url.Values{"ticket": {ticket}}.Encode(), ExpiresAt: expires.UTC()})
}

// showLink asks whether to sign in: programs that only fetch a link do not use it up.
func (h *Handler) showLink(w http.ResponseWriter, r *http.Request) {
	ticket := r.URL.Query().Get("ticket")
	if !challengeForm.MatchString(ticket) {
		h.say(w, http.StatusBadRequest, "This address is incomplete", "Open the whole address that was printed.")
		return
	}
	h.render(w, http.StatusOK, "link", ticket)
}

// useLink signs the browser in. Afterwards the link is invalid.
func (h *Handler) useLink(w http.ResponseWriter, r *http.Request) {
	if !h.form(w, r) {
		return
	}
	var l link
	if err := h.tickets.take(r.Context(), ticketLink, r.PostForm.Get("ticket"), &l); err != nil {
		h.failed(w, r, err)
		return
	}
	h.signedIn(w, r, l.Who, l.Next, nil)
}
