package deploy

import (
	"encoding/json"
	"strings"
	"time"
)

// RolloutEnd is a rollout or scaling in the form of its events. Times are Unix milliseconds.
// MarkedAt is when the end was stored. At the start of a rollout, CompletedAt and MarkedAt are 0.
type RolloutEnd struct {
	ID              string      `json:"id"`
	Kind            RolloutKind `json:"kind"`
	ApplicationID   string      `json:"applicationID"`
	ApplicationName string      `json:"applicationName,omitempty"`
	DeploymentID    string      `json:"deploymentID,omitempty"`
	StageID         string      `json:"stageID,omitempty"`
	Commit          string      `json:"commit,omitempty"`
	Cluster         string      `json:"cluster"`
	Workload        ObjectRef   `json:"workload"`
	UID             string      `json:"uid,omitempty"`
	// SourceRepository and SourceCommit are not trusted: see Rollout.
	SourceRepository string       `json:"sourceRepository,omitempty"`
	SourceCommit     string       `json:"sourceCommit,omitempty"`
	Revision         int64        `json:"revision,omitempty"`
	RevisionName     string       `json:"revisionName,omitempty"`
	Images           []string     `json:"images,omitempty"`
	ImagesBefore     []string     `json:"imagesBefore,omitempty"`
	FoundLate        bool         `json:"foundLate,omitempty"`
	Phase            RolloutPhase `json:"phase"`
	Reason           string       `json:"reason,omitempty"`
	ChangedBy        string       `json:"changedBy,omitempty"`
	SupersededBy     string       `json:"supersededBy,omitempty"`
	StartedAt        int64        `json:"startedAt"`
	CompletedAt      int64        `json:"completedAt"`
	MarkedAt         int64        `json:"markedAt"`
	RecoveredAt      int64        `json:"recoveredAt,omitempty"` // when a failed rollout completed after all
	RolloutParts
	FromReplicas int32 `json:"fromReplicas"`
	ToReplicas   int32 `json:"toReplicas"`
}

// Begun reports whether the workload rolls or rolled out to the record's template: it is not
// known before the first evaluation after the apply. A record whose template was not applied,
// or was live before, never begins.
func (r Rollout) Begun() bool {
	switch r.Phase {
	case RolloutProgressing, RolloutHeld:
		return true
	case RolloutIntent, RolloutApplied, RolloutNoRollout:
		return false
	}
	return r.External() || !r.AppliedAt.IsZero()
}

// Started returns the event data of a rollout that begins.
func (r Rollout) Started() RolloutEnd {
	e := r.Ended()
	e.Phase, e.Reason, e.SupersededBy, e.CompletedAt, e.MarkedAt = RolloutProgressing, "", "", 0, 0
	e.RolloutParts = RolloutParts{}
	return e
}

// Ended returns the event data of a completed rollout.
func (r Rollout) Ended() RolloutEnd {
	e := RolloutEnd{
		ID: r.ID, Kind: r.Kind, ApplicationID: r.ApplicationID, ApplicationName: r.ApplicationName,
		DeploymentID: r.DeploymentID, StageID: r.StageID, Commit: r.Commit, Cluster: r.Cluster, Workload: r.Workload, UID: r.UID,
		SourceRepository: r.SourceRepository, SourceCommit: r.SourceCommit,
		Revision: r.Revision, RevisionName: r.TargetName, Images: strings.Fields(r.Images),
		ImagesBefore: strings.Fields(r.ImagesBefore), FoundLate: r.FoundLate,
		Phase: r.Phase, Reason: r.Reason, ChangedBy: r.ChangedBy, SupersededBy: r.SupersededBy,
		StartedAt: r.StartedAt.UnixMilli(), CompletedAt: r.CompletedAt.UnixMilli(), MarkedAt: r.UpdatedAt.UnixMilli(),
		RolloutParts: r.Parts, FromReplicas: r.ReplicasBefore, ToReplicas: r.ReplicasAfter,
	}
	if !r.RecoveredAt.IsZero() {
		e.RecoveredAt = r.RecoveredAt.UnixMilli()
	}
	return e
}

// Took returns how long the rollout took, 0 if it has not ended.
func (e RolloutEnd) Took() time.Duration {
	if e.CompletedAt == 0 {
		return 0
	}
	return time.Duration(e.CompletedAt-e.StartedAt) * time.Millisecond
}

// Millis returns the duration in milliseconds, nil when it was not measured.
func (t Took) Millis() *int64 {
	if !t.Measured {
		return nil
	}
	ms := t.Time.Milliseconds()
	return &ms
}

// IsZero reports whether t was not measured.
func (t Took) IsZero() bool { return !t.Measured }

// MarshalJSON implements json.Marshaler.
func (t Took) MarshalJSON() ([]byte, error) { return json.Marshal(t.Millis()) }

// UnmarshalJSON implements json.Unmarshaler.
func (t *Took) UnmarshalJSON(text []byte) error {
	var ms *int64
	if err := json.Unmarshal(text, &ms); err != nil {
		return err
	}
	*t = Took{}
	if ms != nil {
		*t = Took{Measured: true, Time: time.Duration(*ms) * time.Millisecond}
	}
	return nil
}
