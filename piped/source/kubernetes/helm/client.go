package helm

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// client downloads files. It sends credentials only to the host they belong to, also after a
// redirect.
type client struct {
	secure, insecure *http.Client
	timeout          time.Duration
}

const (
	maxRedirects = 5
	attempts     = 3                      // per request
	firstPause   = 200 * time.Millisecond // before the first retry; doubles with each
)

// newClient returns a client that uses transport, or the network if transport is nil. Then h
// decides which addresses it may connect to.
func newClient(limits Limits, transport http.RoundTripper, h hosts) *client {
	c := &client{secure: httpClient(false, h), insecure: httpClient(true, h), timeout: limits.Download}
	if transport != nil {
		c.secure.Transport, c.insecure.Transport = transport, transport
	}
	return c
}

func httpClient(insecure bool, h hosts) *http.Client {
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           h.dial,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 30 * time.Second,
		IdleConnTimeout:       15 * time.Second,
		MaxIdleConnsPerHost:   2,
		ForceAttemptHTTP2:     true,
	}
	if insecure {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // chartRepositories[].insecure
	}
	return &http.Client{Transport: retrying{transport}, CheckRedirect: redirect}
}

// redirect implements http.Client.CheckRedirect. It refuses redirects to other schemes and
// from https to http, and removes credentials on redirects to another host.
func redirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	case next.URL.Scheme != "https" && next.URL.Scheme != "http":
		return fmt.Errorf("it redirects to an address of scheme %q", next.URL.Scheme)
	case first.URL.Scheme == "https" && next.URL.Scheme == "http":
		return errors.New("it redirects from https to http")
	}
	if next.URL.Host != first.URL.Host {
		next.Header.Del("Authorization")
		next.Header.Del("Cookie")
	}
	return nil
}

// retrying retries requests without a body, up to three attempts with growing pauses, if there
// is no response, or one of status 429 or 5xx.
type retrying struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	pause := firstPause
	for attempt := 1; ; attempt++ {
		resp, err := t.next.RoundTrip(req)
		passing := err != nil || resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
		if !passing || attempt == attempts || req.Context().Err() != nil || req.Body != nil && req.Body != http.NoBody {
			return resp, err
		}
		if resp != nil {
			_ = resp.Body.Close() // the content is not needed
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-req.Context().Done():
			timer.Stop()
			return nil, context.Cause(req.Context())
		}
		pause *= 2
	}
}

// answer is the result of a download.
type answer struct {
	data []byte
	etag string // the entity tag of data; "" if the server sent none
	same bool   // the content still has the requested entity tag; data is nil
}

// get downloads a file of at most limit bytes. The error is of kind Unavailable if another
// attempt may succeed, else Invalid; if ctx ended, it is the cause.
func (c *client) get(ctx context.Context, address string, how access, limit int64) ([]byte, error) {
	a, err := c.ask(ctx, address, how, limit, "")
	return a.data, err
}

// ask downloads a file as get does, unless its entity tag still equals etag. An empty etag
// always downloads.
func (c *client) ask(ctx context.Context, address string, how access, limit int64, etag string) (answer, error) {
	ctx, stop := context.WithTimeoutCause(ctx, c.timeout, deploy.Errorf(deploy.Unavailable, "it takes longer than %s", c.timeout))
	defer stop()
	shown := withoutSecrets(address)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil || !isWeb(address) {
		return answer{}, deploy.Errorf(deploy.Invalid, "%s: expected an address that begins with https://", shown)
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	if how.username != "" && req.URL.Host == how.host {
		req.SetBasicAuth(how.username, how.password)
	}
	use := c.secure
	if how.insecure && req.URL.Host == how.host {
		use = c.insecure
	}
	resp, err := use.Do(req)
	if err != nil {
		return answer{}, unreachable(ctx, shown, err)
	}
	defer resp.Body.Close()
	if etag != "" && resp.StatusCode == http.StatusNotModified {
		return answer{same: true}, nil
	}
	if err := refused(shown, resp.StatusCode); err != nil {
		return answer{}, err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return answer{}, unreachable(ctx, shown, err)
	}
	if int64(len(data)) > limit {
		return answer{}, deploy.Errorf(deploy.Invalid, "%s has more than %d bytes", shown, limit)
	}
	return answer{data: data, etag: resp.Header.Get("ETag")}, nil
}

// unreachable returns the error for a request without a complete response. shown is its
// address without secrets.
func unreachable(ctx context.Context, shown string, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // without the address, which may contain secrets
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if !deploy.IsKind(err, deploy.Unavailable) {
			return err // the caller canceled the request
		}
	}
	if deploy.IsKind(err, deploy.Invalid) {
		return deploy.Errorf(deploy.Invalid, "%s cannot be reached: %w", shown, err)
	}
	return deploy.Errorf(deploy.Unavailable, "%s cannot be reached: %w", shown, err)
}

// refused returns the error for a response with the given status, nil for 200.
func refused(shown string, status int) error {
	switch {
	case status == http.StatusOK:
		return nil
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return deploy.Errorf(deploy.Invalid,
			"%s refuses the credentials, or wants some (%d): set username and password in chartRepositories or chartRegistries of the piped configuration", shown, status)
	case status == http.StatusNotFound || status == http.StatusGone:
		return deploy.Errorf(deploy.Invalid, "%s does not exist (%d)", shown, status)
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return deploy.Errorf(deploy.Unavailable, "%s answers %d", shown, status)
	}
	return deploy.Errorf(deploy.Invalid, "%s answers %d", shown, status)
}
