package deploy

import "time"

// DriftKind is the way in which an object differs from Git.
type DriftKind string

// The ways in which an object differs from Git.
const (
	DriftMissing DriftKind = "MISSING" // in Git but not in the cluster
	DriftChanged DriftKind = "CHANGED" // in both, with different values
	DriftExtra   DriftKind = "EXTRA"   // owned by the application in the cluster, but no longer in Git
)

// DriftEnd is the reason why a period of drift ended; "" while it lasts.
type DriftEnd string

// The ends of a period of drift.
const (
	DriftDeployed  DriftEnd = "DEPLOYED"  // a deployment brought the cluster back to Git
	DriftReverted  DriftEnd = "REVERTED"  // a user changed the cluster back
	DriftAccepted  DriftEnd = "ACCEPTED"  // Git or the ignore rules now permit the live state
	DriftAbandoned DriftEnd = "ABANDONED" // the application was disabled or deleted
)

// DriftReport lists how an application differs from Git. All reports of one period of
// drift have the same ID. It contains no secret.
type DriftReport struct {
	ID            string `json:"id"`
	ApplicationID string `json:"applicationID"`
	Cluster       string `json:"cluster"` // platform provider
	Commit        string `json:"commit"`  // of the last success, the base of the comparison

	Status  SyncStatus    `json:"status"`            // the resulting sync status
	Objects []ObjectDrift `json:"objects,omitempty"` // by kind, namespace and name
	// Undeployed lists the commits of the branch that change the application and are
	// not deployed, newest first.
	Undeployed []string `json:"undeployed,omitempty"`
	Compared   int      `json:"compared"`             // number of compared objects
	Incomplete string   `json:"incomplete,omitempty"` // why some objects could not be compared; "" if all were

	CheckedAt time.Time `json:"checkedAt"`
	BeganAt   time.Time `json:"beganAt,omitzero"` // zero without drift
	EndedAt   time.Time `json:"endedAt,omitzero"` // zero while it lasts
	End       DriftEnd  `json:"end,omitempty"`
}

// Undone returns the objects that a deployment restores: the missing and changed ones.
// Extra objects are left alone or pruned.
func (r DriftReport) Undone() []ObjectDrift {
	var out []ObjectDrift
	for _, o := range r.Objects {
		if o.Kind != DriftExtra {
			out = append(out, o)
		}
	}
	return out
}

// ObjectDrift describes how one object differs from Git.
type ObjectDrift struct {
	Object  ObjectRef    `json:"object"`
	Cluster string       `json:"cluster,omitempty"` // platform provider of the object's cluster
	Kind    DriftKind    `json:"kind"`
	Fields  []FieldDrift `json:"fields,omitempty"` // of an object that is CHANGED
	// Note is an additional explanation for users, such as that the API server refuses
	// to restore the object.
	Note    string    `json:"note,omitempty"`
	Diff    string    `json:"-"` // unified, from Git to live; "" unless requested
	BeganAt time.Time `json:"beganAt,omitzero"`
}

// FieldDrift is one field that differs from Git. Values are JSON, truncated when long;
// "" is a missing field.
type FieldDrift struct {
	// Path addresses the field. List items are addressed by their merge key:
	// spec.template.spec.containers[name=web].image.
	Path      string    `json:"path"`
	Git       string    `json:"git,omitempty"`
	Live      string    `json:"live,omitempty"`
	Masked    bool      `json:"masked,omitempty"`   // the values are secret and redacted
	Manager   string    `json:"manager,omitempty"`  // field manager that owns the live value; "" if unknown
	ChangedAt time.Time `json:"changedAt,omitzero"` // when that manager last wrote the object; zero if unknown
}
