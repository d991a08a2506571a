package githost

import (
	"net/http"
	"time"

	"golang.org/x/time/rate"
)

// paced is a transport that sends one change at a time, with a pause between two, as GitHub
// asks of clients ("Best practices for using the REST API" on docs.github.com). Reads do
// not wait.
type paced struct {
	next  http.RoundTripper
	turn  chan struct{} // held by the running change
	pause *rate.Limiter
}

func newPaced(next http.RoundTripper, pause time.Duration) *paced {
	limit := rate.Inf
	if pause > 0 {
		limit = rate.Every(pause)
	}
	return &paced{next: next, turn: make(chan struct{}, 1), pause: rate.NewLimiter(limit, 1)}
}

// RoundTrip implements http.RoundTripper.
func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return p.next.RoundTrip(r)
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	if err := p.pause.Wait(r.Context()); err != nil {
		return nil, err
	}
	return p.next.RoundTrip(r)
}
