package store

import (
	"cmp"
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// rolloutBody is the column body of a rollout record: the record's JSON form and the values
// that it omits. It encodes and decodes the record that Rollout points to.
type rolloutBody struct {
	*deploy.Rollout
	*deploy.RolloutParts
	ReplicasAfter *int32   `json:"replicasAfter,omitempty"` // nil in older rows
	FollowedAt    millisAt `json:"followedAt,omitzero"`
	AppliedAt     millisAt `json:"appliedAt,omitzero"`
	ServerApplied millisAt `json:"serverAppliedAt,omitzero"`
	ResumedAt     millisAt `json:"resumedAt,omitzero"`
	LastProgress  millisAt `json:"lastProgress,omitzero"`
	FailingSince  millisAt `json:"failingSince,omitzero"`
	TroubleSince  millisAt `json:"troubleSince,omitzero"`
	RecoveredAt   millisAt `json:"recoveredAt,omitzero"`
}

func bodyOfRollout(r *deploy.Rollout) *rolloutBody {
	return &rolloutBody{
		Rollout: r, RolloutParts: &r.Parts, FollowedAt: millisAt{&r.FollowedAt}, AppliedAt: millisAt{&r.AppliedAt}, ServerApplied: millisAt{&r.ServerAppliedAt},
		ResumedAt: millisAt{&r.ResumedAt}, LastProgress: millisAt{&r.LastProgress}, FailingSince: millisAt{&r.FailingSince}, TroubleSince: millisAt{&r.TroubleSince},
		RecoveredAt: millisAt{&r.RecoveredAt},
	}
}

// decodeRollout decodes the column body into r.
func decodeRollout(text string, r *deploy.Rollout) error {
	b := bodyOfRollout(r)
	if err := decode(text, b); err != nil {
		return err
	}
	r.ReplicasAfter = r.DesiredAtStart
	if b.ReplicasAfter != nil {
		r.ReplicasAfter = *b.ReplicasAfter
	}
	return nil
}

func rolloutText(r deploy.Rollout) (string, error) {
	b := bodyOfRollout(&r)
	b.ReplicasAfter = &r.ReplicasAfter
	return encode(b)
}

const selectRollout = `SELECT id, kind, application_id, COALESCE(deployment_id, ''), stage_id, cluster, phase, body, version, started_at, created_at, updated_at, completed_at FROM rollouts`

func scanRollout(row scanner) (r deploy.Rollout, err error) { return scanRolloutAnd(row) }

// scanRolloutAnd scans a row of selectRollout with further columns, which it stores in also.
func scanRolloutAnd(row scanner, also ...any) (r deploy.Rollout, err error) {
	var text string
	var startedAt, createdAt, updatedAt, completedAt int64
	into := []any{&r.ID, &r.Kind, &r.ApplicationID, &r.DeploymentID, &r.StageID, &r.Cluster, &r.Phase, &text, &r.Version,
		&startedAt, &createdAt, &updatedAt, &completedAt}
	if err := row.Scan(append(into, also...)...); err != nil {
		return r, err
	}
	if err := decodeRollout(text, &r); err != nil {
		return r, err
	}
	r.StartedAt, r.CreatedAt = fromMilli(startedAt), fromMilli(createdAt)
	r.UpdatedAt, r.CompletedAt = fromMilli(updatedAt), fromMilli(completedAt)
	return r, nil
}

// SaveRollout stores a rollout record and returns it with its next version. A record with
// version 0 is new; otherwise it replaces the version that was read. The first phase in which
// the rollout has begun publishes an event once, and so does a terminal phase, which ends the
// rollout. The end is CompletedAt if that is set and not in the
// future, otherwise now. The last keptPerWorkload external records of each workload and kind
// are retained. Conflict if a new record exists already, or if the record was written
// concurrently or has ended; then nothing is written.
func (s *Store) SaveRollout(ctx context.Context, r deploy.Rollout) (deploy.Rollout, error) {
	if r.ID == "" {
		return deploy.Rollout{}, deploy.Errorf(deploy.Invalid, "a rollout record needs an ID")
	}
	r = dated(r, s.now())
	err := s.write(ctx, func(t *tx) (err error) {
		if r.Version == 0 && r.ApplicationName == "" {
			if r.ApplicationName, _, err = one(ctx, t, scanText, "SELECT name FROM applications WHERE id = ?", r.ApplicationID); err != nil {
				return err
			}
		}
		if r.External() && r.Version == 0 {
			if r.CreatedAt, err = t.createdAfter(ctx, r); err != nil {
				return err
			}
		}
		begins, err := t.begins(ctx, r)
		if err != nil {
			return err
		}
		if err := t.saveRollout(ctx, r); err != nil {
			return err
		}
		if begins {
			if err := t.announceStart(ctx, r); err != nil {
				return err
			}
		}
		t.changed(deploy.TopicRollout, r.ID, r.ApplicationID)
		if r.External() && r.Version == 0 {
			if err := t.dropOldRollouts(ctx, r); err != nil {
				return err
			}
		}
		return t.announceEnd(r)
	})
	if s.dialect.foreign(err) {
		err = deploy.Errorf(deploy.NotFound, "there is no deployment %s to record a rollout of: %w", r.DeploymentID, err)
	}
	if err != nil {
		return deploy.Rollout{}, s.fail(err, "save rollout "+r.ID)
	}
	r.Version++
	if r.Phase.Terminal() && r.Kind == deploy.RolloutKindRollout {
		s.metrics.RolloutEnded(r)
	}
	return r, nil
}

// createdAfter returns when r was created: at least a millisecond after all other records of
// its workload and kind. Their order is that of the rollouts.
func (t *tx) createdAfter(ctx context.Context, r deploy.Rollout) (time.Time, error) {
	last, _, err := one(ctx, t, scanMilli, "SELECT COALESCE(MAX(created_at), 0) FROM rollouts WHERE cluster = ? AND workload = ? AND kind = ?", r.Cluster, r.Workload.Key(), string(r.Kind))
	if at := fromMilli(last + 1); at.After(r.CreatedAt) {
		return at, err
	}
	return r.CreatedAt, err
}

// dated returns r with its times as they are stored at the time now.
func dated(r deploy.Rollout, now time.Time) deploy.Rollout {
	r.Kind = cmp.Or(r.Kind, deploy.RolloutKindRollout)
	if r.Version == 0 {
		r.CreatedAt = now
	}
	for _, at := range []*time.Time{&r.AppliedAt, &r.ServerAppliedAt, &r.ResumedAt, &r.LastProgress, &r.FollowedAt, &r.FailingSince, &r.TroubleSince, &r.CompletedAt, &r.CreatedAt, &now} {
		*at = milli(*at)
	}
	if r.Version == 0 || !r.External() && r.StartedAt.Equal(r.CreatedAt) {
		r.StartedAt = startOf(r, now)
	}
	r.UpdatedAt = now
	switch {
	case !r.Phase.Terminal():
		r.CompletedAt = time.Time{}
	case r.CompletedAt.IsZero() || r.CompletedAt.After(now):
		r.CompletedAt = now
	case r.CompletedAt.Before(r.StartedAt): // the clocks of agent and cluster differ
		r.CompletedAt = r.StartedAt
	}
	return r
}

// startOf returns when a rollout started. Cluster times have a resolution of one second: the
// start of an external rollout is set to the end of its second.
func startOf(r deploy.Rollout, now time.Time) time.Time {
	at := r.AppliedAt
	if at.IsZero() {
		return cmp.Or(r.StartedAt, now)
	}
	if r.External() && at.Equal(at.Truncate(time.Second)) {
		at = at.Add(time.Second - time.Millisecond)
	}
	if at.After(now) {
		return now
	}
	return at
}

func (t *tx) saveRollout(ctx context.Context, r deploy.Rollout) error {
	text, err := rolloutText(r)
	if err != nil {
		return err
	}
	var n int64
	if r.Version == 0 {
		n, err = t.exec(ctx, `INSERT INTO rollouts (id, kind, application_id, deployment_id, stage_id, cluster, workload, phase, terminal, body, version,
			started_at, created_at, updated_at, completed_at) VALUES (?, ?, ?, NULLIF(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
			r.ID, string(r.Kind), r.ApplicationID, r.DeploymentID, r.StageID, r.Cluster, r.Workload.Key(), string(r.Phase), r.Phase.Terminal(), text, 1,
			toMilli(r.StartedAt), toMilli(r.CreatedAt), toMilli(r.UpdatedAt), toMilli(r.CompletedAt))
	} else {
		n, err = t.exec(ctx, `UPDATE rollouts SET phase = ?, terminal = ?, body = ?, version = version + 1, started_at = ?, updated_at = ?, completed_at = ?
			WHERE id = ? AND version = ? AND terminal = FALSE`,
			string(r.Phase), r.Phase.Terminal(), text, toMilli(r.StartedAt), toMilli(r.UpdatedAt), toMilli(r.CompletedAt), r.ID, r.Version)
	}
	if err == nil && n == 0 {
		err = deploy.Errorf(deploy.Conflict, "rollout %s was written concurrently or has ended: read it again", r.ID)
	}
	return err
}

// keptPerWorkload is how many external rollouts of a workload are retained, and how many of
// its scalings. The rollouts of deployments are deleted with their deployment.
const keptPerWorkload = 200

// dropOldRollouts deletes the oldest ended external records of r's workload and kind beyond
// keptPerWorkload.
func (t *tx) dropOldRollouts(ctx context.Context, r deploy.Rollout) error {
	_, err := t.exec(ctx, `DELETE FROM rollouts WHERE cluster = ? AND workload = ? AND kind = ? AND deployment_id IS NULL AND terminal = TRUE AND id NOT IN (
		SELECT id FROM rollouts WHERE cluster = ? AND workload = ? AND kind = ? AND deployment_id IS NULL ORDER BY created_at DESC, id DESC LIMIT ?)`,
		r.Cluster, r.Workload.Key(), string(r.Kind), r.Cluster, r.Workload.Key(), string(r.Kind), keptPerWorkload)
	return err
}

// RolloutQuery selects rollout records; zero fields do not restrict.
type RolloutQuery struct {
	Kind          deploy.RolloutKind // "" selects rollouts
	DeploymentID  string
	StageID       string
	ApplicationID string
	Cluster       string
	Workload      deploy.ObjectRef // in any API version
	WorkloadKind  string           // of API group apps
	OpenOnly      bool             // only records that have not ended
	External      bool             // only records without a deployment
	Own           bool             // only records of deployments
	Limit         int              // 0: no limit
}

// filter returns the conditions in a form that makes SQLite use the most selective index: few
// records are open, nearly all are of one kind and of one cluster.
func (q RolloutQuery) filter() (f filter) {
	kind, broad := f.sift, f.equal
	if q.OpenOnly {
		f.add("terminal = FALSE")
		broad = f.sift
	}
	if q.Workload != (deploy.ObjectRef{}) {
		f.equal("workload", q.Workload.Key())
		kind = f.equal // the kind is part of the workload's index
	}
	kind("kind", string(cmp.Or(q.Kind, deploy.RolloutKindRollout)))
	f.equal("deployment_id", q.DeploymentID)
	f.equal("stage_id", q.StageID)
	broad("application_id", q.ApplicationID)
	broad("cluster", q.Cluster)
	if q.WorkloadKind != "" {
		prefix := "apps/" + q.WorkloadKind + "/"
		f.add("workload > ? AND workload LIKE ?", prefix, prefix+"%") // the first condition uses an index
	}
	if q.External {
		f.add("COALESCE(deployment_id, '') = ''")
	}
	if q.Own {
		f.add("deployment_id IS NOT NULL")
	}
	return f
}

// Rollouts returns rollout records, the newest first, then by ID. Those of a workload that no
// deployment began are in the order in which they were stored, even within a millisecond.
func (s *Store) Rollouts(ctx context.Context, q RolloutQuery) ([]deploy.Rollout, error) {
	f := q.filter()
	query := f.limit(selectRollout+f.where()+" ORDER BY created_at DESC, id", q.Limit)
	rs, err := all(ctx, s, scanRollout, query, f.args...)
	return rs, s.fail(err, "list rollouts")
}
