package signin

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// Browser signs in with a browser on this computer. It calls show with the address of the page
// and waits for the user, up to a time.
func (c *Client) Browser(ctx context.Context, patience time.Duration, show func(page string)) (Grant, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Grant{}, fmt.Errorf("listen for the browser: %w", err)
	}
	verifier := newSecret()
	back := newCallback(listener.Addr().String())
	server := &http.Server{Handler: back, ReadHeaderTimeout: requestTimeout, MaxHeaderBytes: maxResponse}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { // the browser gets its answer first
		last, end := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer end()
		if server.Shutdown(last) != nil {
			_ = server.Close()
		}
		<-served
	}()
	show(c.page(listener.Addr(), challengeOf(verifier), back.state))
	select {
	case code := <-back.code:
		return c.grant(ctx, "/sign-in/token", map[string]string{"code": code, "verifier": verifier})
	case <-ctx.Done():
		return Grant{}, context.Cause(ctx)
	}
}

// page returns the address at which the user signs in.
func (c *Client) page(listener net.Addr, challenge, state string) string {
	page := c.web.JoinPath("/sign-in")
	port := listener.(*net.TCPAddr).Port
	page.RawQuery = url.Values{"cli_port": {strconv.Itoa(port)}, "challenge": {challenge}, "state": {state}}.Encode()
	return page.String()
}

// callback serves the address to which the browser returns.
type callback struct {
	host  string // as in the browser's address line
	state string
	code  chan string // receives one code, once the browser has its answer

	received atomic.Bool // a code with the right state
}

func newCallback(host string) *callback {
	return &callback{host: host, state: newSecret(), code: make(chan string, 1)}
}

// ServeHTTP accepts the first code with the right state. Other requests can come from any page
// in the browser; they do not end the sign-in.
func (b *callback) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Connection", "close")
	query := r.URL.Query()
	code, state := query.Get("code"), query.Get("state")
	if r.Method != http.MethodGet || r.Host != b.host || r.URL.Path != "/callback" {
		http.NotFound(w, r)
		return
	}
	if code == "" || subtle.ConstantTimeCompare([]byte(state), []byte(b.state)) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "This does not belong to the sign-in that pipectl waits for.\n") // the browser may be gone
		return
	}
	if !b.received.CompareAndSwap(false, true) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "pipectl has received the sign-in already.\n")
		return
	}
	const answer = "pipectl continues in the terminal. You can close this page.\n"
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = io.WriteString(w, answer)
	_ = http.NewResponseController(w).Flush() // the server may be closed soon after the code is there
	b.code <- code
}
