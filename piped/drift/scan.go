package drift

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// nextScan returns the delay until the next scan: a second until one has succeeded, then
// scanInterval.
func (d *Detector) nextScan() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listed.IsZero() {
		return time.Second
	}
	return scanInterval
}

// scan reads all applications and enqueues the new and changed ones. The first scan
// also reads all open reports at once.
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
		if d.update(app, open) {
			d.enqueueAfter(app.ID, debounce)
		}
	}
	d.mu.Lock()
	d.listed = d.Now()
	d.mu.Unlock()
}

// openReports returns all open reports by application.
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

// update stores the row of an application in memory, and reports whether the application
// must be evaluated. open contains all open reports by application, or is nil. update
// ignores unknown deleted applications without an open report.
func (d *Detector) update(app deploy.Application, open map[string]*deploy.DriftReport) bool {
	known := d.appState(app.ID)
	if known == nil && app.Deleted && open[app.ID] == nil {
		return false
	}
	d.mu.Lock()
	same := known != nil && sameRow(known.row, app)
	d.mu.Unlock()
	if same {
		return false
	}
	s := d.remember(app)
	if known == nil && open != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.openRead {
			s.open, s.openRead = open[app.ID], true
		}
	}
	return true
}

// sameRow reports whether two reads of an application's row show no change.
func sameRow(a, b deploy.Application) bool {
	return a.ID == b.ID && a.UpdatedAt.Equal(b.UpdatedAt) && a.EvaluatedCommit == b.EvaluatedCommit && a.Deploying == b.Deploying
}

// handleChanges enqueues the applications that the changes concern. If a change does not
// identify a known application, it scans all.
func (d *Detector) handleChanges(ctx context.Context, changes []deploy.Change) {
	all := false
	for _, c := range changes {
		id := c.ApplicationID
		switch {
		case c.Topic == deploy.TopicEvaluated, d.appState(id) == nil:
			all = true // scan finds the affected ones
			continue
		case c.Topic == deploy.TopicDeployment:
			d.hint(id, func(h *hints) { h.row, h.deployed = true, true })
			if c.Status != "" && !c.Status.Completed() {
				continue // evaluated when it has completed
			}
		default:
			d.hint(id, func(h *hints) { h.row = true })
		}
		d.enqueueAfter(id, debounce)
	}
	if all {
		d.scan(ctx)
	}
}
