package signin

import (
	"context"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/access/signin"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ratelimit"
)

// Sessions opens and ends the sessions of users.
type Sessions interface {
	// Open opens a session and returns its token. Of s it uses User, KeyID, Refresh, Remote and
	// Client, and returns the others. The error is of kind Denied if the user or key was disabled.
	// Refresh is a secret, and encrypted at rest.
	Open(ctx context.Context, s deploy.Session) (token string, opened deploy.Session, err error)
	// End ends the session with a token, and returns it. NotFound: there is no such open session.
	End(ctx context.Context, token string) (deploy.Session, error)
}

// Keys recognises API keys.
type Keys interface {
	// FindKey returns the caller with a key. It takes the same time whether the key's ID exists or
	// not. The error is of kind Unavailable only if the store cannot be read.
	FindKey(ctx context.Context, key string) (access.Caller, error)
}

// States stores what must be used once, for all replicas.
type States interface {
	// PutSignInState stores a payload under a hash until a time. The payload is a secret, and
	// encrypted at rest.
	PutSignInState(ctx context.Context, hash, payload []byte, expires time.Time) error
	// TakeSignInState removes and returns a payload. One of concurrent calls gets it. NotFound: it
	// was taken, has expired, or never was.
	TakeSignInState(ctx context.Context, hash []byte) (payload []byte, err error)
}

// Audit records sign-ins and sign-outs.
type Audit interface {
	AppendAudit(ctx context.Context, records ...deploy.AuditRecord) error
}

// Config holds the dependencies of New. All but Style are required.
type Config struct {
	// ExternalURL returns the configured address of the web server; "" if there is none.
	ExternalURL func() string
	Issuers     *signin.Issuers
	Sessions    Sessions
	Keys        Keys
	States      States
	Audit       Audit
	Now         func() time.Time
	Rand        io.Reader // crypto/rand.Reader
	Logger      *slog.Logger
	Style       string // address of a style sheet of this server; optional
}

// Handler serves /sign-in, the paths below it, and /sign-out. It is safe for concurrent use.
type Handler struct {
	config   Config
	tickets  tickets
	attempts *ratelimit.Limiter // by network
	failures *rate.Limiter      // failed sign-ins in the audit log; the log has all
	routes   http.Handler
	pages    *template.Template
}

// Limits of the attempts of one network, and of the failed ones of all networks in the audit
// log; the log has every one.
const (
	attemptsPerSecond = 1
	attemptsAtOnce    = 30
	failuresEvery     = 10 * time.Second
	failuresAtOnce    = 100
)

// New returns a handler.
func New(c Config) *Handler {
	h := &Handler{config: c, tickets: tickets{c.States, c.Rand, c.Now}, attempts: ratelimit.New(attemptsPerSecond, attemptsAtOnce, c.Now), failures: rate.NewLimiter(rate.Every(failuresEvery), failuresAtOnce), pages: parsePages(c.Style)}
	h.routes = h.protected(h.mux())
	return h
}

// Patterns are what a server passes to the handler.
func (h *Handler) Patterns() []string { return []string{"/sign-in", "/sign-in/", "/sign-out"} }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.routes.ServeHTTP(w, r) }

func (h *Handler) mux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sign-in", h.choose)
	mux.HandleFunc("GET /sign-in/{issuer}", h.limited(h.begin))
	mux.HandleFunc("GET /sign-in/{issuer}/callback", h.limited(h.callback))
	mux.HandleFunc("POST /sign-in/key", h.limited(h.key))
	mux.HandleFunc("POST /sign-in/link/new", h.limited(asJSON(h.makeLink)))
	mux.HandleFunc("GET /sign-in/link/use", h.showLink)
	mux.HandleFunc("POST /sign-in/link/use", h.limited(h.useLink))
	mux.HandleFunc("POST /sign-in/confirm", h.limited(h.confirm))
	mux.HandleFunc("POST /sign-in/token", h.limited(asJSON(h.token)))
	mux.HandleFunc("POST /sign-in/device", h.limited(asJSON(h.device)))
	mux.HandleFunc("POST /sign-in/device/token", h.limited(asJSON(h.deviceToken)))
	mux.HandleFunc("POST /sign-out", h.limited(h.signOut))
	return mux
}

// maxBody limits the bytes of a form or of JSON.
const maxBody = 16 << 10

// protected adds the headers and checks of every route.
func (h *Handler) protected(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.say(w, http.StatusForbidden, "This request came from another site", "It was refused. Go to the sign-in page and try again.")
	}))
	checked := crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy("'self'"))
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "same-origin") // no-referrer would hide the origin of forms
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		checked.ServeHTTP(w, r)
	})
}

// policy returns the Content-Security-Policy: no scripts, no frames, and forms only to some
// targets.
func policy(forms string) string {
	return "default-src 'none'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action " + forms
}

// limited restricts the attempts of a network.
func (h *Handler) limited(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := h.attempts.Take(ratelimit.Network(address(r.RemoteAddr))); !ok {
			w.Header().Set("Retry-After", "30")
			if isJSON(r) {
				refuse(w, http.StatusTooManyRequests, "slow_down", "too many sign-ins from this network: retry later")
				return
			}
			h.say(w, http.StatusTooManyRequests, "Too many sign-ins", "There were too many sign-ins from your network. Wait a minute and try again.")
			return
		}
		next(w, r)
	}
}

func (h *Handler) externalURL() string { return h.config.ExternalURL() }

// who is a user who has signed in and has no session yet.
type who struct {
	User    deploy.User `json:"user"`
	KeyID   string      `json:"key,omitempty"`
	Refresh []byte      `json:"refresh,omitempty"`
}

// Clients that sign in, as stored in sessions.
const (
	clientPage = "page"
	clientCLI  = "pipectl"
)

// open opens a session and records that.
func (h *Handler) open(r *http.Request, user who, client string) (token string, s deploy.Session, err error) {
	token, s, err = h.config.Sessions.Open(r.Context(), deploy.Session{
		User: user.User, KeyID: user.KeyID, Refresh: user.Refresh, Remote: address(r.RemoteAddr), Client: client,
	})
	if err != nil {
		return "", s, err
	}
	h.config.Logger.InfoContext(r.Context(), "signed in", "subject", s.User.Subject, "issuer", s.User.Issuer, "session", s.ID, "client", client, "from", r.RemoteAddr)
	h.record(r, deploy.AuditRecord{Method: methodSignIn, Subject: user.User.Subject, Issuer: user.User.Issuer, CallerID: s.ID, Session: true, Code: "OK"})
	return token, s, nil
}

// Methods of audit records.
const (
	methodSignIn  = "SignIn"
	methodSignOut = "SignOut"
	methodLink    = "CreateSignInLink"
)

// record completes an audit record and records it.
func (h *Handler) record(r *http.Request, a deploy.AuditRecord) {
	a.At, a.Remote = h.config.Now(), address(r.RemoteAddr)
	if err := h.config.Audit.AppendAudit(context.WithoutCancel(r.Context()), a); err != nil {
		h.config.Logger.ErrorContext(r.Context(), "cannot write the audit log", "method", a.Method, "subject", a.Subject, "code", a.Code, "error", err)
	}
}

// refused records a failed sign-in. The log has the reason, the response does not.
func (h *Handler) refused(r *http.Request, err error) (reference string) {
	reference, randomErr := signin.NewToken(h.config.Rand)
	if randomErr == nil {
		reference = reference[:8]
	}
	code := "Unauthenticated"
	if deploy.IsKind(err, deploy.Unavailable) {
		code = "Unavailable"
	}
	h.config.Logger.WarnContext(r.Context(), "sign-in failed", "reference", reference, "from", r.RemoteAddr, "path", r.URL.EscapedPath(), "error", err)
	if h.failures.AllowN(h.config.Now(), 1) { // callers without credentials cannot fill the store
		h.record(r, deploy.AuditRecord{Method: methodSignIn, Code: code, Reason: err.Error(), Issuer: r.PathValue("issuer")})
	}
	return reference
}
