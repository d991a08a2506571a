package store

import (
	"cmp"
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// rolloutBody is what is only carried of a rollout record.
type rolloutBody struct {
	Workload       deploy.ObjectRef `json:"workload"`
	UID            string           `json:"uid,omitempty"`
	Reason         string           `json:"reason,omitempty"`
	ChangedBy      string           `json:"changedBy,omitempty"`
	SupersededBy   string           `json:"supersededBy,omitempty"`
	Application    string           `json:"application,omitempty"` // its name
	Commit         string           `json:"commit,omitempty"`
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
	ReplicasAfter  *int32           `json:"replicasAfter,omitempty"` // nil in rows that are older than it
	ScheduleMillis *int64           `json:"scheduleMillis,omitempty"`
	PullMillis     *int64           `json:"pullMillis,omitempty"`
	ReadyMillis    *int64           `json:"readyMillis,omitempty"`
	ProvenBefore   bool             `json:"provenBefore,omitempty"`
	TemplateBase   string           `json:"templateBase,omitempty"`
	FollowedDigest string           `json:"followedDigest,omitempty"`
	FollowedAt     int64            `json:"followedAt,omitempty"`
	FollowedBy     string           `json:"followedBy,omitempty"`
	Followed       int32            `json:"followed,omitempty"`
	Annotations    string           `json:"templateAnnotations,omitempty"`
	Served         bool             `json:"served,omitempty"`
	PausedInGit    bool             `json:"pausedInGit,omitempty"`
	Rewritten      bool             `json:"rewritten,omitempty"`
	AppliedAt      int64            `json:"appliedAt,omitempty"`
	ServerApplied  int64            `json:"serverAppliedAt,omitempty"`
	ResumedAt      int64            `json:"resumedAt,omitempty"`
	LastProgress   int64            `json:"lastProgress,omitempty"`
	Progress       string           `json:"progress,omitempty"`
	SeenReady      int32            `json:"seenReady,omitempty"`
	SeenAvailable  int32            `json:"seenAvailable,omitempty"`
	SeenOld        int32            `json:"seenOld,omitempty"`
	SeenStopping   int32            `json:"seenStopping,omitempty"`
	FailingSince   int64            `json:"failingSince,omitempty"`
	TroubleSince   int64            `json:"troubleSince,omitempty"`
}

const selectRollout = `SELECT id, kind, application_id, COALESCE(deployment_id, ''), stage_id, cluster, phase, body, version, started_at, created_at, updated_at, completed_at FROM rollouts`

func scanRollout(row scanner) (r deploy.Rollout, err error) { return scanRolloutAnd(row) }

// scanRolloutAnd scans a row that has more columns than selectRollout names, which
// go into also.
func scanRolloutAnd(row scanner, also ...any) (r deploy.Rollout, err error) {
	var text string
	var startedAt, createdAt, updatedAt, completedAt int64
	into := []any{&r.ID, &r.Kind, &r.ApplicationID, &r.DeploymentID, &r.StageID, &r.Cluster, &r.Phase, &text, &r.Version,
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
	r.Images, r.SupersededBy, r.ApplicationName, r.Commit = b.Images, b.SupersededBy, b.Application, b.Commit
	r.ReplicasAfter = r.DesiredAtStart
	if b.ReplicasAfter != nil {
		r.ReplicasAfter = *b.ReplicasAfter
	}
	r.Parts = deploy.RolloutParts{
		Schedule: deploy.TookMillis(b.ScheduleMillis), Pull: deploy.TookMillis(b.PullMillis), Ready: deploy.TookMillis(b.ReadyMillis),
	}
	r.AppliedAt, r.LastProgress, r.Progress = fromMilli(b.AppliedAt), fromMilli(b.LastProgress), b.Progress
	r.ReplicasBefore, r.ProvenBefore, r.TemplateBase = b.ReplicasBefore, b.ProvenBefore, b.TemplateBase
	r.FollowedDigest, r.FollowedAt, r.FollowedBy, r.Followed = b.FollowedDigest, fromMilli(b.FollowedAt), b.FollowedBy, b.Followed
	r.ServerAppliedAt, r.ResumedAt = fromMilli(b.ServerApplied), fromMilli(b.ResumedAt)
	r.TemplateAnnotations, r.Served, r.PausedInGit, r.Rewritten = b.Annotations, b.Served, b.PausedInGit, b.Rewritten
	r.SeenReady, r.SeenAvailable, r.SeenOld, r.SeenStopping = b.SeenReady, b.SeenAvailable, b.SeenOld, b.SeenStopping
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
		FollowedDigest: r.FollowedDigest, FollowedAt: toMilli(r.FollowedAt), FollowedBy: r.FollowedBy, Followed: r.Followed,
		ServerApplied: toMilli(r.ServerAppliedAt), ResumedAt: toMilli(r.ResumedAt), Annotations: r.TemplateAnnotations, Served: r.Served, PausedInGit: r.PausedInGit, Rewritten: r.Rewritten,
		SeenReady: r.SeenReady, SeenAvailable: r.SeenAvailable, SeenOld: r.SeenOld, SeenStopping: r.SeenStopping,
		FailingSince: toMilli(r.FailingSince), TroubleSince: toMilli(r.TroubleSince),
		SupersededBy: r.SupersededBy, Application: r.ApplicationName, Commit: r.Commit, ReplicasAfter: &r.ReplicasAfter,
		ScheduleMillis: r.Parts.Schedule.Millis(), PullMillis: r.Parts.Pull.Millis(), ReadyMillis: r.Parts.Ready.Millis(),
	})
}

// SaveRollout stores a rollout record and returns it as stored, with its next
// version: a new record when its version is 0, otherwise over the version it
// was read at. A write with a terminal phase ends the rollout, once, and puts
// the event that says so into the outbox. The end is CompletedAt, if set and not
// still to come, else now. Of what no deployment began, the last keptPerWorkload of
// each workload and kind are kept. Conflict if the record exists already, was written
// meanwhile, or has ended: then nothing is written.
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
		if err := t.saveRollout(ctx, r); err != nil {
			return err
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

// dated returns r with its times as they are stored, now.
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

// startOf returns when a rollout began. Clusters tell times in whole seconds: what
// began in one began after what is known to have begun in it.
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
		err = deploy.Errorf(deploy.Conflict, "rollout %s was written meanwhile or has ended: read it again", r.ID)
	}
	return err
}

// keptPerWorkload is how many external rollouts of a workload are kept, and how many
// of its scalings. Those of deployments go with their deployment.
const keptPerWorkload = 200

// dropOldRollouts forgets what has ended of r's workload and kind, and no deployment
// began, but the newest.
func (t *tx) dropOldRollouts(ctx context.Context, r deploy.Rollout) error {
	_, err := t.exec(ctx, `DELETE FROM rollouts WHERE cluster = ? AND workload = ? AND kind = ? AND deployment_id IS NULL AND terminal = TRUE AND id NOT IN (
		SELECT id FROM rollouts WHERE cluster = ? AND workload = ? AND kind = ? AND deployment_id IS NULL ORDER BY created_at DESC, id DESC LIMIT ?)`,
		r.Cluster, r.Workload.Key(), string(r.Kind), r.Cluster, r.Workload.Key(), string(r.Kind), keptPerWorkload)
	return err
}

// announceEnd tells of an end. That of a scaling is an event of its own, so that who
// wants to know of rollouts is not told of what autoscalers do.
func (t *tx) announceEnd(r deploy.Rollout) error {
	if !r.Phase.Terminal() {
		return nil
	}
	end := r.Ended()
	payload := deploy.EventPayload{
		Application: r.ApplicationName, Reason: r.Reason, Cluster: r.Cluster, Workload: &r.Workload, Phase: r.Phase, Rollout: &end,
	}
	kind := deploy.EventRolloutEnded
	if r.Kind == deploy.RolloutKindScaling {
		kind = deploy.EventScalingEnded
	}
	t.events = append(t.events, deploy.Event{
		Key: r.ID, Type: kind, ApplicationID: r.ApplicationID, DeploymentID: r.DeploymentID,
		StageID: r.StageID, Payload: payload.JSON(), At: r.UpdatedAt,
	})
	return nil
}

// RolloutQuery selects rollout records; zero fields ask for nothing.
type RolloutQuery struct {
	Kind          deploy.RolloutKind // "" asks for rollouts
	DeploymentID  string
	StageID       string
	ApplicationID string
	Cluster       string
	Workload      deploy.ObjectRef // of any version
	WorkloadKind  string           // of group apps
	OpenOnly      bool             // those that have not ended
	External      bool             // those that no deployment began
	Limit         int              // 0: no limit
}

// filter returns the conditions. Each is written so that SQLite searches the index that
// leaves the fewest: what has not ended is few of all there is, nearly all is of one
// kind, and of one cluster.
func (q RolloutQuery) filter() (f filter) {
	kind, broad := f.sift, f.equal
	if q.OpenOnly {
		f.add("terminal = FALSE")
		broad = f.sift
	}
	if q.Workload != (deploy.ObjectRef{}) {
		f.equal("workload", q.Workload.Key())
		kind = f.equal // of the workload's index
	}
	kind("kind", string(cmp.Or(q.Kind, deploy.RolloutKindRollout)))
	f.equal("deployment_id", q.DeploymentID)
	f.equal("stage_id", q.StageID)
	broad("application_id", q.ApplicationID)
	broad("cluster", q.Cluster)
	if q.WorkloadKind != "" {
		prefix := "apps/" + q.WorkloadKind + "/"
		f.add("workload > ? AND workload LIKE ?", prefix, prefix+"%") // an index is searched for the first
	}
	if q.External {
		f.add("COALESCE(deployment_id, '') = ''")
	}
	return f
}

// Rollouts returns rollout records, the newest first, then by ID.
func (s *Store) Rollouts(ctx context.Context, q RolloutQuery) ([]deploy.Rollout, error) {
	f := q.filter()
	query := f.limit(selectRollout+f.where()+" ORDER BY created_at DESC, id", q.Limit)
	rs, err := all(ctx, s, scanRollout, query, f.args...)
	return rs, s.fail(err, "list rollouts")
}
