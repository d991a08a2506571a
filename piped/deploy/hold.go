package deploy

import (
	"fmt"
	"time"
)

// Hold pins an application to a commit chosen by a user. It ends when a later commit
// that changes the application is deployed, or when a user syncs the application.
// Meanwhile Commit replaces the branch's head: drift is compared with it, and
// self-healing deploys it.
type Hold struct {
	Commit       Commit    `json:"commit"`
	Git          GitPath   `json:"git"`          // the application's path in that commit
	DeploymentID string    `json:"deploymentID"` // the manual deployment that began it
	By           string    `json:"by"`           // subject of the API key
	Reason       string    `json:"reason"`
	Since        time.Time `json:"since"`

	// Head is the branch's head when the hold began, Evaluated the application's
	// evaluated commit at that time. They differ if the head was not evaluated yet.
	// Commits up to Head do not end the hold.
	Head      string `json:"head"`
	Evaluated string `json:"evaluated"`

	// Previous is the hold before this one. It is restored if the deployment that began
	// this one is cancelled, and dropped if that deployment ends otherwise.
	Previous *Hold `json:"previous,omitempty"`
}

// Base returns the commit after which changes end the hold. evaluated is the application's
// evaluated commit.
func (h *Hold) Base(evaluated string) string {
	if h != nil && evaluated == h.Evaluated {
		return h.Head
	}
	return evaluated
}

// AfterEnd returns the hold that is in force after deployment id has ended with status. It
// returns h itself if nothing changes.
func (h *Hold) AfterEnd(id string, status Status) *Hold {
	switch {
	case h == nil:
		return nil
	case h.DeploymentID != id:
		previous := h.Previous.AfterEnd(id, status)
		if previous == h.Previous {
			return h
		}
		next := *h
		next.Previous = previous
		return &next
	case status == Cancelled:
		return h.Previous
	case h.Previous == nil:
		return h
	}
	next := *h
	next.Previous = nil
	return &next
}

// String describes the commit, the user, the time and the reason.
func (h *Hold) String() string {
	return fmt.Sprintf("Held at commit %s by %s since %s: %s", h.Commit.Short(), h.By, h.Since.UTC().Format(time.RFC3339), h.Reason)
}

// HeldAt returns the hash of the hold's commit, "" without a hold.
func (a Application) HeldAt() string {
	if a.Hold == nil {
		return ""
	}
	return a.Hold.Commit.Hash
}

// Desired returns the hash of the commit that should run: the commit of the hold, else the
// evaluated commit.
func (a Application) Desired() string {
	if a.Hold != nil {
		return a.Hold.Commit.Hash
	}
	return a.EvaluatedCommit
}
