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
	Answered     bool      // and accepted the agent's credentials
	Err          error     // why not; nil before the first request
	FailingSince time.Time // zero unless Err
}

// errCredentials is why a cluster that answers cannot be used.
var errCredentials = errors.New("the cluster does not accept the agent's credentials (401 Unauthorized): renew those in its kubeconfig or, where it uses its pod's service account, see that this still exists")

// contact records the results of the requests of all clients of a cluster.
type contact struct {
	now func() time.Time

	mu     sync.Mutex
	last   Contact
	logged time.Time // the FailingSince of the last logged outage
	clock  clock     // of the API server
}

// wrap returns a transport that records the results of requests.
func (c *contact) wrap(next http.RoundTripper) http.RoundTripper { return noting{c, next} }

type noting struct {
	contact *contact
	next    http.RoundTripper
}

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := n.contact.now()
	resp, err := n.next.RoundTrip(r)
	if err == nil {
		n.contact.noteClock(sent, resp.Header.Get("Date"))
	}
	switch {
	case errors.Is(err, context.Canceled): // by the agent: no result
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

// Contact returns the result of the last request to the cluster. It sends none.
func (c *Cluster) Contact() Contact {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	return c.contact.last
}

// Outage reports whether the cluster does not answer, and whether this is the first call
// since then, so that the outage is logged once.
func (c *Cluster) Outage() (lasts, first bool) {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	since := c.contact.last.FailingSince
	lasts, first = !since.IsZero(), !c.contact.logged.Equal(since)
	c.contact.logged = since
	return lasts, lasts && first
}
