package signin

import (
	"net/http"
	"time"
)

// Names of the cookies, without the prefix that secure ones have. Browsers accept a cookie
// with the prefix __Host- only from this host, encrypted and for all paths, so that no other
// host of the domain can plant one.
const (
	sessionCookie = "piped-session"
	browserCookie = "piped-sign-in" // binds an attempt to the browser that began it
	hostPrefix    = "__Host-"
)

// cookieName returns the name under which a request has a cookie.
func (h *Handler) cookieName(r *http.Request, name string) string {
	if secure(h.externalURL(), r) {
		return hostPrefix + name
	}
	return name
}

// cookie returns the value of a cookie; "" if there is none.
func (h *Handler) cookie(r *http.Request, name string) string {
	c, err := r.Cookie(h.cookieName(r, name))
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie sets a cookie for a time; 0 removes it.
func (h *Handler) setCookie(w http.ResponseWriter, r *http.Request, name, value string, lifetime time.Duration) {
	c := &http.Cookie{
		Name: h.cookieName(r, name), Value: value, Path: "/", HttpOnly: true, Secure: secure(h.externalURL(), r), SameSite: http.SameSiteLaxMode,
		MaxAge: int(lifetime / time.Second),
	}
	if c.MaxAge <= 0 {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// Secure reports whether the cookies of a request are for encrypted connections only.
func (h *Handler) Secure(r *http.Request) bool { return secure(h.externalURL(), r) }

// Token returns the session token in a request's cookie; "" if there is none.
func (h *Handler) Token(r *http.Request) string { return h.cookie(r, sessionCookie) }
