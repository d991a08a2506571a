package cluster

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"
)

// Contact is how the last request to a cluster ended.
type Contact struct {
	Answered     bool      // and the agent's credentials were accepted
	Err          error     // why not; nil before the first request
	FailingSince time.Time // zero unless Err
}

// errCredentials is why a cluster that answers cannot be used.
var errCredentials = errors.New("the cluster does not accept the agent's credentials (401 Unauthorized): renew those in its kubeconfig or, where it uses its pod's service account, see that this still exists")

// contact notes how requests to a cluster end, those of all its clients.
type contact struct {
	now func() time.Time

	mu    sync.Mutex
	last  Contact
	said  time.Time // since when the outage lasts that was logged last
	clock clock     // of the API server
}

// wrap returns a transport that notes what comes of the requests to next.
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
	case errors.Is(err, context.Canceled): // by the agent: it tells nothing
	case err != nil:
		n.contact.note(err)
	case resp.StatusCode == http.StatusUnauthorized:
		n.contact.note(errCredentials)
	default:
		n.contact.note(nil)
	}
	return resp, err
}

// WrappedRoundTripper lets the client find the transport to close.
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

// Contact returns how the last request to the cluster ended. It asks nobody.
func (c *Cluster) Contact() Contact {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	return c.contact.last
}

// Outage reports whether the cluster does not answer, and whether the caller is the first
// to ask since that is so: the one who logs it.
func (c *Cluster) Outage() (lasts, first bool) {
	c.contact.mu.Lock()
	defer c.contact.mu.Unlock()
	since := c.contact.last.FailingSince
	lasts, first = !since.IsZero(), !c.contact.said.Equal(since)
	c.contact.said = since
	return lasts, lasts && first
}
