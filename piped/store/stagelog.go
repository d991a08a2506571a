package store

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// AppendStageLogs stores blocks of stage logs in one transaction. It is idempotent: a
// block with the same deployment, stage and index is ignored. NotFound if a deployment
// does not exist.
func (s *Store) AppendStageLogs(ctx context.Context, blocks []deploy.LogBlock) error {
	const perQuery = 500
	if len(blocks) == 0 {
		return nil
	}
	rows := make([][]any, len(blocks))
	ids := make([]string, len(blocks))
	for i, b := range blocks {
		ids[i] = b.DeploymentID
		rows[i] = []any{b.DeploymentID, b.StageID, b.Index, string(b.Severity), b.Log, toMilli(b.At)}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	err := s.write(ctx, func(t *tx) error {
		for chunk := range slices.Chunk(ids, perQuery) {
			if err := t.announceLogs(ctx, chunk); err != nil {
				return err
			}
		}
		return t.insert(ctx, "stage_logs", "deployment_id, stage_id, position, severity, log, at", "ON CONFLICT DO NOTHING", rows)
	})
	return s.fail(err, "append stage logs")
}

// announceLogs publishes that the logs of deployments have new lines.
func (t *tx) announceLogs(ctx context.Context, ids []string) error {
	owners, err := all(ctx, t, scanOwner, "SELECT id, application_id FROM deployments WHERE id IN ("+placeholders(len(ids))+")", anys(ids)...)
	if err != nil {
		return err
	}
	apps := map[string]string{}
	for _, o := range owners {
		apps[o.id] = o.application
	}
	for _, id := range ids {
		app, ok := apps[id]
		if !ok {
			return deploy.Errorf(deploy.NotFound, "there is no deployment %s to log for", id)
		}
		t.changed(deploy.TopicStageLog, id, app)
	}
	return nil
}

// owner is the ID of a row and that of its application.
type owner struct{ id, application string }

func scanOwner(row scanner) (o owner, err error) { return o, row.Scan(&o.id, &o.application) }

// StageLogs returns a deployment's logs by stage ID, each in the order of its lines.
func (s *Store) StageLogs(ctx context.Context, deploymentID string) (map[string][]deploy.LogBlock, error) {
	blocks, err := all(ctx, s, scanLog, `SELECT deployment_id, stage_id, position, severity, log, at FROM stage_logs
		WHERE deployment_id = ? ORDER BY stage_id, position`, deploymentID)
	if err != nil {
		return nil, s.fail(err, "read the logs of deployment "+deploymentID)
	}
	out := map[string][]deploy.LogBlock{}
	for _, b := range blocks {
		out[b.StageID] = append(out[b.StageID], b)
	}
	return out, nil
}

// StageLogAfter returns at most limit blocks of a stage's log after an index (-1 for the
// start), in order.
func (s *Store) StageLogAfter(ctx context.Context, deploymentID, stageID string, index int64, limit int) ([]deploy.LogBlock, error) {
	blocks, err := all(ctx, s, scanLog, selectLogAfter, deploymentID, stageID, index, limit)
	return blocks, s.fail(err, "read the log of stage "+stageID)
}

const selectLogAfter = `SELECT deployment_id, stage_id, position, severity, log, at FROM stage_logs
	WHERE deployment_id = ? AND stage_id = ? AND position > ? ORDER BY position LIMIT ?`

// StageLogBefore returns the newest limit blocks of a stage's log before an index
// (math.MaxInt64 for its end), in order.
func (s *Store) StageLogBefore(ctx context.Context, deploymentID, stageID string, index int64, limit int) ([]deploy.LogBlock, error) {
	blocks, err := all(ctx, s, scanLog, selectLogBefore, deploymentID, stageID, index, limit)
	slices.Reverse(blocks)
	return blocks, s.fail(err, "read the log of stage "+stageID)
}

const selectLogBefore = `SELECT deployment_id, stage_id, position, severity, log, at FROM stage_logs
	WHERE deployment_id = ? AND stage_id = ? AND position < ? ORDER BY position DESC LIMIT ?`

func scanLog(row scanner) (b deploy.LogBlock, err error) {
	var at int64
	err = row.Scan(&b.DeploymentID, &b.StageID, &b.Index, &b.Severity, &b.Log, &at)
	b.At = fromMilli(at)
	return b, err
}

// LastLogIndex returns the highest index of a stage's log, -1 if it is empty.
func (s *Store) LastLogIndex(ctx context.Context, deploymentID, stageID string) (int64, error) {
	n, err := lastLogIndex(ctx, s, deploymentID, stageID)
	return n, s.fail(err, "read the log of stage "+stageID)
}

// lastLogIndex is LastLogIndex on q.
func lastLogIndex(ctx context.Context, q querier, deploymentID, stageID string) (int64, error) {
	n, _, err := one(ctx, q, scanNumber, "SELECT COALESCE(MAX(position), -1) FROM stage_logs WHERE deployment_id = ? AND stage_id = ?", deploymentID, stageID)
	return n, err
}
