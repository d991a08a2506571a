package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// ListedRollout is a rollout with what its deployment and its application tell.
type ListedRollout struct {
	deploy.Rollout
	ApplicationName string // when it was deployed, of an external one now; "" when nobody knows
	Commit          string // "" of an external one
}

// RolloutList selects rollouts to be listed; zero fields ask for nothing.
type RolloutList struct {
	ApplicationIDs []string
	Labels         map[string]string // of the application, as it is now; all of them must match
	DeploymentID   string
	Phases         []deploy.RolloutPhase
	From, To       time.Time // started at From or later, and before To
	Limit          int       // 0: no limit
	Cursor         string
}

const selectListedRollout = `SELECT id, application_id, COALESCE(deployment_id, ''), stage_id, cluster, phase, body, version, started_at, created_at, updated_at, completed_at,
	COALESCE((SELECT d.application_name FROM deployments d WHERE d.id = rollouts.deployment_id),
		(SELECT a.name FROM applications a WHERE a.id = rollouts.application_id), ''),
	COALESCE((SELECT d.commit_hash FROM deployments d WHERE d.id = rollouts.deployment_id), '')
	FROM rollouts`

func scanListedRollout(row scanner) (r ListedRollout, err error) {
	r.Rollout, err = scanRolloutAnd(row, &r.ApplicationName, &r.Commit)
	return r, err
}

// ListRollouts returns rollouts, those of deployments and external ones, the last
// that started first, then by ID, and the cursor of the next page: "" when there is
// none. The error is Invalid for a cursor that no list gave.
func (s *Store) ListRollouts(ctx context.Context, q RolloutList) ([]ListedRollout, string, error) {
	var f filter
	in(&f, "application_id", q.ApplicationIDs)
	f.labels("application_labels", "application_id", "rollouts.application_id", q.Labels)
	f.equal("deployment_id", q.DeploymentID)
	in(&f, "phase", q.Phases)
	if !q.From.IsZero() {
		f.add("started_at >= ?", toMilli(q.From))
	}
	if !q.To.IsZero() {
		f.add("started_at < ?", toMilli(q.To))
	}
	if err := f.afterBy("started_at", q.Cursor); err != nil {
		return nil, "", err
	}
	asked := q.Limit
	if asked > 0 {
		asked++ // one more tells whether there is a next page
	}
	query := f.limit(selectListedRollout+f.where()+" ORDER BY started_at DESC, id", asked)
	found, err := all(ctx, s, scanListedRollout, query, f.args...)
	if err != nil || q.Limit <= 0 || len(found) <= q.Limit {
		return found, "", s.fail(err, "list rollouts")
	}
	found = found[:q.Limit]
	last := found[q.Limit-1]
	return found, cursorAt(last.StartedAt, last.ID), nil
}
