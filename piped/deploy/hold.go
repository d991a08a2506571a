package deploy

import (
	"fmt"
	"time"
)

// Hold keeps an application at a commit that a user chose, until a later commit that
// touches the application is deployed, or a user syncs it. While it lasts, Commit takes
// the place of the branch's head: drift is compared with it, and self-healing deploys it.
type Hold struct {
	Commit       Commit    `json:"commit"`
	Git          GitPath   `json:"git"`          // where the application is in it
	DeploymentID string    `json:"deploymentID"` // the deployment by hand that began it
	By           string    `json:"by"`           // subject of the API key
	Reason       string    `json:"reason"`
	Since        time.Time `json:"since"`

	// Head is the branch's head when the hold began, Evaluated the application's evaluated
	// commit then, which is another if the head was not evaluated. Commits up to Head do
	// not end the hold.
	Head      string `json:"head"`
	Evaluated string `json:"evaluated"`

	// Previous is the hold that was in force before. It returns if the deployment that
	// began this one is cancelled, and is forgotten when that has ended otherwise.
	Previous *Hold `json:"previous,omitempty"`
}

// Base returns the commit from which on changes end the hold, given the application's
// evaluated commit.
func (h *Hold) Base(evaluated string) string {
	if h != nil && evaluated == h.Evaluated {
		return h.Head
	}
	return evaluated
}

// AfterEnd returns the hold that is in force once deployment id has ended in status: h
// itself if that changes nothing.
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

// String says where the application is held, by whom and why.
func (h *Hold) String() string {
	return fmt.Sprintf("Held at commit %s by %s since %s: %s", h.Commit.Short(), h.By, h.Since.UTC().Format(time.RFC3339), h.Reason)
}

// HeldAt returns the hash of the commit that the application is held at, "" if it is not.
func (a Application) HeldAt() string {
	if a.Hold == nil {
		return ""
	}
	return a.Hold.Commit.Hash
}

// Desired returns the hash of the commit that should run: the one that the application is
// held at, or else the evaluated one.
func (a Application) Desired() string {
	if a.Hold != nil {
		return a.Hold.Commit.Hash
	}
	return a.EvaluatedCommit
}
