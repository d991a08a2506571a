package deploy

import (
	"slices"
	"time"
)

// Adoption is live objects that stand where an application's objects belong and
// are not the application's: they become its own when they are applied. Where the
// agent's configuration says so (adopt: review), a person decides about that before
// the application is deployed for the first time.
type Adoption struct {
	ApplicationID string          `json:"-"`
	Objects       []AdoptedObject `json:"objects"`
	// RunningCommit is what the objects say they were applied from, "" when they
	// say nothing or different things.
	RunningCommit string `json:"runningCommit,omitempty"`
	// Token names this list: another list has another one.
	Token string `json:"-"`
	// Accepted: a person has permitted it, for these objects. Until then the decision
	// is awaited.
	Accepted bool `json:"-"`
	// Since is when the decision was first awaited.
	Since time.Time `json:"-"`
}

// Covers reports whether each of the objects is on the list, and belongs to whom it
// did when it was listed.
func (a Adoption) Covers(objects []AdoptedObject) bool {
	return !slices.ContainsFunc(objects, func(o AdoptedObject) bool {
		return !slices.ContainsFunc(a.Objects, func(known AdoptedObject) bool {
			return known.Object.Key() == o.Object.Key() && known.OwnerApplicationID == o.OwnerApplicationID
		})
	})
}

// AdoptedObject is one of the objects of an Adoption.
type AdoptedObject struct {
	Object   ObjectRef `json:"object"`
	Managers []string  `json:"managers,omitempty"` // field managers that own fields of it, sorted
	// OwnerApplicationID is the application that it is marked as belonging to, ""
	// for none.
	OwnerApplicationID string `json:"owner,omitempty"`
	// Changes: applying it changes more than whose it is and its annotations.
	Changes bool `json:"changes,omitempty"`
}
