package app

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web/page"
	websignin "github.com/c785c783/piped/piped/web/signin"
)

// users is how users sign in and what they may do: the configuration in effect, and what
// applies it.
type users struct {
	access  atomic.Pointer[config.Access]
	issuers *signin.Issuers
	api     *control.Server
	log     *slog.Logger
}

func newUsers(c config.Access, o Options) (*users, error) {
	log := o.Logger.With("component", "sign-in")
	u := &users{issuers: signin.NewIssuers(signin.Options{Now: o.Now, Logger: log}), log: log}
	u.access.Store(&c)
	return u, u.issuers.Set(c)
}

// use puts a configuration into effect. Its client secrets were readable when it was planned.
func (u *users) use(ctx context.Context, c config.Access) {
	if err := u.issuers.Set(c); err != nil {
		u.log.ErrorContext(ctx, "the issuers stay as they were", "error", err)
	}
	if before := u.access.Swap(&c); !sameAccess(*before, c) {
		u.api.SetPolicy(access.NewPolicy(access.RolesOf(c)))
	}
}

func (u *users) sessions() config.Sessions { return u.access.Load().Sessions }

func (u *users) idleTimeout() time.Duration { return u.sessions().IdleTimeout }

// planAccess returns the configuration, and an error if a client secret cannot be read.
func planAccess(c config.Access) (config.Access, error) {
	for _, issuer := range c.Issuers {
		if _, err := issuer.Load(); err != nil {
			return c, err
		}
	}
	return c, nil
}

// sameAccess compares configurations, without the lines at which roles stand.
func sameAccess(a, b config.Access) bool {
	for _, c := range []*config.Access{&a, &b} {
		c.Roles = slices.Clone(c.Roles)
		for i := range c.Roles {
			c.Roles[i].Position = ""
		}
	}
	return reflect.DeepEqual(a, b)
}

// addSignIn adds the components of sign-in and returns the handler of its pages.
func (a *App) addSignIn(o Options, st *store.Store, u *users) *websignin.Handler {
	a.parts.add("issuers", func(ctx context.Context) error { u.issuers.Run(ctx); return nil })
	groups := &signin.Rereader{
		Sessions: groupSessions{st}, Issuers: u.issuers, Interval: func() time.Duration { return u.sessions().GroupsInterval }, Now: o.Now, Logger: u.log,
	}
	a.parts.add("groups of users", func(ctx context.Context) error { groups.Run(ctx); return nil })
	return websignin.New(websignin.Config{
		ExternalURL: func() string { return u.access.Load().ExternalURL }, Issuers: u.issuers, Keys: keyFinder{u.api.Authenticator()}, States: st, Audit: st,
		Sessions: access.Sessions{Store: st, MaxAge: func() time.Duration { return u.sessions().MaxAge }, Now: o.Now, Rand: rand.Reader},
		Now:      o.Now, Rand: rand.Reader, Logger: u.log, Style: page.StyleSheet(),
	})
}

// protectedPages are the sign-in pages for requests that are as protected as calls of the API.
type protectedPages struct {
	*websignin.Handler
	refuse func(*http.Request) error
}

// ServeHTTP implements http.Handler.
func (p protectedPages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.refuse(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	p.Handler.ServeHTTP(w, r)
}

// newPage returns the page: a client of the API with the session of a browser.
func (a *App) newPage(o Options, pages *websignin.Handler) *page.Handler {
	return page.New(page.Config{
		Conn: a.api.Conn(), Token: pages.Token, Refuse: a.api.RefuseHTTP, Secure: pages.Secure, Now: o.Now, Logger: o.Logger.With("component", "page"),
	})
}

// withSession passes the session in a browser's cookie to the API, unless the request has
// credentials of its own. The web server rejects requests from other origins before.
func withSession(pages *websignin.Handler, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := pages.Token(r); token != "" && r.Header.Get("Authorization") == "" {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", string(access.SchemeSession)+" "+token)
		}
		api.ServeHTTP(w, r)
	})
}

// groupSessions and keyFinder adapt the store and the authenticator to sign-in.
type (
	groupSessions struct{ *store.Store }
	keyFinder     struct{ auth *access.Authenticator }
)

// sessionsPerPage is how many sessions are read from the store at a time.
const sessionsPerPage = 100

// OpenSessions implements signin.Sessions.
func (s groupSessions) OpenSessions(ctx context.Context, cursor string) (page []deploy.Session, next string, err error) {
	return s.Sessions(ctx, store.SessionQuery{OpenOnly: true, Limit: sessionsPerPage, Cursor: cursor})
}

// FindKey implements websignin.Keys. Attempts are limited by the caller.
func (f keyFinder) FindKey(ctx context.Context, key string) (access.Caller, error) {
	return f.auth.Find(ctx, access.SchemeKey, key, func() error { return nil })
}
