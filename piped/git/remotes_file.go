package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

const maxFileRedirects = 5

// File returns the content, at most limit bytes, at an http or https address of an allowed
// host. It sends no credentials. The error is of kind Invalid if the host is not allowed, the
// server rejects the request or the file is too large, and Unavailable if a later attempt may
// succeed.
func (r *Remotes) File(ctx context.Context, file string, limit int64) ([]byte, error) {
	u, err := url.Parse(file)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, deploy.Errorf(deploy.Invalid, "expected the address of a file, https://host/path, without a user")
	}
	a, err := parseAddress(file)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%w", err)
	}
	if err := r.hostAllowed(a); err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeoutCause(ctx, r.cfg.Timeout, deploy.Errorf(deploy.Unavailable, "it takes longer than %s", r.cfg.Timeout))
	defer stop()
	client := r.fileClient()
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, file, nil)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "expected the address of a file, https://host/path")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fileError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		kind := deploy.Invalid
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout {
			kind = deploy.Unavailable
		}
		return nil, deploy.Errorf(kind, "the server answers %s", resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fileError(ctx, err)
	}
	if int64(len(data)) > limit {
		return nil, deploy.Errorf(deploy.Invalid, "it has more than %d bytes", limit)
	}
	return data, nil
}

// fileClient returns a client that connects to allowed hosts and, after redirects, to hosts
// with public addresses.
func (r *Remotes) fileClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = r.connect
	return &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		switch {
		case len(via) > maxFileRedirects:
			return deploy.Errorf(deploy.Invalid, "it redirects more than %d times", maxFileRedirects)
		case next.URL.Scheme != "https" && (next.URL.Scheme != "http" || via[0].URL.Scheme == "https"):
			return deploy.Errorf(deploy.Invalid, "it redirects from %s to %s", via[0].URL.Scheme, next.URL.Scheme)
		}
		return nil
	}}
}

// connect connects to an allowed host, or to the target of a redirect, which must have a
// public address.
func (r *Remotes) connect(ctx context.Context, network, at string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 10 * time.Second, Control: r.cfg.Public}
	if host, _, err := net.SplitHostPort(at); err == nil && r.knows(strings.ToLower(host), strings.ToLower(at)) || isProxy(at) {
		d.Control = r.cfg.Known
	}
	return d.DialContext(ctx, network, at)
}

// isProxy reports whether an address is that of a proxy from the environment, which may be
// private.
func isProxy(at string) bool {
	for _, scheme := range []string{"http", "https"} {
		u, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: scheme, Host: "host.example"}})
		if err == nil && u != nil && strings.EqualFold(u.Host, at) {
			return true
		}
	}
	return false
}

// knows reports whether Allow lists one of the names.
func (r *Remotes) knows(names ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.hosts, func(allowed string) bool {
		return slices.Contains(names, strings.TrimPrefix(strings.ToLower(allowed), "http://"))
	})
}

// fileError returns the error of a request without a response. It leaves out the address.
func fileError(ctx context.Context, err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if !deploy.IsKind(err, deploy.Unavailable) {
			return err // the caller's context ended
		}
	}
	if deploy.IsKind(err, deploy.Invalid) {
		return fmt.Errorf("the server cannot be reached: %w", err)
	}
	return deploy.Errorf(deploy.Unavailable, "the server cannot be reached: %w", err)
}
