package page

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	liveWait    = 2 * time.Second  // for live states that a view can do without
	silentFor   = 30 * time.Second // that a cluster without an answer is not asked again
	enoughToAsk = time.Second      // less time without an answer says nothing about a cluster
)

// silentClusters remembers the applications whose cluster did not answer, so that views do not wait
// for it again and again. It is safe for concurrent use; the zero value is ready to use.
type silentClusters struct {
	mu    sync.Mutex
	until map[string]time.Time // by application
}

func (s *silentClusters) has(application string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[application])
}

// add adds an application, and removes those that may be asked again.
func (s *silentClusters) add(application string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until == nil {
		s.until = map[string]time.Time{}
	}
	for id, until := range s.until {
		if !now.Before(until) {
			delete(s.until, id)
		}
	}
	s.until[application] = now.Add(silentFor)
}

// readLive reads a live state that a view can do without; nil if it cannot be read in the time that
// ctx leaves. The request says which age it accepts: the API shares and retains what it reads.
func (v *visit) readLive(ctx context.Context, req *controlv1.GetLiveStateRequest) *modelv1.LiveState {
	id := req.ApplicationId
	if ctx.Err() != nil || v.silent.has(id, v.config.Now()) {
		return nil
	}
	deadline, limited := ctx.Deadline()
	enough := !limited || time.Until(deadline) >= enoughToAsk
	resp, err := v.control.GetLiveState(ctx, req)
	if err != nil {
		if enough && v.unanswered(err) {
			v.silent.add(id, v.config.Now())
		}
		v.config.Logger.DebugContext(ctx, "cannot read a live state for a view", "appID", id, "error", err)
		return nil
	}
	state := resp.GetLiveState()
	v.saw(state.GetReadAtMs())
	return state
}

// unanswered reports whether an error says that a cluster does not answer, and not that the caller
// may not ask or that the browser is gone.
func (v *visit) unanswered(err error) bool {
	code := status.Code(err)
	return v.ctx.Err() == nil && (code == codes.Unavailable || code == codes.DeadlineExceeded)
}
