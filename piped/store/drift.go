package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// maxDriftHistory is how many ended drift reports are retained for each application.
const maxDriftHistory = 200

// ReportDrift stores the result of an evaluation of an application's drift in one transaction.
// It stores the sync state if it has changed, unless the configuration is invalid; only the
// trigger ends that state. If there is a report, it stores the report over the one with the
// same ID, and publishes the events. changed reports whether anything was stored.
//
// evaluated is the application at the time of the evaluation. Conflict if a deployment of it
// is active or one has succeeded since, so that the result is outdated. A report that ends
// with deploy.DriftAbandoned is stored nevertheless. The last 200 ended reports are retained.
func (s *Store) ReportDrift(ctx context.Context, evaluated deploy.Application, state deploy.SyncState, report *deploy.DriftReport, events ...deploy.Event) (changed bool, err error) {
	state.At, state.ShortReason, state.Reason = milli(state.At), clean(state.ShortReason), clean(state.Reason)
	err = s.write(ctx, func(t *tx) error {
		changed = false
		app, err := t.lockApplication(ctx, evaluated.ID)
		if err != nil {
			return err
		}
		if (report == nil || report.End != deploy.DriftAbandoned) && deployedSince(evaluated, app) {
			return deploy.Errorf(deploy.Conflict, "application %s was deployed since it was compared with Git", app.Name)
		}
		if app.Sync.Status != deploy.SyncInvalidConfig && !app.Deleted && !app.Sync.SameAs(state) {
			text, err := encode(state)
			if err != nil {
				return err
			}
			if err := t.updateApplication(ctx, app.ID, "sync_status = ?, sync_state = ?", string(state.Status), text); err != nil {
				return err
			}
			changed = true
			t.changed(deploy.TopicDrift, app.ID, app.ID)
		}
		if report == nil {
			return nil
		}
		changed = true
		t.events = append(t.events, events...)
		return t.putDriftReport(ctx, *report)
	})
	return changed && err == nil, s.fail(err, "store the drift of application "+evaluated.ID)
}

// deployedSince reports whether a deployment is active in now, or one has succeeded since the
// application was read as evaluated.
func deployedSince(evaluated, now deploy.Application) bool {
	return now.Deploying || idOf(evaluated.LastSuccessful) != idOf(now.LastSuccessful)
}

func idOf(ref *deploy.DeploymentRef) string {
	if ref == nil {
		return ""
	}
	return ref.DeploymentID
}

// putDriftReport stores a report and deletes the oldest ended ones beyond maxDriftHistory.
func (t *tx) putDriftReport(ctx context.Context, r deploy.DriftReport) error {
	r.CheckedAt, r.BeganAt, r.EndedAt = milli(r.CheckedAt), milli(r.BeganAt), milli(r.EndedAt)
	body, err := encode(r)
	if err != nil {
		return err
	}
	t.changed(deploy.TopicDrift, r.ApplicationID, r.ApplicationID)
	if _, err := t.exec(ctx, `INSERT INTO drift_reports (id, application_id, body, began_at, ended_at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET body = excluded.body, ended_at = excluded.ended_at`,
		r.ID, r.ApplicationID, body, toMilli(r.BeganAt), toMilli(r.EndedAt)); err != nil || r.EndedAt.IsZero() {
		return err
	}
	_, err = t.exec(ctx, `DELETE FROM drift_reports WHERE application_id = ? AND ended_at > 0 AND id NOT IN (
		SELECT id FROM drift_reports WHERE application_id = ? AND ended_at > 0 ORDER BY began_at DESC, id LIMIT ?)`,
		r.ApplicationID, r.ApplicationID, maxDriftHistory)
	return err
}

const selectDriftReport = "SELECT body FROM drift_reports"

func scanDriftReport(row scanner) (r deploy.DriftReport, err error) {
	var body string
	if err := row.Scan(&body); err != nil {
		return r, err
	}
	return r, decode(body, &r)
}

// DriftReport returns the report of the current period of drift. NotFound if the application
// is not known to differ from Git.
func (s *Store) DriftReport(ctx context.Context, appID string) (deploy.DriftReport, error) {
	r, ok, err := one(ctx, s, scanDriftReport, selectDriftReport+" WHERE application_id = ? AND ended_at = 0", appID)
	if err == nil && !ok {
		err = deploy.Errorf(deploy.NotFound, "application %s is not known to differ from Git", appID)
	}
	return r, s.fail(err, "read the drift of application "+appID)
}

// DriftQuery selects drift reports. Zero fields do not restrict.
type DriftQuery struct {
	ApplicationIDs []string
	Labels         map[string]string // of the application's current labels; all must match
	Scope          *deploy.Scope     // must contain the application; nil: no restriction
	OpenOnly       bool              // only current periods
	From, To       time.Time         // the period overlaps this range
	Limit          int               // 0: no limit
	Cursor         string
}

// ListDriftReports returns the drift report of each period, current and ended, the last
// started first, then by ID. It also returns the cursor of the next page, "" if there is none.
// Invalid for a cursor that no list returned.
func (s *Store) ListDriftReports(ctx context.Context, q DriftQuery) ([]deploy.DriftReport, string, error) {
	var f filter
	in(&f, "application_id", q.ApplicationIDs)
	f.labels("application_labels", "application_id", "drift_reports.application_id", q.Labels)
	if q.OpenOnly {
		f.add("ended_at = 0")
	}
	if !q.From.IsZero() {
		f.add("(ended_at = 0 OR ended_at >= ?)", toMilli(q.From))
	}
	if !q.To.IsZero() {
		f.add("began_at < ?", toMilli(q.To))
	}
	if err := f.afterBy("began_at", q.Cursor); err != nil {
		return nil, "", err
	}
	few := len(q.ApplicationIDs) > 0
	if _, err := s.scoped(ctx, &f, q.Scope, scopedList{"drift_reports", "application_id", "began_at"}, few, q.Limit, q.Cursor); err != nil {
		return nil, "", s.fail(err, "list reports of drift")
	}
	query := f.limit(selectDriftReport+f.where()+" ORDER BY began_at DESC, id", extra(q.Limit))
	found, err := all(ctx, s, scanDriftReport, query, f.args...)
	if err != nil || q.Limit <= 0 || len(found) <= q.Limit {
		return found, "", s.fail(err, "list reports of drift")
	}
	found = found[:q.Limit]
	last := found[q.Limit-1]
	return found, cursorAt(last.BeganAt, last.ID), nil
}
