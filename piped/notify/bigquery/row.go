package bigquery

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/rolloutrow"
)

// outcomes maps the final phases of records to the API's names.
var outcomes = map[deploy.RolloutPhase]string{
	deploy.RolloutNoRollout: "NO_ROLLOUT", deploy.RolloutComplete: "COMPLETE", deploy.RolloutFailed: "FAILED",
	deploy.RolloutSuperseded: "SUPERSEDED", deploy.RolloutGone: "GONE", deploy.RolloutTimedOut: "TIMED_OUT",
}

// rowOf returns the row of a record.
func rowOf(r deploy.RolloutEnd) rolloutrow.Row {
	return rolloutrow.Row{
		ID: r.ID, Kind: string(r.Kind), ApplicationID: r.ApplicationID, ApplicationName: r.ApplicationName,
		DeploymentID: r.DeploymentID, StageID: r.StageID, Cluster: r.Cluster,
		WorkloadKind: r.Workload.Kind, Namespace: r.Workload.Namespace, Workload: r.Workload.Name, UID: r.UID,
		Revision: r.Revision, RevisionName: r.RevisionName, Commit: r.Commit, Images: append([]string{}, r.Images...),
		Outcome: outcomes[r.Phase], Reason: r.Reason, CausedBy: r.ChangedBy, SupersededBy: r.SupersededBy,
		StartedAt: rolloutrow.At(r.StartedAt), CompletedAt: rolloutrow.At(r.CompletedAt), MarkedAt: rolloutrow.At(r.MarkedAt),
		DurationMillis: rolloutrow.Took(r.StartedAt, r.CompletedAt),
		ScheduleMillis: r.Schedule.Millis(), PullMillis: r.Pull.Millis(), ReadyMillis: r.Ready.Millis(),
		FromReplicas: r.FromReplicas, ToReplicas: r.ToReplicas,
	}
}

// longestInsertID is BigQuery's limit on the length of an insert ID.
const longestInsertID = 128

// insertID returns id, or its SHA-256 sum if id is too long.
func insertID(id string) string {
	if len(id) <= longestInsertID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
