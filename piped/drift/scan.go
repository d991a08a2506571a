package drift

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// nextScan is how long the next look at all applications is off.
func (d *Detector) nextScan() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed.IsZero() {
		return time.Second
	}
	return scanInterval
}

// scan reads all applications and has those judged that are new or have changed. The
// first time it reads the periods that last, too, so that a judgement need not.
func (d *Detector) scan(ctx context.Context) {
	apps, _, err := d.Store.ListApplications(ctx, store.ApplicationQuery{IncludeAll: true, IncludeDeleted: true})
	var open map[string]*deploy.DriftReport
	if err == nil && d.listed.IsZero() {
		open, err = d.openReports(ctx)
	}
	if err != nil {
		if ctx.Err() == nil {
			d.Logger.Error("cannot read the applications; trying again", "error", err)
		}
		return
	}
	for _, app := range apps {
		if d.learn(app, open) {
			d.later(app.ID, debounce)
		}
	}
	d.mu.Lock()
	d.listed = d.Now()
	d.mu.Unlock()
}

// openReports returns the reports of all periods that last, by application.
func (d *Detector) openReports(ctx context.Context) (map[string]*deploy.DriftReport, error) {
	reports, _, err := d.Store.ListDriftReports(ctx, store.DriftQuery{OpenOnly: true})
	if err != nil {
		return nil, err
	}
	open := map[string]*deploy.DriftReport{}
	for i, r := range reports {
		open[r.ApplicationID] = &reports[i]
	}
	return open, nil
}

// learn remembers an application as it is stored, and tells whether it is to be
// judged for that. Open, unless it is nil, holds all periods that last. A deleted
// application is of interest only while one of its own does.
func (d *Detector) learn(app deploy.Application, open map[string]*deploy.DriftReport) bool {
	known := d.subject(app.ID)
	if known == nil && app.Deleted && open[app.ID] == nil {
		return false
	}
	d.mu.Lock()
	same := known != nil && sameRow(known.row, app)
	d.mu.Unlock()
	if same {
		return false
	}
	s := d.know(app)
	if known == nil && open != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.openRead {
			s.open, s.openRead = open[app.ID], true
		}
	}
	return true
}

// sameRow reports whether two readings of an application's row show no change.
func sameRow(a, b deploy.Application) bool {
	return a.ID == b.ID && a.UpdatedAt.Equal(b.UpdatedAt) && a.EvaluatedCommit == b.EvaluatedCommit && a.Deploying == b.Deploying
}

// react has the applications judged that these changes are about.
func (d *Detector) react(ctx context.Context, changes []deploy.Change) {
	all := false
	for _, c := range changes {
		id := c.ApplicationID
		switch {
		case c.Topic == deploy.TopicEvaluated, d.subject(id) == nil:
			all = true // which are concerned is in their rows
			continue
		case c.Topic == deploy.TopicDeployment:
			d.hint(id, func(h *hints) { h.row, h.deployed = true, true })
			if c.Status != "" && !c.Status.Completed() {
				continue // it is judged at the end
			}
		default:
			d.hint(id, func(h *hints) { h.row = true })
		}
		d.later(id, debounce)
	}
	if all {
		d.scan(ctx)
	}
}
