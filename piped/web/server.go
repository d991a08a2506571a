// Package web is the agent's HTTP server. It serves liveness, readiness, metrics, the HTTP
// API, and the webhooks by which Git hosts announce pushes. Readiness, metrics, the API and
// the handling of announced repositories are functions of other packages, passed in Config.
// Neither its own responses nor logs contain what a sender sent.
//
// Tests pass the address 127.0.0.1:0 to New and get the bound one from Addr.
package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
)

// limits restrict the resources that clients can occupy.
type limits struct {
	header      time.Duration // to receive the header
	read        time.Duration // to receive the whole request
	write       time.Duration // from the end of the header to the end of the response
	idle        time.Duration // between two requests on a connection
	headerBytes int
	streams     int   // concurrent requests of an HTTP/2 connection
	body        int64 // bytes of a webhook delivery
	deliveries  int   // webhook deliveries read concurrently
	perAddress  int   // of these, from one address
	small       int64 // bytes of a request to the API that does not count as a delivery

	// Minimal rate of a delivery, in bytes per second, after the slack.
	rate  int64
	slack time.Duration
}

// defaultLimits allows deliveries of 25 MiB, GitHub's maximum. Hosts wait at most 30 s for
// a response, most of them 10 s.
func defaultLimits() limits {
	return limits{
		header: 5 * time.Second, read: 30 * time.Second, write: 40 * time.Second, idle: time.Minute,
		headerBytes: 64 << 10, streams: 100, body: 25 << 20, deliveries: 8, perAddress: 4, small: 64 << 10, rate: 16 << 10, slack: 3 * time.Second,
	}
}

// Config holds the settings and dependencies of New.
type Config struct {
	// Address is the host:port to listen on. Port 0 picks a free one.
	Address string
	// Listen, if set, returns the listener on Address; by default it is bound.
	Listen func() (net.Listener, error)
	// Certificate holds the files for TLS and for client certificates; without
	// files the server speaks plain HTTP.
	Certificate certificate.Files
	// Ready returns nil if the agent is ready, else the reason without secrets. It
	// must be fast and safe for concurrent use; nil means always ready.
	Ready func() error
	// Metrics serves GET /metrics; nil means there are none.
	Metrics http.Handler
	// API serves what is below /api/v1/, without that prefix; nil means there is none. It
	// must limit the size of requests. Its responses can take any time.
	API http.Handler
	// SignIn serves the paths in SignIn.Patterns(); nil means there are none.
	SignIn Pages
	// Page serves the paths in Page.Patterns(); nil means there are none. Its responses can
	// take any time.
	Page Pages
	// Poll schedules a fetch of the repository. It must not block and be safe for
	// concurrent use. Optional.
	Poll func(repoID string)
	// Preview requests a plan preview of a pull request. It must not wait for the
	// result and be safe for concurrent use; on an error the sender is asked to
	// retry. Optional.
	Preview func(ctx context.Context, repoID string, p githost.Proposal) error
	// Deliveries counts deliveries to webhooks. Optional.
	Deliveries DeliveryMetrics
	Logger     *slog.Logger
	// Grace limits how long Run waits for running requests; default 5 s.
	Grace time.Duration
}

// Pages serve some paths to browsers.
type Pages interface {
	http.Handler
	Patterns() []string
}

// Server is the HTTP server. Its methods are safe for concurrent use.
type Server struct {
	listener net.Listener
	http     *http.Server
	hooks    *hooks
	log      *slog.Logger
	grace    time.Duration
	secure   bool
	identity certificate.Holder // only with TLS
}

// New binds the address, so that a used port or an unreadable certificate is reported at
// once. A caller that does not call Run must call Close. There are no webhooks until
// SetWebhooks is called.
func New(cfg Config) (*Server, error) { return newServer(cfg, defaultLimits()) }

func newServer(cfg Config, l limits) (*Server, error) {
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	if cfg.Listen == nil {
		cfg.Listen = func() (net.Listener, error) { return net.Listen("tcp", cfg.Address) }
	}
	if cfg.Poll == nil {
		cfg.Poll = func(string) {}
	}
	if cfg.Preview == nil {
		cfg.Preview = func(context.Context, string, githost.Proposal) error { return nil }
	}
	if cfg.Deliveries == nil {
		cfg.Deliveries = noMetrics{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Grace <= 0 {
		cfg.Grace = 5 * time.Second
	}
	cfg.Certificate.Section = "web"
	identity, err := cfg.Certificate.Load()
	if err != nil {
		return nil, err
	}
	listener, err := cfg.Listen()
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "listen for HTTP on %q (web.address): %w", cfg.Address, err)
	}
	hooks := newHooks(cfg, l)
	s := &Server{
		listener: listener, hooks: hooks, log: cfg.Logger, grace: cfg.Grace, secure: identity != nil,
		http: &http.Server{
			Handler:           routes(cfg, l, hooks),
			ReadHeaderTimeout: l.header, ReadTimeout: l.read, WriteTimeout: l.write, IdleTimeout: l.idle,
			MaxHeaderBytes: l.headerBytes,
			HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: l.streams, SendPingTimeout: l.idle, PingTimeout: l.header, WriteByteTimeout: l.write},
			ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		},
	}
	if s.secure {
		s.identity.Set(identity)
		s.listener = tls.NewListener(listener, s.identity.Config("h2", "http/1.1"))
	}
	return s, nil
}

func routes(cfg Config, l limits, hooks http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /webhooks/{name}", hooks)
	mux.HandleFunc("/webhooks/{name}", func(w http.ResponseWriter, _ *http.Request) { // not an unknown view of the page
		w.Header().Set("Allow", http.MethodPost)
		answer(w, http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed))
	})
	if cfg.Metrics != nil {
		mux.Handle("GET /metrics", cfg.Metrics)
	}
	if cfg.API != nil {
		mux.Handle(apiPrefix+"/", newAPI(cfg.API, l))
	}
	if cfg.SignIn != nil {
		for _, pattern := range cfg.SignIn.Patterns() {
			mux.Handle(pattern, cfg.SignIn)
		}
	}
	if cfg.Page != nil {
		for _, pattern := range cfg.Page.Patterns() {
			mux.Handle(pattern, unhurried(cfg.Page, l.write))
		}
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := cfg.Ready(); err != nil {
			answer(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	return mux
}

// answer writes one line of text. Write errors are ignored: the client is gone.
func answer(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, line+"\n")
}

// Addr returns the address the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Secure reports whether the server speaks TLS.
func (s *Server) Secure() bool { return s.secure }

// SetIdentity replaces the certificate for new connections. A server without TLS ignores
// it.
func (s *Server) SetIdentity(i *certificate.Identity) { s.identity.Set(i) }

// Close releases the address of a server that was not run; after Run it has no effect.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, then waits for running requests within the grace period,
// aborts the rest and returns nil. It returns an error if serving fails before.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("serving HTTP", "address", s.Addr(), "tls", s.secure)
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve HTTP on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := s.http.Shutdown(end); err != nil {
		err = errors.Join(err, s.http.Close())
		s.log.Warn("HTTP requests were aborted", "error", err)
	}
	<-served
	return nil
}
