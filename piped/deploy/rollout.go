package deploy

import (
	"strconv"
	"time"
)

// ObjectRef names a Kubernetes object of one cluster.
type ObjectRef struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // "" for cluster-scoped kinds
	Name      string `json:"name"`
}

// String returns "Kind namespace/name".
func (r ObjectRef) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Key identifies the object regardless of its API version: "group/Kind/namespace/name".
func (r ObjectRef) Key() string { return r.Group + "/" + r.Kind + "/" + r.Namespace + "/" + r.Name }

// RolloutPhase is the state of one rollout record.
type RolloutPhase string

// The phases of a rollout. Intent is written before the workload is applied, Applied
// right after. Terminal phases never change.
const (
	RolloutIntent      RolloutPhase = "Intent"
	RolloutApplied     RolloutPhase = "Applied"
	RolloutProgressing RolloutPhase = "Progressing"
	RolloutHeld        RolloutPhase = "Held" // paused: deadlines are suspended

	RolloutNoRollout  RolloutPhase = "NoRollout" // nothing to wait for
	RolloutComplete   RolloutPhase = "Complete"
	RolloutFailed     RolloutPhase = "Failed"
	RolloutSuperseded RolloutPhase = "Superseded" // replaced by another template
	RolloutGone       RolloutPhase = "Gone"       // the workload was deleted
	RolloutTimedOut   RolloutPhase = "TimedOut"
)

// Terminal reports whether p is final.
func (p RolloutPhase) Terminal() bool {
	switch p {
	case RolloutNoRollout, RolloutComplete, RolloutFailed, RolloutSuperseded, RolloutGone, RolloutTimedOut:
		return true
	}
	return false
}

// RolloutKind is the kind of a rollout record.
type RolloutKind string

// The kinds of records. A record stored without a kind is a rollout.
const (
	RolloutKindRollout RolloutKind = "ROLLOUT" // new pods from a changed template
	RolloutKindScaling RolloutKind = "SCALING" // more or fewer pods of the same template
)

// Rollout is the persistent record of one workload's rollout by one stage. There is exactly
// one per (stage, cluster, workload), and it ends in exactly one terminal phase. An external
// rollout, which no deployment of this agent started, is one revision of a workload. It may
// belong to no application.
//
// The JSON form is what the store writes in addition to the columns of the row. It omits the
// values of the columns, and the times and values that the store encodes itself.
//
// A scaling is recorded the same way. It belongs to no deployment and has the phases
// Progressing, Complete, Superseded, Gone and TimedOut.
type Rollout struct {
	ID              string      `json:"-"` // RolloutID, ExternalRolloutID or ScalingID
	Kind            RolloutKind `json:"-"`
	ApplicationID   string      `json:"-"`
	ApplicationName string      `json:"application,omitempty"` // at the begin of the record; "" when unknown
	DeploymentID    string      `json:"-"`                     // "" if external, as is StageID
	StageID         string      `json:"-"`
	Commit          string      `json:"commit,omitempty"` // source of the template; "" if external
	Cluster         string      `json:"-"`
	Workload        ObjectRef   `json:"workload"`
	UID             string      `json:"uid,omitempty"` // of the workload, set after the apply

	Phase  RolloutPhase `json:"-"`
	Reason string       `json:"reason,omitempty"` // why the phase was entered, for users

	// ChangedBy is the field manager that wrote the template of an external rollout, or
	// the replicas of a scaling; "" if unknown. SupersededBy is the manager that wrote
	// the superseding template.
	ChangedBy    string `json:"changedBy,omitempty"`
	SupersededBy string `json:"supersededBy,omitempty"`

	// IntentDigest is the digest of the template to apply, as the API server would
	// return it ("" when unknown). LiveBefore is the digest of the live template before
	// the first apply, "" without a workload. With it, a repeated apply after a crash
	// can distinguish a rollout from an unchanged template.
	IntentDigest string `json:"intentDigest,omitempty"`
	LiveBefore   string `json:"liveBefore,omitempty"`

	TemplateDigest string       `json:"templateDigest,omitempty"` // of the applied template, as the API server returned it
	Images         string       `json:"images,omitempty"`         // of its containers, in order, separated by spaces; "" when unknown
	ImagesBefore   string       `json:"imagesBefore,omitempty"`   // of the template that was replaced; "" when unknown
	Generation     int64        `json:"generation,omitempty"`     // metadata.generation after the apply
	TargetUID      string       `json:"targetUID,omitempty"`      // the ReplicaSet with the template
	TargetName     string       `json:"targetName,omitempty"`     // its name; of a StatefulSet the ControllerRevision
	Revision       int64        `json:"revision,omitempty"`       // 0 when unknown, and of the agent's own rollouts of StatefulSets, whose revisions have names
	DesiredAtStart int32        `json:"desiredAtStart,omitempty"`
	ReplicasBefore int32        `json:"replicasBefore,omitempty"` // spec.replicas before the first apply, or when first seen
	ReplicasAfter  int32        `json:"-"`                        // spec.replicas at the last evaluation
	Parts          RolloutParts `json:"-"`

	// SourceRepository and SourceCommit are what annotations of the workload name as its
	// source. Anyone who may write the workload can set them.
	SourceRepository string `json:"sourceRepository,omitempty"`
	SourceCommit     string `json:"sourceCommit,omitempty"`

	// FoundLate reports that an external rollout began while the agent was not watching.
	FoundLate bool `json:"foundLate,omitempty"`

	// RecoveredAt is when a failed external rollout completed after all, the zero time if it
	// did not.
	RecoveredAt time.Time `json:"-"`

	// PausedInGit reports that the rollout ended because Git pauses the workload.
	PausedInGit bool `json:"pausedInGit,omitempty"`

	// Rewritten reports that the API server returned different templates for the apply
	// and its dry run, or for two equal applies. A mutating webhook that writes a new
	// value each time causes that.
	Rewritten bool `json:"rewritten,omitempty"`

	// ProvenBefore reports that an earlier rollout of the current live template succeeded. If
	// the template does not change, unavailable pods are then no reason to wait.
	ProvenBefore bool `json:"provenBefore,omitempty"`

	// TemplateBase is TemplateDigest computed without the template's annotations.
	// TemplateAnnotations lists the template annotations that the agent applied, with a
	// hash of each value ("" for none). FollowedDigest, when set, replaces
	// TemplateDigest as the awaited template: field manager FollowedBy restarted the
	// workload at FollowedAt (cluster time) by changing only other annotations.
	// Followed counts such restarts.
	TemplateBase        string    `json:"templateBase,omitempty"`
	TemplateAnnotations string    `json:"templateAnnotations,omitempty"`
	FollowedDigest      string    `json:"followedDigest,omitempty"`
	FollowedAt          time.Time `json:"-"`
	FollowedBy          string    `json:"followedBy,omitempty"`
	Followed            int32     `json:"followed,omitempty"`

	// Served reports that a pod of the applied or followed template has been available
	// since the first apply, or since the deadlines of a constantly changing template
	// were last reset.
	Served bool `json:"served,omitempty"`

	// AppliedAt is when the API server answered the first apply. Unless noted, times
	// are by the agent's clock, so that durations come from one clock. ServerAppliedAt
	// is the cluster's time of the last apply, for comparison with conditions and
	// events. ResumedAt is the cluster's time of the last resume. LastProgress is when
	// progress was last observed, Progress what was observed. The Seen counts are the
	// baseline of the next progress: the most new pods ready and available, the fewest
	// old pods.
	AppliedAt       time.Time `json:"-"`
	ServerAppliedAt time.Time `json:"-"`
	ResumedAt       time.Time `json:"-"`
	LastProgress    time.Time `json:"-"`
	Progress        string    `json:"progress,omitempty"`
	SeenReady       int32     `json:"seenReady,omitempty"`
	SeenAvailable   int32     `json:"seenAvailable,omitempty"`
	SeenOld         int32     `json:"seenOld,omitempty"`
	SeenStopping    int32     `json:"seenStopping,omitempty"` // old pods terminating at that time

	// FailingSince is when pods or the ReplicaSet began to be rejected, TroubleSince
	// when pods began to fail in a way that waiting does not fix; zero while neither
	// applies.
	FailingSince time.Time `json:"-"`
	TroubleSince time.Time `json:"-"`

	Version int64 `json:"-"` // counts the writes of the row for compare-and-swap

	// StartedAt is when the API server answered the first apply, and before that when the
	// intent was stored. For an external rollout it is when its template was written, by the
	// cluster's clock. CompletedAt is when the API server showed the end, UpdatedAt when that
	// was stored.
	StartedAt   time.Time `json:"-"`
	CreatedAt   time.Time `json:"-"`
	UpdatedAt   time.Time `json:"-"`
	CompletedAt time.Time `json:"-"`
}

// RolloutParts holds the time that the new pods of a rollout spent in each step of
// becoming ready: for each step the slowest pod among those that completed it. The
// resolution is one second, as in the cluster.
type RolloutParts struct {
	Schedule Took `json:"scheduleMillis,omitzero"` // from creation until scheduled
	Pull     Took `json:"pullMillis,omitzero"`     // until the last container had started: all images were pulled
	Ready    Took `json:"readyMillis,omitzero"`    // until ready
}

// Took is a duration that may not have been measured. Its JSON form is a number of
// milliseconds.
type Took struct {
	Measured bool
	Time     time.Duration
}

// RolloutID returns the ID of a workload's rollout by a stage of a deployment.
func RolloutID(deploymentID, stageID, cluster string, workload ObjectRef) string {
	return deploymentID + "/" + stageID + "/" + cluster + "/" + workload.Key()
}

// ExternalRolloutID returns the ID of the rollout of a workload's revision that no deployment
// of this agent started.
func ExternalRolloutID(cluster, workloadUID string, revision int64) string {
	return "external/" + cluster + "/" + workloadUID + "/" + strconv.FormatInt(revision, 10)
}

// ScalingID returns the ID of a scaling of a workload, given its generation when the
// scaling was first seen.
func ScalingID(cluster, workloadUID string, generation int64) string {
	return "scaling/" + cluster + "/" + workloadUID + "/" + strconv.FormatInt(generation, 10)
}

// External reports whether no deployment of this agent started the rollout. Its end may then
// be a time of the cluster, before it was stored. Scalings are external.
func (r Rollout) External() bool { return r.DeploymentID == "" }

// WorkloadRevision is the newest revision of a workload, where the rollouts of all workloads
// of a cluster are recorded. Its rollout and those of earlier revisions are recorded, or
// began before the cluster was watched.
type WorkloadRevision struct {
	Cluster  string
	Workload string // ObjectRef.Key
	UID      string
	Revision int64  // 0: none yet
	Images   string // as in Rollout
}

// InventoryItem is one object an application applied.
type InventoryItem struct {
	ApplicationID string
	Cluster       string
	Variant       string // primary, canary or baseline
	Object        ObjectRef
	UID           string
	DesiredDigest string // of the rendered object without the commit annotation
	OwnedHash     string // of the agent's managedFields entry after the apply
	// Mark changes whenever the object is written after the apply. ValuesDigest covers
	// the values of the fields that the agent owns. Both are from the apply's response,
	// or from a later check that found the object unchanged; "" in older rows.
	Mark         string
	ValuesDigest string
	ConfigHash   string // of a workload: hash of the ConfigMaps and Secrets of the applied set that its pods use; "" when unknown
	DeploymentID string // the last deployment that wrote the object
	CreatedBy    string // the deployment that created it, "" if it existed before
	UpdatedAt    time.Time
}

// AppliedSet is the complete set of objects that a deployment applied. It is stored so
// that a rollback needs only the cluster. Objects is a JSON array; the store compresses
// and encrypts it.
type AppliedSet struct {
	ApplicationID string
	DeploymentID  string
	Commit        string
	Objects       []byte
}

// LogBlock is one line or paragraph of a stage's log.
type LogBlock struct {
	DeploymentID string
	StageID      string
	Index        int64 // ascending within the stage
	Severity     Severity
	Log          string
	At           time.Time
}
