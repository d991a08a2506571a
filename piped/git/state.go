package git

import (
	"context"
	"time"
)

// State is the known state of a Repo and its remote.
type State struct {
	Remote, Branch string    // the target; the remote without credentials
	Head           string    // full hash; "" before the first Sync of a new mirror
	CheckedAt      time.Time // when a Sync last succeeded; zero if none has since Open
	FetchedAt      time.Time // when objects were last fetched; zero if none were since Open
	Err            error     // of the last Sync; nil when it succeeded
	FailingSince   time.Time // zero unless Err
}

// State returns the known state without a request to the remote.
func (r *Repo) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.state
	s.Remote, s.Branch = r.target.address.text, r.target.branch
	if !r.head.IsZero() {
		s.Head = r.head.String()
	}
	return s
}

// note stores the result of a Sync, unless the Sync was cancelled.
func (r *Repo) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	switch {
	case err == nil:
		r.state.CheckedAt, r.state.FailingSince = now, time.Time{}
	case r.state.Err == nil:
		r.state.FailingSince = now
	}
	r.state.Err = err
}

// ShownRemote returns a remote without credentials, for messages; "" for an invalid remote.
func ShownRemote(remote string) string {
	a, err := parseAddress(remote)
	if err != nil {
		return ""
	}
	return a.text
}
