// Package web is the agent's HTTP server: whether the process is alive, whether
// it is ready for work, its metrics, and the webhooks by which Git hosts announce
// pushes. It owns the web address and nothing behind it: what ready means is asked
// of a function it is given, what the metrics are of a handler, and what was pushed
// is looked up by whoever watches the repository. It never shows or logs what a
// sender sent.
//
// To test with it, give New the address 127.0.0.1:0 and ask Addr where it
// listens.
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

// limits bound what a client can hold of the agent.
type limits struct {
	header      time.Duration // to send the header in
	read        time.Duration // to send the whole request in
	write       time.Duration // to be answered in, counted from the header's end
	idle        time.Duration // between two requests of a connection
	headerBytes int
	body        int64 // bytes of a webhook delivery
	deliveries  int   // webhook deliveries being read at once
	perAddress  int   // and of those, from one address

	// A delivery must arrive at this rate, in bytes a second, but for the slack.
	rate  int64
	slack time.Duration
}

// defaultLimits are made for deliveries of 25 MiB, the most GitHub sends. No
// host waits longer than 30 s for an answer, most wait 10 s.
func defaultLimits() limits {
	return limits{
		header: 5 * time.Second, read: 30 * time.Second, write: 40 * time.Second, idle: time.Minute,
		headerBytes: 64 << 10, body: 25 << 20, deliveries: 8, perAddress: 4, rate: 16 << 10, slack: 3 * time.Second,
	}
}

// Config is what New needs.
type Config struct {
	// Address is where to listen, as host:port. Port 0 picks a free one.
	Address string
	// Certificate is that of TLS, and of clients that it is asked for; nothing is
	// named for plain HTTP.
	Certificate certificate.Files
	// Ready returns nil while the agent is ready for work, and otherwise why it
	// is not, without secrets. It must be quick and safe for concurrent use;
	// nil means always ready.
	Ready func() error
	// Metrics answers GET /metrics; nil means that there are none.
	Metrics http.Handler
	// Look has the repository of that ID looked at soon. It must return at once
	// and be safe for concurrent use; nil means that nobody looks.
	Look func(repoID string)
	// Preview has it told what a pull request of the repository of that ID would
	// deploy. It must not wait for that and be safe for concurrent use; an error makes
	// the sender come again. Nil means that nobody is told.
	Preview func(ctx context.Context, repoID string, p githost.Proposal) error
	// Observer is told of deliveries to webhooks; nil: nobody is.
	Observer Observer
	Logger   *slog.Logger
	// Grace bounds how long Run waits for requests to end; default 5 s.
	Grace time.Duration
}

// Server is the HTTP server. Its methods are safe for concurrent use.
type Server struct {
	listener net.Listener
	http     *http.Server
	hooks    *hooks
	log      *slog.Logger
	grace    time.Duration
	secure   bool
	identity certificate.Holder // empty without TLS
}

// New binds the address, so that a port in use and a certificate that cannot be read
// are known at once. A caller that does not call Run calls Close. There are no webhooks until SetWebhooks.
func New(cfg Config) (*Server, error) { return newServer(cfg, defaultLimits()) }

func newServer(cfg Config, l limits) (*Server, error) {
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	if cfg.Look == nil {
		cfg.Look = func(string) {}
	}
	if cfg.Preview == nil {
		cfg.Preview = func(context.Context, string, githost.Proposal) error { return nil }
	}
	if cfg.Observer == nil {
		cfg.Observer = silent{}
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
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "listen for HTTP on %q (web.address): %w", cfg.Address, err)
	}
	hooks := newHooks(cfg, l)
	s := &Server{
		listener: listener, hooks: hooks, log: cfg.Logger, grace: cfg.Grace, secure: identity != nil,
		http: &http.Server{
			Handler:           routes(cfg.Ready, cfg.Metrics, hooks),
			ReadHeaderTimeout: l.header, ReadTimeout: l.read, WriteTimeout: l.write, IdleTimeout: l.idle,
			MaxHeaderBytes: l.headerBytes,
			ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		},
	}
	if s.secure { // HTTP/1.1 within TLS, too: the limits of connections are those of requests
		s.identity.Set(identity)
		s.listener = tls.NewListener(listener, s.identity.Config())
	}
	return s, nil
}

func routes(ready func() error, metrics, hooks http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /webhooks/{name}", hooks)
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			answer(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		answer(w, http.StatusOK, "ok")
	})
	return mux
}

// answer writes one line of text. A client that is gone cannot be told.
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

// SetIdentity replaces the identity for the connections that come from now on;
// those that are open stay. A server without TLS ignores it.
func (s *Server) SetIdentity(i *certificate.Identity) { s.identity.Set(i) }

// Close releases the address of a server that was never run; after Run it does
// nothing.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, then lets requests end within the grace period,
// cuts off the rest and returns nil. It returns an error if serving fails
// before.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("HTTP is served", "address", s.Addr(), "tls", s.secure)
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
		s.log.Warn("HTTP requests were cut off", "error", err)
	}
	<-served
	return nil
}
