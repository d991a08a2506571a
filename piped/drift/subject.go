package drift

import (
	"context"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// subject is what is remembered of one application between two judgements.
type subject struct {
	id string

	// hints tell what has changed since the last judgement began. Detector.mu guards
	// them.
	hints hints
	row   deploy.Application // as it was read last; Detector.mu guards it

	mu        sync.Mutex // held while it is judged; it guards what follows
	app       deploy.Application
	expected  *expected           // nil until it is needed
	judged    map[string]judged   // by key: objects of which more is known than the watch tells
	open      *deploy.DriftReport // the period that lasts
	openRead  bool                // whether open is known
	git       gitSide             // of the pair of commits that was asked for last
	blindFrom time.Time           // since when something of it cannot be judged; zero if all can
	sweptTo   time.Time           // up to when the time of its objects has been looked at
	unsettled bool                // the last judgement is to be repeated
	retry     time.Duration       // after which
	lastErr   string              // what was logged last
}

// hints say what has become old.
type hints struct {
	row      bool            // the application's row
	deployed bool            // a deployment has done something
	sweep    map[string]bool // keys of objects whose time has come
	heard    time.Time       // since when it is known that something in a cluster was written
}

// judged is what a comparison found out about an object in one version.
type judged struct {
	uid, resourceVersion string              // "" of one that the watch does not have
	drift                *deploy.ObjectDrift // nil: as in Git
}

// subject returns what is remembered of an application, nil if it is not known.
func (d *Detector) subject(id string) *subject {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.subjects[id]
}

// know remembers an application as it is stored.
func (d *Detector) know(app deploy.Application) *subject {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.subjects[app.ID]
	if s == nil {
		s = &subject{id: app.ID, judged: map[string]judged{}}
		d.subjects[app.ID] = s
	}
	s.row, s.hints.row = app, false
	return s
}

// forget drops what is remembered of an application. One that is added again is found
// by a scan.
func (d *Detector) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.subjects, id)
}

// hint notes what has changed of an application that is known.
func (d *Detector) hint(id string, note func(*hints)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.subjects[id]; s != nil {
		note(&s.hints)
	}
}

// takeHints returns what has changed since it was called last. S is locked.
func (d *Detector) takeHints(s *subject) (hints, deploy.Application) {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := s.hints
	s.hints = hints{}
	return taken, s.row
}

// hear notes that something was written in a cluster.
func (h *hints) hear(at time.Time) {
	if h.heard.IsZero() {
		h.heard = at
	}
}

// overtaken reports whether a deployment has done something since the hints were
// taken.
func (d *Detector) overtaken(s *subject) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.hints.deployed
}

// refresh brings the application up to date, and forgets what no longer holds. S is
// locked.
func (d *Detector) refresh(ctx context.Context, s *subject) (h hints, err error) {
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
		s.expected, s.judged = nil, map[string]judged{}
	}
	if !s.openRead {
		if err := d.readOpen(ctx, s); err != nil {
			return h, err
		}
	}
	return h, nil
}

// readOpen reads the report of the period that lasts, if there is one.
func (d *Detector) readOpen(ctx context.Context, s *subject) error {
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
