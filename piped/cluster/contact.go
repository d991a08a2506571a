package cluster

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Contact is the result of the last request to a cluster.
type Contact struct {
	Answered     bool      // the cluster answered and accepted the agent's credentials
	Err          error     // why Answered is false; nil before the first request
	FailingSince time.Time // of the first failure in a row; zero unless Err is set
}

// errCredentials is the Contact.Err of a cluster that answers 401.
var errCredentials = errors.New("the cluster does not accept the agent's credentials (401 Unauthorized): renew those in its kubeconfig or, where it uses its pod's service account, see that this still exists")

// contact records the results of the requests of all clients of a cluster.
type contact struct {
	now func() time.Time

	mu     sync.Mutex
	last   Contact
	logged time.Time // FailingSince at the last call of Outage
	clock  clock
}

// wrap returns a transport that records the result of each request in c.
func (c *contact) wrap(next http.RoundTripper) http.RoundTripper { return noting{c, next} }

// noting is the transport that contact.wrap returns.
type noting struct {
	contact *contact
	next    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := n.contact.now()
	resp, err := n.next.RoundTrip(r)
	if err == nil {
		n.contact.noteClock(sent, resp.Header.Get("Date"))
	}
	switch {
	case errors.Is(err, context.Canceled): // cancelled by the agent: not a result
	case err != nil:
		n.contact.note(err)
	case resp.StatusCode == http.StatusUnauthorized:
		n.contact.note(errCredentials)
	default:
		n.contact.note(nil)
	}
	return resp, err
}

// WrappedRoundTripper returns the transport to close.
func (n noting) WrappedRoundTripper() http.RoundTripper { return n.next }

func (c *contact) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.last.FailingSince = time.Time{}
	case c.last.Err == nil:
		c.last.FailingSince = c.now()
	}
	c.last.Answered, c.last.Err = err == nil, err
}

// Contact returns the result of the last request to the cluster. It sends no request.
func (c *Cluster) Contact() Contact {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	return c.contact.last
}

// Outage reports whether the last request failed, and whether this is the first call of
// Outage since the failures began. Its callers log an outage only then: once per cluster.
func (c *Cluster) Outage() (lasts, first bool) {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	since := c.contact.last.FailingSince
	lasts, first = !since.IsZero(), !c.contact.logged.Equal(since)
	c.contact.logged = since
	return lasts, lasts && first
}
