// Package signin signs a user of pipectl in at the agent's web server, with a browser on this
// computer or on another device, and stores the token of the session in a file.
//
// The browser returns to a loopback listener with a code, which is worthless without the
// verifier that pipectl keeps (RFC 7636, RFC 8252). On another device the user confirms a short
// code (RFC 8628). The package never sees a password.
package signin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

const (
	// requestTimeout limits one request to the web server.
	requestTimeout = 30 * time.Second
	// maxResponse limits a response of the web server, in bytes.
	maxResponse = 64 << 10
)

// Client signs in at one web server.
type Client struct {
	web  *url.URL
	http *http.Client
	// sleep waits, and returns the cause when ctx ends first.
	sleep func(ctx context.Context, d time.Duration) error
}

// New returns a client of the web server at an address, which is https, or http on a loopback
// address. roots are the certificates that the server's must be signed by; nil means the
// system's.
func New(address string, roots *tls.Config) (*Client, error) {
	web, err := url.Parse(strings.TrimSuffix(address, "/"))
	switch {
	case err != nil || web.Host == "" || web.User != nil || web.RawQuery != "" || web.Fragment != "" || web.Path != "":
		return nil, fmt.Errorf("%q is not the address of a web server, such as https://piped.example.com", address)
	case web.Scheme != "https" && !(web.Scheme == "http" && loopback(web.Hostname())):
		return nil, fmt.Errorf("%s would send the token unencrypted over the network: it must begin with https://", address)
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: roots, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	return &Client{web: web, sleep: sleep, http: &http.Client{
		Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // secrets are sent nowhere else
	}}, nil
}

// Address returns the address of the web server.
func (c *Client) Address() string { return c.web.String() }

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Grant is what a sign-in returns.
type Grant struct {
	Token     string    `json:"token"` // of the session; a secret
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	ExpiresAt time.Time `json:"expires_at"`
}

// tokenForm is that of tokens, which become a part of a header.
var tokenForm = regexp.MustCompile(`^[0-9A-Za-z-]+\.[0-9A-Za-z]+$`)

// refusal is an error that the web server answers, in the form of OAuth 2.0.
type refusal struct {
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

func (r *refusal) Error() string {
	if r.Description == "" {
		return "the agent refuses the sign-in: " + printable(r.Code)
	}
	return fmt.Sprintf("the agent refuses the sign-in: %s (%s)", printable(r.Description), printable(r.Code))
}

// printable removes what could control a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}

// post sends a request as JSON and decodes the response. Errors do not show what was sent.
func (c *Client) post(ctx context.Context, path string, body, into any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.web.JoinPath(path).String(), bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // an error after the last byte does not matter
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal(answer, into); err != nil {
			return c.foreign(resp)
		}
		return nil
	}
	var r refusal
	if json.Unmarshal(answer, &r) != nil || r.Code == "" {
		return c.foreign(resp)
	}
	return &r
}

func (c *Client) foreign(resp *http.Response) error {
	return fmt.Errorf("%s does not answer as the agent's web server: %s", c.web, printable(resp.Status))
}

// grant makes the last request of a sign-in.
func (c *Client) grant(ctx context.Context, path string, body any) (Grant, error) {
	var g Grant
	if err := c.post(ctx, path, body, &g); err != nil {
		return Grant{}, err
	}
	if !tokenForm.MatchString(g.Token) {
		return Grant{}, fmt.Errorf("%s sent no token", c.web)
	}
	g.Subject, g.Issuer = printable(g.Subject), printable(g.Issuer)
	return g, nil
}

// linkForm is that of the path of a sign-in link.
var linkForm = regexp.MustCompile(`^/sign-in/link/use\?ticket=[0-9A-Za-z_-]{43}$`)

// Link returns an address that signs a browser in once, as the holder of an API key, and until
// when it does. The browser is then sent to a path of the web server; "" is the start page.
func (c *Client) Link(ctx context.Context, key, path string) (address string, expires time.Time, err error) {
	var link struct {
		Path      string    `json:"path"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := c.post(ctx, "/sign-in/link/new", map[string]string{"key": key, "next": path}, &link); err != nil {
		return "", time.Time{}, err
	}
	if !linkForm.MatchString(link.Path) {
		return "", time.Time{}, fmt.Errorf("%s sent no link", c.web)
	}
	return c.web.String() + link.Path, link.ExpiresAt, nil
}

// newSecret returns 256 bits in base64url.
func newSecret() string {
	secret := make([]byte, sha256.Size)
	rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

// challengeOf is the method S256 of RFC 7636.
func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// errNoAnswer is the cause when the user did not sign in in time.
var errNoAnswer = errors.New("nobody has signed in in time")
