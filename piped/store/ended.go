package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// NoteDeployment adds text to the reason of a completed deployment and to the log of one of
// its stages, unless the reason contains it already. Status and end time do not change; no
// event is published. NotFound if the deployment does not exist.
func (s *Store) NoteDeployment(ctx context.Context, id, stageID, text string) error {
	text = clean(text)
	for {
		err := s.write(ctx, func(t *tx) error { return t.noteDeployment(ctx, id, stageID, text) })
		if !errors.Is(err, errLostRace) {
			return s.fail(err, "add a note to deployment "+id)
		}
	}
}

func (t *tx) noteDeployment(ctx context.Context, id, stageID, text string) error {
	d, err := deployment(ctx, t, id)
	if err != nil || strings.Contains(d.StatusReason, text) {
		return err
	}
	d.StatusReason = strings.TrimPrefix(d.StatusReason+"; "+text, "; ")
	state, err := stateTextOf(&d)
	if err != nil {
		return err
	}
	now := toMilli(t.store.now())
	n, err := t.exec(ctx, "UPDATE deployments SET state = ?, revision = revision + 1, updated_at = ? WHERE id = ? AND revision = ?", state, now, id, d.Revision)
	if err != nil {
		return err
	}
	if n == 0 {
		return errLostRace
	}
	t.changes = append(t.changes, deploy.Change{Topic: deploy.TopicDeployment, ID: id, ApplicationID: d.ApplicationID, Status: d.Status})
	t.changed(deploy.TopicStageLog, id, d.ApplicationID)
	last, err := lastLogIndex(ctx, t, id, stageID)
	if err != nil {
		return err
	}
	return t.insert(ctx, "stage_logs", "deployment_id, stage_id, position, severity, log, at", "",
		[][]any{{id, stageID, last + 1, string(deploy.SeverityInfo), text, now}})
}

// EndedDeployments returns up to limit (0: all) deployments that ended at since or later, the
// first ended first. Commits may be out of order by the duration of a write. A caller that
// continues from the last one must start that much earlier.
func (s *Store) EndedDeployments(ctx context.Context, since time.Time, limit int) ([]deploy.Deployment, error) {
	var f filter
	f.add("completed_at > 0") // the condition of its index
	f.add("completed_at >= ?", toMilli(since))
	query := f.limit(selectDeployment+f.where()+" ORDER BY completed_at, id", limit)
	ds, err := s.deployments(ctx, query, f.args...)
	return ds, s.fail(err, "list the deployments that have ended")
}
