package page

import (
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Config holds the dependencies of New. Conn and Token are required.
type Config struct {
	// Conn is a connection to the API. Calls have the session of a browser as metadata, and its
	// address as the peer of their context.
	Conn grpc.ClientConnInterface
	// Token returns the session token of a request; "" if it has none.
	Token func(*http.Request) string
	// Refuse returns why a request is not served, such as because it is not encrypted;
	// default: every request is served.
	Refuse func(*http.Request) error
	// Secure reports whether the cookies of a request are for encrypted connections only;
	// default: whether the request itself is encrypted.
	Secure func(*http.Request) bool
	Now    func() time.Time // default time.Now
	Logger *slog.Logger     // default: nothing is logged
	// LiveWait is how long a view waits for live states that it can do without; default 2 s.
	LiveWait time.Duration
}

// Handler serves the page. It is safe for concurrent use.
type Handler struct {
	config  Config
	control controlv1.ControlServiceClient
	api     apiservice.APIServiceClient
	assets  *assets
	rooms   rooms
	handler http.Handler
	shown   shownParts
	silent  silentClusters
}

// New returns a handler.
func New(c Config) *Handler {
	if c.Refuse == nil {
		c.Refuse = func(*http.Request) error { return nil }
	}
	if c.Secure == nil {
		c.Secure = func(r *http.Request) bool { return r.TLS != nil }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.LiveWait <= 0 {
		c.LiveWait = liveWait
	}
	h := &Handler{config: c, control: controlv1.NewControlServiceClient(c.Conn), api: apiservice.NewAPIServiceClient(c.Conn), assets: newAssets()}
	h.handler = h.protected(h.mux())
	return h
}

// Patterns are what a server passes to the handler.
func (h *Handler) Patterns() []string {
	patterns := []string{"GET " + assetPrefix}
	for _, r := range routes() {
		patterns = append(patterns, r.pattern)
	}
	return patterns
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }

func (h *Handler) mux() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET "+assetPrefix, h.assets)
	for _, r := range routes() {
		mux.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { h.serve(w, req, r) })
	}
	return mux
}

// policy is the Content-Security-Policy: no code and no style but the assets, nothing from
// other hosts, no frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// maxForm limits the bytes of a form.
const maxForm = 256 << 10

// protected adds the headers and checks of every route.
func (h *Handler) protected(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "This request came from another site and was refused.", http.StatusForbidden)
	}))
	checked := crossOrigin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "same-origin") // no-referrer would hide the origin of forms
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if err := h.config.Refuse(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		checked.ServeHTTP(w, r)
	})
}
