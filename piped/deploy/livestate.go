package deploy

import "time"

// Health is the health of a live object. The zero value means unknown.
type Health string

// The healths of objects.
const (
	Healthy           Health = "HEALTHY"
	HealthSuspended   Health = "SUSPENDED"   // intentionally, such as a paused Deployment
	HealthProgressing Health = "PROGRESSING" // a change is in progress
	HealthMissing     Health = "MISSING"     // applied, but not in the cluster
	HealthDegraded    Health = "DEGRADED"    // does not work as specified
)

// healthRank orders healths from best to worst. Unknown is worse than every good state
// and better than every bad one.
var healthRank = map[Health]int{Healthy: 0, HealthSuspended: 1, HealthProgressing: 2, "": 3, HealthMissing: 4, HealthDegraded: 5}

// WorseThan reports whether h is worse than o.
func (h Health) WorseThan(o Health) bool { return healthRank[h] > healthRank[o] }

// LiveState lists the live objects of an application in its cluster.
type LiveState struct {
	ApplicationID string
	Health        Health // worst health of the objects; "" without any
	Objects       []LiveObject
	ReadAt        time.Time
	Incomplete    string // why some objects could not be read; "" if all were
}

// LiveObject is a live object with the objects it created. It contains none of the
// object's fields and no secret.
type LiveObject struct {
	Cluster string
	Object  ObjectRef
	UID     string // "" for a missing object
	Variant string // primary, canary or baseline; "" for children

	Health    Health
	Reason    string // why it is not Healthy, for users
	CreatedAt time.Time

	Images    []string // of the object's pods
	Replicas  int32    // desired
	Available int32

	// Declared reports that the running or deploying commit contains the object.
	Declared bool

	// Deleting reports that the object has a deletion timestamp: its deletion was requested and
	// is not complete.
	Deleting bool

	// Idle reports a ReplicaSet of an earlier revision without pods.
	Idle bool

	// Children are the objects that it created, by kind and name. LeftOut is the number of
	// children beyond the limit.
	Children []LiveObject
	LeftOut  int
}

// LiveChildren selects which of the created objects a live state contains.
type LiveChildren int

// The choices of created objects.
const (
	NoChildren       LiveChildren = iota
	RelevantChildren              // up to 100 of each object, the least healthy ones, and none that are idle
	AllChildren
)

// Degradation is an application that was reported as degraded and has not recovered since.
type Degradation struct {
	ApplicationID string
	Reason        string
	Since         time.Time
}
