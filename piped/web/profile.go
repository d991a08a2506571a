package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Profiler serves Go's profiles of the process below /debug/pprof/, only to clients on
// this machine, since a profile reveals the content of the process.
type Profiler struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
}

// Limits of the profiler's server. There is no write timeout: a profile can take minutes.
const (
	profilerHeader = 5 * time.Second
	profilerIdle   = time.Minute
	profilerHeld   = 64 << 10 // bytes of a header
)

// NewProfiler binds an address, which must be a loopback address; else the error is of kind
// Invalid. A caller that does not call Run must call Close.
func NewProfiler(address string, log *slog.Logger) (*Profiler, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "listen for profiles on %q (debug.pprofAddress): %w", address, err)
	}
	bound, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil || !bound.Addr().IsLoopback() {
		return nil, errors.Join(deploy.Errorf(deploy.Invalid,
			"listen for profiles on %q (debug.pprofAddress): other machines could reach it; use 127.0.0.1:<port>", address), listener.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return &Profiler{listener: listener, log: log, http: &http.Server{
		Handler: local(mux), ReadHeaderTimeout: profilerHeader, IdleTimeout: profilerIdle, MaxHeaderBytes: profilerHeld,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// local rejects requests for another host name, which a browser sends if a web site
// exploits DNS rebinding.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		address, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !address.IsLoopback()) {
			answer(w, http.StatusForbidden, "profiles are served on localhost only")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Addr returns the address the profiler listens on.
func (p *Profiler) Addr() string { return p.listener.Addr().String() }

// Close releases the address of a profiler that was not run; after Run it has no effect.
func (p *Profiler) Close() error {
	if err := p.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, then aborts requests and returns nil. It returns an error if
// serving fails before.
func (p *Profiler) Run(ctx context.Context) error {
	p.log.Info("serving profiles", "address", p.Addr())
	served := make(chan error, 1)
	go func() { served <- p.http.Serve(p.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve profiles on %s: %w", p.Addr(), err)
	case <-ctx.Done():
	}
	if err := p.http.Close(); err != nil {
		p.log.Warn("profile requests were aborted", "error", err)
	}
	<-served
	return nil
}
