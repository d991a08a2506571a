package drift

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// appState is the state of one application between two evaluations.
type appState struct {
	id string

	// hints are the changes since the last evaluation began. Detector.mu guards them.
	hints hints
	row   deploy.Application // as last read; Detector.mu guards it

	mu          sync.Mutex // held during an evaluation; guards the fields below
	app         deploy.Application
	expected    *expected           // nil until needed
	results     map[string]result   // by key: results for versions of objects
	open        *deploy.DriftReport // the open report
	openRead    bool                // whether open is known
	git         gitDiff             // of the last compared commits
	outageSince time.Time           // since when an object has been unknown; zero if all are known
	sweptTo     time.Time           // end of the last sweep interval
	retryNeeded bool                // retry the last evaluation
	retry       time.Duration       // last delay before a retry
	lastErr     string              // last logged error
	terms       []deploy.Term       // of the right that the state was read with; nil if no replica shares the work
}

// own drops what was read with another right: another replica may have evaluated the application since. What
// is not stored is read anew each time. The caller holds s.mu.
func (s *appState) own(terms []deploy.Term, unstored bool) {
	if unstored || !slices.Equal(s.terms, terms) {
		s.clear()
	}
	s.terms = terms
}

// disown drops what is not needed without the right to the application.
func (s *appState) disown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
}

// clear drops what was read. The caller holds s.mu.
func (s *appState) clear() {
	s.expected, s.results, s.open, s.openRead, s.git = nil, map[string]result{}, nil, false, gitDiff{}
	s.outageSince, s.retryNeeded, s.retry, s.lastErr = time.Time{}, false, 0, ""
}

// hints are changes that invalidate parts of the state.
type hints struct {
	row       bool            // the application's row changed
	deployed  bool            // a deployment changed
	sweep     map[string]bool // keys of objects due for the sweep
	changedAt time.Time       // when a change in a cluster was first observed
}

// result is the result of comparing one version of an object.
type result struct {
	uid, resourceVersion string              // "" if the watch has none
	drift                *deploy.ObjectDrift // nil: in sync
}

// appState returns the state of an application, nil if it is unknown.
func (d *Detector) appState(id string) *appState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.apps[id]
}

// remember adds or updates an application.
func (d *Detector) remember(app deploy.Application) *appState {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.apps[app.ID]
	if s == nil {
		s = &appState{id: app.ID, results: map[string]result{}}
		d.apps[app.ID] = s
	}
	s.row, s.hints.row = app, false
	return s
}

// forget removes an application. A later scan finds it if it is added again.
func (d *Detector) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.apps, id)
}

// hint updates the hints of a known application.
func (d *Detector) hint(id string, note func(*hints)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.apps[id]; s != nil {
		note(&s.hints)
	}
}

// takeHints resets the hints and returns them, with the row as last read. The caller holds
// s.mu.
func (d *Detector) takeHints(s *appState) (hints, deploy.Application) {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := s.hints
	s.hints = hints{}
	return taken, s.row
}

// observed records the time of a change in a cluster unless an earlier one is recorded.
func (h *hints) observed(at time.Time) {
	if h.changedAt.IsZero() {
		h.changedAt = at
	}
}

// deployedMeanwhile reports whether a deployment changed since takeHints.
func (d *Detector) deployedMeanwhile(s *appState) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.hints.deployed
}

// refresh updates the application's state according to its hints, which it resets and
// returns. The caller holds s.mu.
func (d *Detector) refresh(ctx context.Context, s *appState) (h hints, err error) {
	h, row := d.takeHints(s)
	if h.row || row.ID == "" {
		if row, err = d.Store.Application(ctx, s.id); err != nil {
			d.hint(s.id, func(now *hints) { now.row, now.deployed = true, now.deployed || h.deployed })
			return h, err
		}
		d.mu.Lock()
		s.row = row
		d.mu.Unlock()
	}
	s.app = row
	if h.deployed || row.Deploying {
		s.expected, s.results = nil, map[string]result{}
	}
	if !s.openRead {
		if err := d.readOpen(ctx, s); err != nil {
			return h, err
		}
	}
	return h, nil
}

// readOpen reads the application's drift report from the store into s.open, nil if there
// is none.
func (d *Detector) readOpen(ctx context.Context, s *appState) error {
	r, err := d.Store.DriftReport(ctx, s.id)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		s.open = nil
	case err != nil:
		return err
	default:
		s.open = &r
	}
	s.openRead = true
	return nil
}
