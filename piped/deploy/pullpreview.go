package deploy

import (
	"fmt"
	"strings"
	"time"
)

// PullPreview is what the preview of a pull request is like. It is stored while the pull request
// is open and has a preview, waits for one, or had one until its time was over.
type PullPreview struct {
	RepoID string `json:"-"`
	Number int    `json:"-"`
	Head   string `json:"-"` // full hash of the head commit

	Branch    string           `json:"branch"` // that is to be merged
	Base      string           `json:"base"`   // branch to merge into
	Phase     PullPreviewPhase `json:"phase"`
	Reason    string           `json:"reason,omitempty"` // what it waits for, or why it failed or was removed
	Since     time.Time        `json:"since"`            // of the phase
	CreatedAt time.Time        `json:"createdAt"`
	HeadAt    time.Time        `json:"headAt"`             // when Head was first seen
	ReadyAt   time.Time        `json:"readyAt,omitzero"`   // when Head was first ready
	ExpiresAt time.Time        `json:"expiresAt,omitzero"` // when it is removed, zero for never
	Fork      bool             `json:"fork,omitempty"`     // the pull request is of a fork
	// Approved is the head that had the label of a pull request of a fork; "" for others.
	Approved string `json:"approved,omitempty"`
	// ApprovedLabels are the permitting labels that the pull request had since. As long as it has one
	// of them, no other head is approved.
	ApprovedLabels []string `json:"approvedLabels,omitempty"`
	// Ended is that the pull request has no preview any more. It is retained for what was decided.
	Ended        bool                     `json:"ended,omitempty"`
	Applications []PullPreviewApplication `json:"applications,omitempty"`

	// What users decided. It is not part of what the agent observes, and written on its own.
	ExtendedUntil time.Time `json:"-"` // not removed before
	Dismissed     string    `json:"-"` // head for which it was removed; "" for none
	DismissedBy   string    `json:"-"`
}

// PullPreviewPhase is the phase of a preview, or of one of its applications.
type PullPreviewPhase string

// The phases of a preview.
const (
	PreviewWaiting  PullPreviewPhase = "WAITING"  // for a limit
	PreviewBuilding PullPreviewPhase = "BUILDING" // an application is being deployed
	PreviewReady    PullPreviewPhase = "READY"    // every application works
	PreviewFailed   PullPreviewPhase = "FAILED"
	PreviewRemoved  PullPreviewPhase = "REMOVED" // until the next commit
)

// PullPreviewPhases returns every phase.
func PullPreviewPhases() []PullPreviewPhase {
	return []PullPreviewPhase{PreviewWaiting, PreviewBuilding, PreviewReady, PreviewFailed, PreviewRemoved}
}

// PullPreviewApplication is what the preview of one application is like.
type PullPreviewApplication struct {
	ID           string            `json:"id"` // of the preview application
	Name         string            `json:"name"`
	Git          GitPath           `json:"git"`
	Labels       map[string]string `json:"labels,omitempty"`
	Phase        PullPreviewPhase  `json:"phase"`
	Reason       string            `json:"reason,omitempty"`
	DeploymentID string            `json:"deploymentID,omitempty"` // the last one
	Host         string            `json:"host,omitempty"`
	Header       string            `json:"header,omitempty"`    // "name: value" of the requests that it gets with mode route
	Hostnames    []string          `json:"hostnames,omitempty"` // of requests with the header; none: every host of the gateway
	Log          []string          `json:"log,omitempty"`       // the last lines of what failed
}

// Application returns what a Scope needs to know of the application.
func (a PullPreviewApplication) Application() Application {
	return Application{ID: a.ID, Name: a.Name, Git: a.Git, Labels: a.Labels}
}

// Curl returns the command that sends a request with the header of a preview to the first of these hosts, ""
// if there is none without a wildcard.
func Curl(header string, hostnames []string) string {
	for _, host := range hostnames {
		if header != "" && !strings.ContainsAny(header, "'`") && !strings.HasPrefix(host, "*") {
			return fmt.Sprintf("curl -H '%s' https://%s/", header, host)
		}
	}
	return ""
}

// Key identifies the preview in the change feed.
func (p PullPreview) Key() string { return fmt.Sprintf("%s#%d", p.RepoID, p.Number) }

// PodLines are the last lines that a container has written.
type PodLines struct {
	Pod       string
	Container string
	Previous  bool // of the instance before the running one
	Lines     []string
	Error     string // why they could not be read
}
