package clustertest

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Link is a connection to a cluster that a test can interrupt, with a clock that it can
// stop and advance. Change its fields in Set.
type Link struct {
	Down    bool                               // requests fail
	Answer  func(*http.Request) *http.Response // replaces the cluster's response if it returns one
	Stopped time.Time                          // what the clock stands still at, not counting Ahead; zero: it runs
	Ahead   time.Duration                      // how far the clock is ahead

	mu      sync.Mutex
	watches map[io.Closer]bool
}

// Now returns the time by the link's clock.
func (l *Link) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.Stopped.IsZero() {
		return l.Stopped.Add(l.Ahead)
	}
	return time.Now().Add(l.Ahead)
}

// Set calls change while no request reads the link.
func (l *Link) Set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

// Cut ends the open watches.
func (l *Link) Cut() {
	l.mu.Lock()
	open := l.watches
	l.watches = nil
	l.mu.Unlock()
	for w := range open {
		w.Close()
	}
}

// Wrap returns a transport that sends requests through the link.
func (l *Link) Wrap(next http.RoundTripper) http.RoundTripper { return &linkTransport{l, next} }

type linkTransport struct {
	link *Link
	next http.RoundTripper
}

func (l *linkTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	l.link.mu.Lock()
	down, answer := l.link.Down, l.link.Answer
	l.link.mu.Unlock()
	if down {
		return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}
	if answer != nil {
		if resp := answer(r); resp != nil {
			return resp, nil
		}
	}
	resp, err := l.next.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		l.link.Set(func() {
			if l.link.watches == nil {
				l.link.watches = map[io.Closer]bool{}
			}
			l.link.watches[resp.Body] = true
		})
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the connections to close.
func (l *linkTransport) WrappedRoundTripper() http.RoundTripper { return l.next }
