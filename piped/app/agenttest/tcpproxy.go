package agenttest

import (
	"io"
	"net"
	"sync"
)

// TCPProxy passes connections on to an address. While it is silent it holds back every byte, as a
// network that drops packets, and delivers them late.
type TCPProxy struct {
	Address string

	target   string
	listener net.Listener
	running  sync.WaitGroup

	gate

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
}

// ServeTCP starts a proxy on loopback. The caller closes it.
func ServeTCP(target string) (*TCPProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &TCPProxy{Address: l.Addr().String(), target: target, listener: l, conns: map[net.Conn]bool{}}
	p.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			p.running.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

// Close ends all connections.
func (p *TCPProxy) Close() error {
	err := p.listener.Close()
	p.Speak()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close() // both ends see it
	}
	p.mu.Unlock()
	p.running.Wait()
	return err
}

// serve passes on one connection, until one of its ends closes it.
func (p *TCPProxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return // as a server that is down
	}
	defer server.Close()
	if !p.track(client, server) {
		return
	}
	defer p.untrack(client, server)
	var back sync.WaitGroup
	back.Go(func() {
		p.copy(client, server)
		_ = client.Close()
	})
	p.copy(server, client)
	_ = server.Close()
	back.Wait()
}

func (p *TCPProxy) copy(to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.wait()
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// track has Close end connections. It reports false if Close has begun: the caller ends them then.
func (p *TCPProxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	for _, c := range conns {
		p.conns[c] = true
	}
	return true
}

func (p *TCPProxy) untrack(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}
