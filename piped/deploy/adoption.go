package deploy

import (
	"slices"
	"time"
)

// Adoption lists live objects that have the names of an application's objects but do not
// belong to the application. Applying the application makes them its own. With adopt: review
// in the agent configuration, a user decides about the list before the first deployment.
type Adoption struct {
	ApplicationID string          `json:"-"`
	Objects       []AdoptedObject `json:"objects"`
	// RunningCommit is the commit recorded on the objects, "" when they record none or
	// several.
	RunningCommit string `json:"runningCommit,omitempty"`
	// Token identifies the content of the list.
	Token string `json:"-"`
	// Accepted reports that a user permitted the adoption of these objects.
	Accepted bool `json:"-"`
	// Since is when the decision was first required.
	Since time.Time `json:"-"`
}

// Covers reports whether each object is on the list with an unchanged owner.
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
	// OwnerApplicationID is the application named by the object's owner mark, "" for
	// none.
	OwnerApplicationID string `json:"owner,omitempty"`
	// Changes reports that applying changes more than ownership and annotations.
	Changes bool `json:"changes,omitempty"`
}
