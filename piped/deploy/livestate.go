package deploy

import "time"

// Health says whether a live object does what it should. The zero value means
// that it cannot be told.
type Health string

// The healths of objects.
const (
	Healthy           Health = "HEALTHY"
	HealthSuspended   Health = "SUSPENDED"   // on purpose, such as a paused Deployment
	HealthProgressing Health = "PROGRESSING" // on its way
	HealthMissing     Health = "MISSING"     // applied, and not in the cluster
	HealthDegraded    Health = "DEGRADED"    // it does not do what it should
)

// badness orders healths. That nothing is known is worse than that nothing is
// wrong, and better than that something is.
var badness = map[Health]int{Healthy: 0, HealthSuspended: 1, HealthProgressing: 2, "": 3, HealthMissing: 4, HealthDegraded: 5}

// WorseThan reports whether h is worse than o.
func (h Health) WorseThan(o Health) bool { return badness[h] > badness[o] }

// LiveState is what of an application is live in its cluster.
type LiveState struct {
	ApplicationID string
	Health        Health // the worst of its objects; "" without any
	Objects       []LiveObject
	ReadAt        time.Time
	Incomplete    string // why not all of it could be read, for a person; "" if it was
}

// LiveObject is an object as it is live, with what it created. It holds nothing of
// the object's content: no Secret, no field.
type LiveObject struct {
	Cluster string
	Object  ObjectRef
	UID     string // "" of one that is missing
	Variant string // primary, canary or baseline; "" of children

	Health    Health
	Reason    string // why it is not Healthy, for a person
	CreatedAt time.Time

	Images    []string // of its pods
	Replicas  int32    // desired
	Available int32

	// Declared: the commit that runs has it, or the one that is being deployed.
	Declared bool

	// Children are the objects that it created, by kind and name. LeftOut counts
	// those beyond what is told of one object; those in trouble are kept.
	Children []LiveObject
	LeftOut  int
}
