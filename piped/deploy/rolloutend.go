package deploy

import (
	"strings"
	"time"
)

// RolloutEnd is a completed rollout or scaling as its event carries it. Times are unix
// milliseconds; durations that were not measured are nil.
type RolloutEnd struct {
	ID              string       `json:"id"`
	Kind            RolloutKind  `json:"kind"`
	ApplicationID   string       `json:"applicationID"`
	ApplicationName string       `json:"applicationName,omitempty"`
	DeploymentID    string       `json:"deploymentID,omitempty"`
	StageID         string       `json:"stageID,omitempty"`
	Commit          string       `json:"commit,omitempty"`
	Cluster         string       `json:"cluster"`
	Workload        ObjectRef    `json:"workload"`
	UID             string       `json:"uid,omitempty"`
	Revision        int64        `json:"revision,omitempty"`
	RevisionName    string       `json:"revisionName,omitempty"`
	Images          []string     `json:"images,omitempty"`
	Phase           RolloutPhase `json:"phase"`
	Reason          string       `json:"reason,omitempty"`
	ChangedBy       string       `json:"changedBy,omitempty"`
	SupersededBy    string       `json:"supersededBy,omitempty"`
	StartedAt       int64        `json:"startedAt"`
	CompletedAt     int64        `json:"completedAt"`
	MarkedAt        int64        `json:"markedAt"`
	ScheduleMillis  *int64       `json:"scheduleMillis,omitempty"`
	PullMillis      *int64       `json:"pullMillis,omitempty"`
	ReadyMillis     *int64       `json:"readyMillis,omitempty"`
	FromReplicas    int32        `json:"fromReplicas"`
	ToReplicas      int32        `json:"toReplicas"`
}

// Ended returns the event data of a completed rollout.
func (r Rollout) Ended() RolloutEnd {
	return RolloutEnd{
		ID: r.ID, Kind: r.Kind, ApplicationID: r.ApplicationID, ApplicationName: r.ApplicationName,
		DeploymentID: r.DeploymentID, StageID: r.StageID, Commit: r.Commit, Cluster: r.Cluster, Workload: r.Workload, UID: r.UID,
		Revision: r.Revision, RevisionName: r.TargetName, Images: strings.Fields(r.Images),
		Phase: r.Phase, Reason: r.Reason, ChangedBy: r.ChangedBy, SupersededBy: r.SupersededBy,
		StartedAt: r.StartedAt.UnixMilli(), CompletedAt: r.CompletedAt.UnixMilli(), MarkedAt: r.UpdatedAt.UnixMilli(),
		ScheduleMillis: r.Parts.Schedule.Millis(), PullMillis: r.Parts.Pull.Millis(), ReadyMillis: r.Parts.Ready.Millis(),
		FromReplicas: r.ReplicasBefore, ToReplicas: r.ReplicasAfter,
	}
}

// Millis returns the duration in milliseconds, nil when it was not measured.
func (t Took) Millis() *int64 {
	if !t.Measured {
		return nil
	}
	ms := t.Time.Milliseconds()
	return &ms
}

// TookMillis is the inverse of Took.Millis.
func TookMillis(ms *int64) Took {
	if ms == nil {
		return Took{}
	}
	return Took{Measured: true, Time: time.Duration(*ms) * time.Millisecond}
}
