package signin

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	limit "github.com/c785c783/piped/piped/bounded"
	"github.com/c785c783/piped/piped/outbound"
)

// Limits of one request to an issuer.
const (
	requestTimeout = 10 * time.Second
	maxResponse    = 1 << 20
)

var (
	errRedirected = errors.New("the issuer redirects the agent, which is not permitted")
)

// newTransport returns a transport that does not connect to metadata services, whose
// addresses a discovery document could name.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: requestTimeout / 2, Control: outbound.NotMetadata}).DialContext
	t.TLSHandshakeTimeout, t.ResponseHeaderTimeout, t.IdleConnTimeout = requestTimeout/2, requestTimeout, 30*time.Second
	t.MaxResponseHeaderBytes = 64 << 10
	return t
}

// newClient returns a client with a time limit, bounded responses and no redirects.
func newClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport:     bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirected },
	}
}

// bounded limits the time of each request, and the bytes of its response. The limit of
// http.Client would need each caller to close the response, which oauth2 does not always do.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	resp, err := b.RoundTripper.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &timedBody{limit.Body(resp.Body, maxResponse), cancel}
	return resp, nil
}

// CloseIdleConnections closes those of the transport.
func (b bounded) CloseIdleConnections() {
	if c, ok := b.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// timedBody is a body whose time limit ends with it.
type timedBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.cancel()
	}
	return n, err
}

// Close ends the time limit, too.
func (b *timedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
