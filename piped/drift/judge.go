package drift

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// request says what is asked of a judgement.
type request struct {
	asked bool // a person waits for it: what differs, or did, is read again
	diff  bool
}

// judgement is one look at one application.
type judgement struct {
	*Detector
	*subject // locked
	request
	swept map[string]bool // keys of objects to be compared in any case
	since time.Time       // it was heard that something was written in a cluster; zero if it was not

	material *material            // what was read of the store; nil until it is needed
	suspects map[string][]suspect // by cluster, those the watches leave in doubt
	unmarked []unmarked
	blind    []blindness
	found    map[string]deploy.ObjectDrift // by key
	accepted map[string]bool               // keys of objects that are not to be compared
	looked   int                           // objects that could be judged

	undeployed []string // commits
	behind     bool     // what Git declares is not what is deployed
	tried      bool     // and the last deployment of it did not succeed
	gitProblem string
}

// judge finds out how an application differs from Git, and stores it if that is
// something new. Conflict: it was deployed meanwhile.
func (d *Detector) judge(ctx context.Context, s *subject, asked request) (_ deploy.DriftReport, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled = false
	h, err := d.refresh(ctx, s)
	defer func() {
		if !h.heard.IsZero() && (err != nil || s.unsettled) { // it is not settled yet
			d.hint(s.id, func(now *hints) { now.heard = h.heard })
		}
	}()
	if err != nil {
		return deploy.DriftReport{}, err
	}
	j := &judgement{
		Detector: d, subject: s, request: asked, swept: h.sweep, since: h.heard,
		suspects: map[string][]suspect{}, found: map[string]deploy.ObjectDrift{}, accepted: map[string]bool{},
	}
	if why := j.excused(); why != nil {
		return j.excuse(ctx, *why)
	}
	if s.app.Deploying {
		return j.present("a deployment of the application is under way: it is compared at its end"), nil
	}
	for _, step := range []func(context.Context) error{j.expect, j.look, j.compare, j.compareExtras, j.askGit} {
		if err := step(ctx); err != nil {
			j.again(slices.Collect(maps.Keys(h.sweep)))
			return deploy.DriftReport{}, err
		}
	}
	for _, b := range j.blind {
		j.again(b.keys)
	}
	return j.conclude(ctx)
}

// excused returns why an application is not judged at all, nil if it is.
func (j *judgement) excused() *deploy.SyncState {
	state := &deploy.SyncState{Status: deploy.SyncUnknown}
	switch {
	case j.app.Deleted:
		state.ShortReason = "The application is deleted"
	case j.app.Disabled:
		state.ShortReason = "The application is disabled"
		state.Reason = "A disabled application is not compared with Git: enable it to have it compared"
	case j.app.LastSuccessful == nil && !j.app.Deploying:
		state.ShortReason = "Not deployed yet"
		state.Reason = "No deployment of the application has succeeded: once one has, what is live is compared with what it applied"
	default:
		return nil
	}
	return state
}

// expect makes sure that it is known what is expected.
func (j *judgement) expect(ctx context.Context) (err error) {
	j.material, err = j.Detector.expect(ctx, j.subject)
	return err
}

// read makes sure that the material is at hand.
func (j *judgement) read(ctx context.Context) error {
	if j.material != nil {
		return nil
	}
	m, _, _, err := j.Detector.read(ctx, j.app)
	if err == nil {
		j.material = &m
	}
	return err
}

// again has those of the objects compared the next time that were to be compared in
// any case.
func (j *judgement) again(keys []string) {
	j.hint(j.id, func(h *hints) {
		for _, k := range keys {
			if j.swept[k] {
				h.addSweep(k)
			}
		}
	})
}
