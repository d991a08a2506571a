package deploy

import (
	"encoding/json"
	"time"
)

// PlanPreviewRequest says what a CommandBuildPlanPreview asks about: what would be
// deployed if the commit on the head branch were merged into the base branch.
type PlanPreviewRequest struct {
	RepoID     string        `json:"repoID"`
	HeadBranch string        `json:"headBranch"`
	HeadCommit string        `json:"headCommit"` // full hash
	BaseBranch string        `json:"baseBranch"`
	Timeout    time.Duration `json:"timeout,omitempty"` // since the command was given; 0 is the agent's own
	// PullRequest is the number of the pull request that is to be told, 0 for none.
	PullRequest int `json:"pullRequest,omitempty"`
}

// PlanPreview is what became of a CommandBuildPlanPreview. No secret is in it.
type PlanPreview struct {
	CommandID string
	Results   []ApplicationPreview // of the applications that the change touches, ordered by directory
	Error     string               // why there are no results
	At        time.Time
}

// PlanPreviewAnswered returns the event that tells that a plan preview for a pull
// request was answered; its payload is a PlanPreviewed. There is one for each
// command.
func PlanPreviewAnswered(commandID string, asked PlanPreviewRequest, at time.Time) (Event, error) {
	payload, err := json.Marshal(PlanPreviewed{CommandID: commandID, Request: asked})
	return Event{Key: "plan-preview/" + commandID, Type: EventPlanPreviewed, Payload: payload, At: at}, err
}

// PlanPreviewed is the payload of EventPlanPreviewed.
type PlanPreviewed struct {
	CommandID string             `json:"command"`
	Request   PlanPreviewRequest `json:"request"`
}

// ApplicationPreview is what a change would do to one application.
type ApplicationPreview struct {
	ApplicationID string            `json:"applicationID"`
	Name          string            `json:"name"`
	Kind          string            `json:"kind"`
	Dir           string            `json:"dir"`
	Labels        map[string]string `json:"labels,omitempty"`
	HeadBranch    string            `json:"headBranch"`
	HeadCommit    string            `json:"headCommit"`
	Strategy      Strategy          `json:"strategy"` // AUTO when nothing would be deployed
	Summary       string            `json:"summary,omitempty"`
	Details       string            `json:"details,omitempty"` // the rendered difference
	NoChange      bool              `json:"noChange,omitempty"`
	Error         string            `json:"error,omitempty"` // why it cannot be told
	At            time.Time         `json:"at"`
}

// PlannedAction is what a deployment does to one object.
type PlannedAction string

// The actions. What is left is gone from Git, and pruning is off for it.
const (
	PlannedCreate PlannedAction = "CREATE"
	PlannedUpdate PlannedAction = "UPDATE"
	PlannedDelete PlannedAction = "DELETE"
	PlannedLeave  PlannedAction = "LEAVE"
)

// PlannedChange is what a deployment does to one object, as it is rendered: Diff is
// a unified diff with secrets left out.
type PlannedChange struct {
	Object ObjectRef
	Action PlannedAction
	Diff   string
}

// AffectedApplication is an application that a change to its repository would have
// deployed, or that would be without its configuration.
type AffectedApplication struct {
	// Application is as it would be; it has no LastSuccessful and is in no store
	// when the change is what adds it.
	Application Application
	// Removed reports that the change takes the configuration away.
	Removed bool
	// Problem is why it could not be deployed.
	Problem error
}
