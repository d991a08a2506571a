package bigquery

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// row is a row of the table, by the names of its columns. What is nil is NULL.
type row struct {
	ID              string   `json:"id"`
	Kind            string   `json:"kind"`
	ApplicationID   string   `json:"application_id"`
	ApplicationName string   `json:"application_name"`
	DeploymentID    string   `json:"deployment_id"`
	StageID         string   `json:"stage_id"`
	Cluster         string   `json:"cluster"`
	WorkloadKind    string   `json:"workload_kind"`
	Namespace       string   `json:"namespace"`
	Workload        string   `json:"workload"`
	UID             string   `json:"uid"`
	Revision        int64    `json:"revision"`
	RevisionName    string   `json:"revision_name"`
	Commit          string   `json:"commit"`
	Images          []string `json:"images"`
	Outcome         string   `json:"outcome"`
	Reason          string   `json:"reason"`
	CausedBy        string   `json:"caused_by"`
	SupersededBy    string   `json:"superseded_by"`
	StartedAt       string   `json:"started_at"`
	CompletedAt     string   `json:"completed_at"`
	MarkedAt        string   `json:"marked_at"`
	DurationMillis  int64    `json:"duration_ms"`
	ScheduleMillis  *int64   `json:"schedule_ms"`
	PullMillis      *int64   `json:"pull_ms"`
	ReadyMillis     *int64   `json:"ready_ms"`
	FromReplicas    int32    `json:"from_replicas"`
	ToReplicas      int32    `json:"to_replicas"`
}

// outcomes are the phases in which records end, as the API names them.
var outcomes = map[deploy.RolloutPhase]string{
	deploy.RolloutNoRollout: "NO_ROLLOUT", deploy.RolloutComplete: "COMPLETE", deploy.RolloutFailed: "FAILED",
	deploy.RolloutSuperseded: "SUPERSEDED", deploy.RolloutGone: "GONE", deploy.RolloutTimedOut: "TIMED_OUT",
}

// rowOf returns the row of a record.
func rowOf(r deploy.RolloutEnd) row {
	images := r.Images
	if images == nil {
		images = []string{} // a repeated column takes no NULL
	}
	return row{
		ID: r.ID, Kind: string(r.Kind), ApplicationID: r.ApplicationID, ApplicationName: r.ApplicationName,
		DeploymentID: r.DeploymentID, StageID: r.StageID, Cluster: r.Cluster,
		WorkloadKind: r.Workload.Kind, Namespace: r.Workload.Namespace, Workload: r.Workload.Name, UID: r.UID,
		Revision: r.Revision, RevisionName: r.RevisionName, Commit: r.Commit, Images: images,
		Outcome: outcomes[r.Phase], Reason: r.Reason, CausedBy: r.ChangedBy, SupersededBy: r.SupersededBy,
		StartedAt: timestamp(r.StartedAt), CompletedAt: timestamp(r.CompletedAt), MarkedAt: timestamp(r.MarkedAt),
		DurationMillis: r.CompletedAt - r.StartedAt,
		ScheduleMillis: r.ScheduleMillis, PullMillis: r.PullMillis, ReadyMillis: r.ReadyMillis,
		FromReplicas: r.FromReplicas, ToReplicas: r.ToReplicas,
	}
}

func timestamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

// longestInsertID is how long BigQuery lets an insert ID be.
const longestInsertID = 128

// insertID is the record's ID, or what stands for one that is too long.
func insertID(id string) string {
	if len(id) <= longestInsertID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
