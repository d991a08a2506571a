package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// rolloutBody is what is only carried of a rollout record.
type rolloutBody struct {
	Workload       deploy.ObjectRef `json:"workload"`
	UID            string           `json:"uid,omitempty"`
	Reason         string           `json:"reason,omitempty"`
	ChangedBy      string           `json:"changedBy,omitempty"`
	IntentDigest   string           `json:"intentDigest,omitempty"`
	LiveBefore     string           `json:"liveBefore,omitempty"`
	TemplateDigest string           `json:"templateDigest,omitempty"`
	Images         string           `json:"images,omitempty"`
	Generation     int64            `json:"generation,omitempty"`
	TargetUID      string           `json:"targetUID,omitempty"`
	TargetName     string           `json:"targetName,omitempty"`
	Revision       int64            `json:"revision,omitempty"`
	DesiredAtStart int32            `json:"desiredAtStart,omitempty"`
	ReplicasBefore int32            `json:"replicasBefore,omitempty"`
	ProvenBefore   bool             `json:"provenBefore,omitempty"`
	TemplateBase   string           `json:"templateBase,omitempty"`
	FollowedDigest string           `json:"followedDigest,omitempty"`
	FollowedAt     int64            `json:"followedAt,omitempty"`
	AppliedAt      int64            `json:"appliedAt,omitempty"`
	LastProgress   int64            `json:"lastProgress,omitempty"`
	Progress       string           `json:"progress,omitempty"`
	SeenReady      int32            `json:"seenReady,omitempty"`
	SeenAvailable  int32            `json:"seenAvailable,omitempty"`
	SeenOld        int32            `json:"seenOld,omitempty"`
	FailingSince   int64            `json:"failingSince,omitempty"`
	TroubleSince   int64            `json:"troubleSince,omitempty"`
}

const selectRollout = `SELECT id, application_id, COALESCE(deployment_id, ''), stage_id, cluster, phase, body, version, started_at, created_at, updated_at, completed_at FROM rollouts`

func scanRollout(row scanner) (r deploy.Rollout, err error) { return scanRolloutAnd(row) }

// scanRolloutAnd scans a row that has more columns than selectRollout names, which
// go into also.
func scanRolloutAnd(row scanner, also ...any) (r deploy.Rollout, err error) {
	var text string
	var startedAt, createdAt, updatedAt, completedAt int64
	into := []any{&r.ID, &r.ApplicationID, &r.DeploymentID, &r.StageID, &r.Cluster, &r.Phase, &text, &r.Version,
		&startedAt, &createdAt, &updatedAt, &completedAt}
	if err := row.Scan(append(into, also...)...); err != nil {
		return r, err
	}
	var b rolloutBody
	if err := decode(text, &b); err != nil {
		return r, err
	}
	r.Workload, r.UID, r.Reason, r.ChangedBy = b.Workload, b.UID, b.Reason, b.ChangedBy
	r.IntentDigest, r.LiveBefore, r.TemplateDigest = b.IntentDigest, b.LiveBefore, b.TemplateDigest
	r.Generation, r.TargetUID, r.TargetName, r.Revision, r.DesiredAtStart = b.Generation, b.TargetUID, b.TargetName, b.Revision, b.DesiredAtStart
	r.Images = b.Images
	r.AppliedAt, r.LastProgress, r.Progress = fromMilli(b.AppliedAt), fromMilli(b.LastProgress), b.Progress
	r.ReplicasBefore, r.ProvenBefore, r.TemplateBase = b.ReplicasBefore, b.ProvenBefore, b.TemplateBase
	r.FollowedDigest, r.FollowedAt = b.FollowedDigest, fromMilli(b.FollowedAt)
	r.SeenReady, r.SeenAvailable, r.SeenOld = b.SeenReady, b.SeenAvailable, b.SeenOld
	r.FailingSince, r.TroubleSince = fromMilli(b.FailingSince), fromMilli(b.TroubleSince)
	r.StartedAt, r.CreatedAt = fromMilli(startedAt), fromMilli(createdAt)
	r.UpdatedAt, r.CompletedAt = fromMilli(updatedAt), fromMilli(completedAt)
	return r, nil
}

func rolloutText(r deploy.Rollout) (string, error) {
	return encode(rolloutBody{
		Workload: r.Workload, UID: r.UID, Reason: r.Reason, ChangedBy: r.ChangedBy, IntentDigest: r.IntentDigest, LiveBefore: r.LiveBefore,
		TemplateDigest: r.TemplateDigest, Images: r.Images, Generation: r.Generation, TargetUID: r.TargetUID, TargetName: r.TargetName,
		Revision: r.Revision, DesiredAtStart: r.DesiredAtStart, AppliedAt: toMilli(r.AppliedAt),
		LastProgress: toMilli(r.LastProgress), Progress: r.Progress,
		ReplicasBefore: r.ReplicasBefore, ProvenBefore: r.ProvenBefore, TemplateBase: r.TemplateBase,
		FollowedDigest: r.FollowedDigest, FollowedAt: toMilli(r.FollowedAt),
		SeenReady: r.SeenReady, SeenAvailable: r.SeenAvailable, SeenOld: r.SeenOld,
		FailingSince: toMilli(r.FailingSince), TroubleSince: toMilli(r.TroubleSince),
	})
}

// SaveRollout stores a rollout record and returns it as stored, with its next
// version: a new record when its version is 0, otherwise over the version it
// was read at. A write with a terminal phase ends the rollout, once, and puts
// the event that says so into the outbox. The end is now, but of an external
// rollout it is CompletedAt, if set; of these the last externalKept of each
// workload are kept. Conflict if the record exists
// already, was written meanwhile, or has ended: then nothing is written.
func (s *Store) SaveRollout(ctx context.Context, r deploy.Rollout) (deploy.Rollout, error) {
	if r.ID == "" {
		return deploy.Rollout{}, deploy.Errorf(deploy.Invalid, "a rollout record needs an ID")
	}
	now := s.now()
	if r.Version == 0 {
		r.CreatedAt, r.StartedAt = now, startOf(r, now)
	}
	r.UpdatedAt = now
	switch {
	case !r.Phase.Terminal():
		r.CompletedAt = time.Time{}
	case !r.External() || r.CompletedAt.IsZero():
		r.CompletedAt = now
	}
	for _, at := range []*time.Time{&r.AppliedAt, &r.LastProgress, &r.FollowedAt, &r.FailingSince, &r.TroubleSince, &r.CompletedAt, &r.StartedAt} {
		*at = milli(*at)
	}
	text, err := rolloutText(r)
	if err != nil {
		return deploy.Rollout{}, s.fail(err, "save rollout "+r.ID)
	}
	err = s.write(ctx, func(t *tx) error {
		if err := t.saveRollout(ctx, r, text); err != nil {
			return err
		}
		t.changed(deploy.TopicRollout, r.ID, r.ApplicationID)
		if r.External() && r.Version == 0 {
			if err := t.dropOldExternal(ctx, r); err != nil {
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
	return r, nil
}

// startOf returns when a new rollout began. Clusters tell times in whole seconds: what
// began in one began after what is known to have begun in it.
func startOf(r deploy.Rollout, now time.Time) time.Time {
	at := r.AppliedAt
	if !r.External() || at.IsZero() {
		return now
	}
	if at.Equal(at.Truncate(time.Second)) {
		at = at.Add(time.Second - time.Millisecond)
	}
	if at.After(now) {
		return now
	}
	return at
}

func (t *tx) saveRollout(ctx context.Context, r deploy.Rollout, text string) (err error) {
	var n int64
	if r.Version == 0 {
		n, err = t.exec(ctx, `INSERT INTO rollouts (id, application_id, deployment_id, stage_id, cluster, workload, phase, terminal, body, version,
			started_at, created_at, updated_at, completed_at) VALUES (?, ?, NULLIF(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
			r.ID, r.ApplicationID, r.DeploymentID, r.StageID, r.Cluster, r.Workload.Key(), string(r.Phase), r.Phase.Terminal(), text, 1,
			toMilli(r.StartedAt), toMilli(r.CreatedAt), toMilli(r.UpdatedAt), toMilli(r.CompletedAt))
	} else {
		n, err = t.exec(ctx, `UPDATE rollouts SET phase = ?, terminal = ?, body = ?, version = version + 1, updated_at = ?, completed_at = ?
			WHERE id = ? AND version = ? AND terminal = FALSE`,
			string(r.Phase), r.Phase.Terminal(), text, toMilli(r.UpdatedAt), toMilli(r.CompletedAt), r.ID, r.Version)
	}
	if err == nil && n == 0 {
		err = deploy.Errorf(deploy.Conflict, "rollout %s was written meanwhile or has ended: read it again", r.ID)
	}
	return err
}

// externalKept is how many external rollouts of a workload are kept.
const externalKept = 20

// dropOldExternal forgets the ended external rollouts of r's workload but the
// newest.
func (t *tx) dropOldExternal(ctx context.Context, r deploy.Rollout) error {
	_, err := t.exec(ctx, `DELETE FROM rollouts WHERE cluster = ? AND workload = ? AND deployment_id IS NULL AND terminal = TRUE AND id NOT IN (
		SELECT id FROM rollouts WHERE cluster = ? AND workload = ? AND deployment_id IS NULL ORDER BY created_at DESC, id DESC LIMIT ?)`,
		r.Cluster, r.Workload.Key(), r.Cluster, r.Workload.Key(), externalKept)
	return err
}

func (t *tx) announceEnd(r deploy.Rollout) error {
	if !r.Phase.Terminal() {
		return nil
	}
	payload, err := json.Marshal(map[string]any{"cluster": r.Cluster, "workload": r.Workload, "phase": r.Phase, "reason": r.Reason})
	if err != nil {
		return err
	}
	t.events = append(t.events, deploy.Event{
		Key: r.ID, Type: deploy.EventRolloutEnded, ApplicationID: r.ApplicationID, DeploymentID: r.DeploymentID,
		StageID: r.StageID, Payload: payload, At: r.UpdatedAt,
	})
	return nil
}

// RolloutQuery selects rollout records; zero fields ask for nothing.
type RolloutQuery struct {
	DeploymentID  string
	StageID       string
	ApplicationID string
	Cluster       string
	Workload      deploy.ObjectRef // of any version
	OpenOnly      bool             // those that have not ended
	External      bool             // those that no deployment began
	Limit         int              // 0: no limit
}

// Rollouts returns rollout records, the newest first, then by ID.
func (s *Store) Rollouts(ctx context.Context, q RolloutQuery) ([]deploy.Rollout, error) {
	var f filter
	f.equal("deployment_id", q.DeploymentID)
	f.equal("stage_id", q.StageID)
	f.equal("application_id", q.ApplicationID)
	f.equal("cluster", q.Cluster)
	if q.Workload != (deploy.ObjectRef{}) {
		f.equal("workload", q.Workload.Key())
	}
	if q.External {
		f.add("deployment_id IS NULL")
	}
	if q.OpenOnly {
		f.add("terminal = FALSE")
	}
	query := f.limit(selectRollout+f.where()+" ORDER BY created_at DESC, id", q.Limit)
	rs, err := all(ctx, s, scanRollout, query, f.args...)
	return rs, s.fail(err, "list rollouts")
}
