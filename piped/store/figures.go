package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// committedAt returns the time of the commit that a deployment with trigger t delivers; the
// zero time if it delivers none.
func committedAt(t deploy.Trigger) time.Time {
	if !t.Delivers() {
		return time.Time{}
	}
	return t.Commit.At
}

// selectOutcome reads only from an index.
const selectOutcome = "SELECT application_id, status, completed_at, committed_at FROM deployments"

func scanOutcome(row scanner) (d deploy.DeploymentOutcome, err error) {
	var completedAt, committedAt int64
	err = row.Scan(&d.ApplicationID, &d.Status, &completedAt, &committedAt)
	d.CompletedAt, d.CommittedAt = fromMilli(completedAt), fromMilli(committedAt)
	return d, err
}

// selectDelivered selects applications, with the end of each one's first success at or after a
// time, 0 if there is none.
const selectDelivered = `SELECT id, name, COALESCE((SELECT d.completed_at FROM deployments d WHERE d.application_id = applications.id
	AND d.completed_at > 0 AND d.completed_at >= ? AND d.status = 'SUCCESS' ORDER BY d.completed_at LIMIT 1), 0) FROM applications`

// deliveredApplication holds the values of an application that its outcomes contain.
type deliveredApplication struct {
	id, name string
	next     time.Time // end of the first success after the range
}

func scanDelivered(row scanner) (a deliveredApplication, err error) {
	var next int64
	err = row.Scan(&a.id, &a.name, &next)
	a.next = fromMilli(next)
	return a, err
}

// Outcomes returns the input of the delivery figures: the deployments that ended in a
// time range, the first ended first. Previews of pull requests are among them only if the query
// names them.
func (s *Store) Outcomes(ctx context.Context, q deploy.FiguresQuery) ([]deploy.DeploymentOutcome, error) {
	apps, err := s.deliveredApplications(ctx, q)
	if err != nil {
		return nil, s.fail(err, "list the applications of deployments that have ended")
	}
	var f filter
	f.add("completed_at > 0 AND completed_at >= ? AND completed_at < ?", toMilli(q.From), toMilli(q.To))
	in(&f, "application_id", q.ApplicationIDs)
	ended, err := all(ctx, s, scanOutcome, selectOutcome+f.where(), f.args...)
	if err != nil {
		return nil, s.fail(err, "list the deployments that have ended")
	}
	ended = slices.DeleteFunc(ended, func(d deploy.DeploymentOutcome) bool { return apps[d.ApplicationID] == nil })
	// A failure comes after other deployments with the same end time: none of them restored
	// it.
	slices.SortFunc(ended, func(a, b deploy.DeploymentOutcome) int {
		return cmp.Or(a.CompletedAt.Compare(b.CompletedAt), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ApplicationID, b.ApplicationID))
	})
	for i := len(ended) - 1; i >= 0; i-- {
		d, app := &ended[i], apps[ended[i].ApplicationID]
		d.ApplicationName = app.name
		switch d.Status {
		case deploy.Failure:
			d.RestoredAt = app.next
		case deploy.Success:
			app.next = d.CompletedAt
		}
	}
	return ended, nil
}

// rank orders deployments with the same end time: failures last.
func rank(d deploy.DeploymentOutcome) int {
	if d.Status == deploy.Failure {
		return 1
	}
	return 0
}

// deliveredApplications returns the applications that q selects, by ID.
func (s *Store) deliveredApplications(ctx context.Context, q deploy.FiguresQuery) (map[string]*deliveredApplication, error) {
	f := filter{args: []any{toMilli(q.To)}}
	in(&f, "id", q.ApplicationIDs)
	f.labels("application_labels", "application_id", "applications.id", q.Labels)
	if _, err := s.scoped(ctx, &f, q.Scope, scopedList{"applications", "id", "updated_at"}, len(q.ApplicationIDs) > 0, 0, ""); err != nil {
		return nil, err
	}
	list, err := all(ctx, s, scanDelivered, selectDelivered+f.where(), f.args...)
	apps := make(map[string]*deliveredApplication, len(list))
	for i := range list {
		apps[list[i].id] = &list[i]
	}
	if err != nil || len(q.ApplicationIDs) > 0 {
		return apps, err
	}
	return apps, s.withoutPreviews(ctx, apps)
}

// withoutPreviews deletes the previews of pull requests from a map by ID: a failed push to a pull
// request is no failed delivery. The condition finds all of them, and few others.
func (s *Store) withoutPreviews(ctx context.Context, apps map[string]*deliveredApplication) error {
	found, err := all(ctx, s, scanApplication, selectApplication+` WHERE spec LIKE '%"pullRequest":%'`)
	for _, app := range found {
		if app.IsPreview() {
			delete(apps, app.ID)
		}
	}
	return err
}
