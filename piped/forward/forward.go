// Package forward passes TCP connections on to another process: a standby has the same addresses
// as the agent that works, whatever the protocol and its certificates. It hands the addresses over
// to a server of this process and back without freeing them.
package forward

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	maxConnections = 1024 // further ones are closed at once
	dialTimeout    = 5 * time.Second
)

// Forwarder accepts connections on an address, and passes them on or gives them to the listener of this
// process. Without both it closes them at once. It is safe for concurrent use.
type Forwarder struct {
	listener net.Listener
	log      *slog.Logger
	running  sync.WaitGroup
	slots    chan struct{}
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc

	mu     sync.Mutex
	target target
	local  *local // nil for none
}

// target is where connections lead. They end when it is replaced.
type target struct {
	address string // host:port; "" for nowhere
	ctx     context.Context
	end     context.CancelFunc
}

// Listen begins to accept connections. The caller closes the Forwarder.
func Listen(address string, log *slog.Logger) (*Forwarder, error) {
	return listen(address, log, maxConnections)
}

func listen(address string, log *slog.Logger, connections int) (*Forwarder, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "listen on %q: %w", address, err)
	}
	f := &Forwarder{listener: listener, log: log, slots: make(chan struct{}, connections)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.target = target{"", f.ctx, func() {}}
	f.running.Go(f.accept)
	return f, nil
}

// Addr returns the address on which it listens.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// SetTarget sets where connections lead; "" for nowhere. Those to another target end.
func (f *Forwarder) SetTarget(address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if address != f.target.address {
		f.lead(address)
	}
}

// lead ends the connections that are passed on, and has further ones lead to an address.
func (f *Forwarder) lead(address string) {
	f.target.end()
	ctx, end := context.WithCancel(f.ctx)
	f.target = target{address, ctx, end}
}

// Accept returns a listener of this process, which gets all connections until it is closed: those that
// are passed on end, so that their clients connect again. The error is Conflict if there is one already.
func (f *Forwarder) Accept() (net.Listener, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local != nil {
		return nil, deploy.Errorf(deploy.Conflict, "connections to %s are already accepted", f.Addr())
	}
	f.local = &local{forwarder: f, connections: make(chan net.Conn), closed: make(chan struct{})}
	f.lead(f.target.address)
	return f.local, nil
}

// local is a listener that has no address of its own.
type local struct {
	forwarder   *Forwarder
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

// Accept implements net.Listener.
func (l *local) Accept() (net.Conn, error) {
	select {
	case conn := <-l.connections:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-l.forwarder.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Further connections are passed on again.
func (l *local) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = nil
		close(l.closed)
		l.forwarder.mu.Lock()
		defer l.forwarder.mu.Unlock()
		l.forwarder.local = nil
	})
	return err
}

// Addr implements net.Listener.
func (l *local) Addr() net.Addr { return l.forwarder.listener.Addr() }

// take gives a connection to the listener of this process, if there is one.
func (f *Forwarder) take(client net.Conn) bool {
	f.mu.Lock()
	to := f.local
	f.mu.Unlock()
	if to == nil {
		return false
	}
	select {
	case to.connections <- client:
		return true
	case <-to.closed:
		return false
	case <-f.ctx.Done():
		return false
	}
}

// Close frees the address and ends all connections that are passed on.
func (f *Forwarder) Close() error {
	f.cancel()
	err := f.listener.Close()
	f.running.Wait()
	return err
}

func (f *Forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			f.log.Warn("cannot accept a connection; trying again", "error", err)
			select {
			case <-f.ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		if f.take(client) {
			continue
		}
		select {
		case f.slots <- struct{}{}:
			f.running.Go(func() {
				defer func() { <-f.slots }()
				f.serve(client)
			})
		default:
			_ = client.Close() // nothing was sent
		}
	}
}

// serve passes one connection on until both ends are done or Close is called.
func (f *Forwarder) serve(client net.Conn) {
	defer client.Close()
	f.mu.Lock()
	to := f.target
	f.mu.Unlock()
	if to.address == "" {
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(to.ctx, "tcp", to.address)
	if err != nil {
		f.log.Debug("cannot reach the active agent", "address", to.address, "error", err)
		return
	}
	defer server.Close()
	if f.isOwn(server) || isLoopback(server.RemoteAddr()) && !isLoopback(client.RemoteAddr()) {
		return // a loop, or a client that would be taken for one of this machine
	}
	defer context.AfterFunc(to.ctx, func() { _, _ = client.Close(), server.Close() })() // copies end with an error
	var copying sync.WaitGroup
	copying.Go(func() { pass(server, client) })
	copying.Go(func() { pass(client, server) })
	copying.Wait()
}

// isOwn reports whether a connection leads to this Forwarder.
func (f *Forwarder) isOwn(conn net.Conn) bool {
	local, remote := addressOf(conn.LocalAddr()), addressOf(conn.RemoteAddr())
	return local.Addr() == remote.Addr() && remote.Port() == addressOf(f.listener.Addr()).Port()
}

func isLoopback(a net.Addr) bool { return addressOf(a).Addr().IsLoopback() }

func addressOf(a net.Addr) netip.AddrPort {
	tcp, _ := a.(*net.TCPAddr)
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// pass copies what from sends to another connection, and its end. If that fails, nothing more can
// be received either.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil {
		_, _ = to.Close(), from.Close() // the other direction ends, too
	}
}
