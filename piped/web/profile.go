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

// Profiler serves Go's profiles of the process below /debug/pprof/, to this machine
// only: a profile shows what the process holds. Nothing else is served there.
type Profiler struct {
	listener net.Listener
	http     *http.Server
	log      *slog.Logger
}

// Limits of the profiler. A profile may be asked for over minutes.
const (
	profilerHeader = 5 * time.Second
	profilerIdle   = time.Minute
	profilerHeld   = 64 << 10 // bytes of a header
)

// NewProfiler binds an address, which must be of loopback: the error is of kind Invalid
// otherwise. Whoever does not come to call Run calls Close.
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

// local refuses what a browser was led to ask by another site: such requests name
// another host.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		address, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !address.IsLoopback()) {
			answer(w, http.StatusForbidden, "profiles are for this machine only: ask for localhost")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Addr returns the address the profiler listens on.
func (p *Profiler) Addr() string { return p.listener.Addr().String() }

// Close releases the address of a profiler that was never run; after Run it does
// nothing.
func (p *Profiler) Close() error {
	if err := p.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, then cuts off what is being asked and returns nil. It
// returns an error if serving fails before.
func (p *Profiler) Run(ctx context.Context) error {
	p.log.Info("profiles are served", "address", p.Addr())
	served := make(chan error, 1)
	go func() { served <- p.http.Serve(p.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve profiles on %s: %w", p.Addr(), err)
	case <-ctx.Done():
	}
	if err := p.http.Close(); err != nil {
		p.log.Warn("profiles were cut off", "error", err)
	}
	<-served
	return nil
}
