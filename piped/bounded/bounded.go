// Package bounded limits what is read of the answers of servers, so that none of them can fill the
// memory.
package bounded

import (
	"fmt"
	"io"
	"net/http"
)

// Transport returns a transport that limits the bodies of responses to a number of bytes. Reading
// more of one is an error.
func Transport(next http.RoundTripper, bytes int64) http.RoundTripper { return transport{next, bytes} }

type transport struct {
	next  http.RoundTripper
	bytes int64
}

// RoundTrip implements http.RoundTripper.
func (b transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = Body(resp.Body, b.bytes)
	}
	return resp, err
}

// CloseIdleConnections forwards the call of http.Client.
func (b transport) CloseIdleConnections() {
	if t, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Body returns a body that fails after a number of bytes.
func Body(body io.ReadCloser, bytes int64) io.ReadCloser { return &limited{body, bytes, bytes} }

type limited struct {
	io.ReadCloser
	left, limit int64
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return n + int(l.left), fmt.Errorf("the answer has more than %d bytes", l.limit)
	}
	return n, err
}
