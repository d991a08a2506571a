package agenttest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// APIProxy is a proxy for a cluster's API server, on plain HTTP at loopback, and reports
// every request. It can stop forwarding, as a network that drops packets, and break the
// watches that go through it.
type APIProxy struct {
	URL string

	server    *http.Server
	transport http.RoundTripper
	done      chan struct{}
	handlers  sync.WaitGroup
	ending    sync.Mutex // guards ended
	ended     bool       // no handler begins any more

	gate
	watches watches
}

// ServeAPI starts a proxy for the cluster of a kubeconfig, with that file's rights. seen
// is called with each request before it is forwarded, by several goroutines; nil is
// allowed. The caller closes the proxy.
func ServeAPI(kubeconfig string, seen func(*http.Request)) (*APIProxy, error) {
	return ServeAPIAnswers(kubeconfig, seen, nil)
}

// ServeAPIAnswers is ServeAPI, with answered called with each response before it is
// returned; nil is allowed.
func ServeAPIAnswers(kubeconfig string, seen func(*http.Request), answered func(*http.Response)) (*APIProxy, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &APIProxy{URL: "http://" + listener.Addr().String(), transport: transport, done: make(chan struct{})}
	quiet := log.New(io.Discard, "", 0) // clients that are killed break connections
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      quiet,
		ModifyResponse: func(resp *http.Response) error {
			if answered != nil {
				answered(resp)
			}
			return nil
		},
	}
	p.server = &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.begin() {
			panic(http.ErrAbortHandler) // no answer
		}
		defer p.handlers.Done()
		if seen != nil {
			seen(r)
		}
		if r.Method != http.MethodGet { // what a client has sent arrives, also when the client is gone
			ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
			defer cancel()
			r = r.WithContext(ctx)
		}
		p.watches.serve(w, r, forward)
	})}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(gatedListener{listener, p}) // ends with Close
	}()
	return p, nil
}

// Kubeconfig writes a kubeconfig for the proxy below dir and returns its path.
func (p *APIProxy) Kubeconfig(dir string) (string, error) {
	path := filepath.Join(dir, "proxied-kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: proxy, cluster: {server: %q}}]
contexts: [{name: proxy, context: {cluster: proxy, user: nobody}}]
users: [{name: nobody}]
current-context: proxy
`, p.URL)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// Close cuts all connections and waits until the proxy has stopped.
func (p *APIProxy) Close() error {
	p.Speak()
	err := p.server.Close()
	<-p.done
	p.ending.Lock()
	p.ended = true
	p.ending.Unlock()
	p.handlers.Wait()
	utilnet.CloseIdleConnectionsFor(p.transport)
	return err
}

// begin counts a handler, or reports that the proxy has ended: a request may have been read before that.
func (p *APIProxy) begin() bool {
	p.ending.Lock()
	defer p.ending.Unlock()
	if p.ended {
		return false
	}
	p.handlers.Add(1)
	return true
}

// gatedListener returns connections that pause while their proxy is silent.
type gatedListener struct {
	net.Listener
	proxy *APIProxy
}

func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return gatedConn{c, l.proxy}, nil
}

type gatedConn struct {
	net.Conn
	proxy *APIProxy
}

func (c gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.proxy.wait()
	return n, err
}

func (c gatedConn) Write(b []byte) (int, error) {
	c.proxy.wait()
	return c.Conn.Write(b)
}
