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

// Key identifies the object whatever its API version:
// "group/Kind/namespace/name".
func (r ObjectRef) Key() string { return r.Group + "/" + r.Kind + "/" + r.Namespace + "/" + r.Name }

// RolloutPhase is the state of one rollout record.
type RolloutPhase string

// The phases of a rollout. Intent is written before the workload is applied,
// Applied right after; the terminal ones are absorbing.
const (
	RolloutIntent      RolloutPhase = "Intent"
	RolloutApplied     RolloutPhase = "Applied"
	RolloutProgressing RolloutPhase = "Progressing"
	RolloutHeld        RolloutPhase = "Held" // paused: the clock stands still

	RolloutNoRollout  RolloutPhase = "NoRollout" // nothing to wait for
	RolloutComplete   RolloutPhase = "Complete"
	RolloutFailed     RolloutPhase = "Failed"
	RolloutSuperseded RolloutPhase = "Superseded" // another template took over
	RolloutGone       RolloutPhase = "Gone"       // the workload was deleted
	RolloutTimedOut   RolloutPhase = "TimedOut"
)

// Terminal reports whether p is absorbing.
func (p RolloutPhase) Terminal() bool {
	switch p {
	case RolloutNoRollout, RolloutComplete, RolloutFailed, RolloutSuperseded, RolloutGone, RolloutTimedOut:
		return true
	}
	return false
}

// RolloutKind tells what a record is of.
type RolloutKind string

// The kinds of records. What is stored without a kind is a rollout.
const (
	RolloutKindRollout RolloutKind = "ROLLOUT" // new pods from a changed template
	RolloutKindScaling RolloutKind = "SCALING" // more or fewer pods of the same template
)

// Rollout is the durable record of one workload's rollout by one stage: exactly
// one per (stage, cluster, workload), ending in exactly one terminal phase. An
// external one, which no deployment of this agent began, is one revision of a
// Deployment.
//
// A scaling is recorded alike, whoever began it: it is of no deployment, and has the
// phases Progressing, Complete, Superseded, Gone and TimedOut.
type Rollout struct {
	ID              string // RolloutID, ExternalRolloutID or ScalingID
	Kind            RolloutKind
	ApplicationID   string
	ApplicationName string // when the record began; "" when nobody knew
	DeploymentID    string // "" if external, StageID too
	StageID         string
	Commit          string // whose template it is; "" if external
	Cluster         string
	Workload        ObjectRef
	UID             string // of the workload, known once applied

	Phase  RolloutPhase
	Reason string // why the phase was entered, for a person

	// ChangedBy is the field manager that wrote the template of an external
	// rollout, and of a scaling the number of replicas; "" if unknown. SupersededBy
	// wrote the template that took over, of what is Superseded by one.
	ChangedBy    string
	SupersededBy string

	// IntentDigest is the digest of the template that was about to be applied
	// when the intent was written, as the API server would return it ("" when
	// unknown). LiveBefore is the digest found live before the first apply, ""
	// when there was no workload; it is what makes a re-apply after a crash tell
	// a rollout from none.
	IntentDigest string
	LiveBefore   string

	TemplateDigest string // of the applied template, as the server returned it
	Images         string // of its containers, in their order, separated by spaces; "" when unknown
	Generation     int64  // metadata.generation the apply led to
	TargetUID      string // the ReplicaSet that carries the template
	TargetName     string // the same; of a StatefulSet the ControllerRevision
	Revision       int64  // 0 when unknown, and always of a StatefulSet, whose revisions have names
	DesiredAtStart int32
	ReplicasBefore int32 // desired before the first apply, or before it was seen
	ReplicasAfter  int32 // desired when the rollout was looked at last
	Parts          RolloutParts

	// PausedInGit: it ended because Git itself pauses the workload.
	PausedInGit bool

	// Rewritten: the API server made another template of the apply than of its dry run, or
	// than of an equal apply before, as a mutating webhook does that writes a new value
	// each time.
	Rewritten bool

	// ProvenBefore: an earlier rollout of the template found live had ended well.
	// Pods that are down since are no reason to wait if the template stays.
	ProvenBefore bool

	// TemplateBase is TemplateDigest with the template's annotations left out, and
	// TemplateAnnotations names the annotations of the template that the agent applied,
	// with a hash of each value ("" when there are none).
	// FollowedDigest, when set, is what is waited for instead of TemplateDigest: field
	// manager FollowedBy restarted the workload (a change of other annotations of the
	// template only) at FollowedAt, the cluster's time. Followed counts such changes.
	TemplateBase        string
	TemplateAnnotations string
	FollowedDigest      string
	FollowedAt          time.Time
	FollowedBy          string
	Followed            int32

	// Served: a pod of the applied template, or of one that was followed, has been
	// available since the first apply, or since the clocks of a template that keeps
	// changing began last.
	Served bool

	// AppliedAt is when the API server answered the first apply, by the agent's clock, as
	// every time here that is not said to be the cluster's: durations come from one
	// clock. ServerAppliedAt is the cluster's time of the last apply, which the times of
	// its conditions and events are compared with, and ResumedAt that of the last time
	// the workload was resumed. LastProgress is the last moment progress was seen,
	// Progress what was seen then. The Seen counts are what the next progress is
	// measured against: the most new pods ready and available, the fewest old ones.
	AppliedAt       time.Time
	ServerAppliedAt time.Time
	ResumedAt       time.Time
	LastProgress    time.Time
	Progress        string
	SeenReady       int32
	SeenAvailable   int32
	SeenOld         int32
	SeenStopping    int32 // old pods that were stopping when that was seen last

	// FailingSince is when pods or the ReplicaSet began to be refused,
	// TroubleSince when pods began to fail in a way that waiting does not heal;
	// zero while neither is so.
	FailingSince time.Time
	TroubleSince time.Time

	Version int64 // counts the writes of the row; compared and swapped

	// StartedAt is when it began: when the API server answered the first apply, before
	// that when the intent was stored, and of an external one when the cluster says that
	// its template was written. CompletedAt is when the API server showed the end, and
	// UpdatedAt then when that was stored.
	StartedAt   time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time
	CompletedAt time.Time
}

// RolloutParts is how long the new pods of a rollout took for the parts of becoming
// ready: of each part the slowest pod's time, among those that came through it.
// Clusters tell times in whole seconds.
type RolloutParts struct {
	Schedule Took // from creation until a node was found
	Pull     Took // until the last container had started, so that all images were there
	Ready    Took // until it was ready
}

// Took is a duration, if it was measured.
type Took struct {
	Measured bool
	Time     time.Duration
}

// RolloutID names the rollout of a workload by a stage of a deployment.
func RolloutID(deploymentID, stageID, cluster string, workload ObjectRef) string {
	return deploymentID + "/" + stageID + "/" + cluster + "/" + workload.Key()
}

// ExternalRolloutID names the rollout of one revision of a workload that no
// deployment of this agent began.
func ExternalRolloutID(cluster, workloadUID string, revision int64) string {
	return "external/" + cluster + "/" + workloadUID + "/" + strconv.FormatInt(revision, 10)
}

// ScalingID names a scaling of a workload, whose spec had the given generation when
// it was seen first.
func ScalingID(cluster, workloadUID string, generation int64) string {
	return "scaling/" + cluster + "/" + workloadUID + "/" + strconv.FormatInt(generation, 10)
}

// External reports whether no deployment of this agent began the rollout. The
// time of its end may then be the cluster's, before it was stored. Scalings are
// external.
func (r Rollout) External() bool { return r.DeploymentID == "" }

// InventoryItem is one object an application applied.
type InventoryItem struct {
	ApplicationID string
	Cluster       string
	Variant       string // primary, canary or baseline
	Object        ObjectRef
	UID           string
	DesiredDigest string // of the object as rendered, commit annotation left out
	OwnedHash     string // of our managedFields entry after the apply
	// Mark tells whether the object was written since it was known to be as applied,
	// and ValuesDigest is of the values of the fields we own, as the API server
	// returned both with the apply, or later when they were found to be right; "" in
	// rows that are older than that.
	Mark         string
	ValuesDigest string
	ConfigHash   string // of a workload: of the ConfigMaps and Secrets its pods got from the set; "" when unknown
	DeploymentID string // the deployment that wrote the object last
	CreatedBy    string // the deployment that created it, "" if it existed before
	UpdatedAt    time.Time
}

// AppliedSet is the complete set of objects a deployment applied, kept so that
// a rollback needs nothing but the cluster. Objects is a JSON array; the store
// keeps it compressed and encrypted.
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
