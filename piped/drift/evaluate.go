package drift

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// request holds the options of an evaluation.
type request struct {
	interactive bool // a user waits for the result: objects with earlier drift are read again
	diff        bool // differing objects get a Diff
	unstored    bool // another replica stores the state and the report
}

// evaluation is one evaluation of one application.
type evaluation struct {
	*Detector
	*appState // locked
	request
	swept map[string]bool // keys of objects due for the sweep
	since time.Time       // when a change in a cluster was first observed; zero without one

	material *material            // read from the store; nil until needed
	suspects map[string][]suspect // by cluster: objects to compare with the API server
	unmarked []unmarked
	outages  []outage
	found    map[string]deploy.ObjectDrift // by key
	accepted map[string]bool               // keys of objects excluded from the comparison
	checked  int                           // number of evaluated objects

	undeployed []string // commits
	behind     bool     // Git differs from what is deployed
	tried      bool     // the last deployment of that state did not succeed
	gitProblem string
}

// evaluate determines how an application differs from Git, and stores the sync state and
// report if they changed. The error is of kind Conflict if the application was deployed
// concurrently.
func (d *Detector) evaluate(ctx context.Context, s *appState, req request) (_ deploy.DriftReport, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retryNeeded = false
	s.own(deploy.TermsOf(ctx), req.unstored)
	h, err := d.refresh(ctx, s)
	defer func() {
		if !h.changedAt.IsZero() && (err != nil || s.retryNeeded) { // the change is not reported yet
			d.hint(s.id, func(now *hints) { now.changedAt = h.changedAt })
		}
	}()
	if err != nil {
		return deploy.DriftReport{}, err
	}
	e := &evaluation{
		Detector: d, appState: s, request: req, swept: h.sweep, since: h.changedAt,
		suspects: map[string][]suspect{}, found: map[string]deploy.ObjectDrift{}, accepted: map[string]bool{},
	}
	if why := e.skipReason(); why != nil {
		return e.skip(ctx, *why)
	}
	if s.app.Deploying {
		return e.currentReport("a deployment of the application is under way: it is compared at its end"), nil
	}
	for _, step := range []func(context.Context) error{e.expect, e.checkWatched, e.compare, e.compareExtras, e.checkGit} {
		if err := step(ctx); err != nil {
			e.retrySweep(slices.Collect(maps.Keys(h.sweep)))
			return deploy.DriftReport{}, err
		}
	}
	for _, b := range e.outages {
		e.retrySweep(b.keys)
	}
	return e.conclude(ctx)
}

// skipReason returns the state of an application that is not evaluated, with the reason; nil
// if it is evaluated.
func (e *evaluation) skipReason() *deploy.SyncState {
	state := &deploy.SyncState{Status: deploy.SyncUnknown}
	switch {
	case e.app.Deleted:
		state.ShortReason = "The application is deleted"
	case e.app.Disabled:
		state.ShortReason = "The application is disabled"
		state.Reason = "A disabled application is not compared with Git: enable it to have it compared"
	case e.app.LastSuccessful == nil && !e.app.Deploying:
		state.ShortReason = "Not deployed yet"
		state.Reason = "No deployment of the application has succeeded: once one has, what is live is compared with what it applied"
	default:
		return nil
	}
	return state
}

// expect loads the expected objects unless they are current.
func (e *evaluation) expect(ctx context.Context) (err error) {
	e.material, err = e.Detector.expect(ctx, e.appState)
	return err
}

// read loads the material for comparisons unless it is already loaded.
func (e *evaluation) read(ctx context.Context) error {
	if e.material != nil {
		return nil
	}
	m, _, _, err := e.Detector.read(ctx, e.app)
	if err == nil {
		e.material = &m
	}
	return err
}

// retrySweep makes objects due for the sweep in the next evaluation if they were due in this
// one.
func (e *evaluation) retrySweep(keys []string) {
	e.hint(e.id, func(h *hints) {
		for _, k := range keys {
			if e.swept[k] {
				h.addSweep(k)
			}
		}
	})
}
