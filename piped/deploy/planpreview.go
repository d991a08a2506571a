package deploy

import (
	"encoding/json"
	"time"
)

// PlanPreviewRequest requests a preview of the deployments that a merge of the head commit
// into the base branch would cause.
type PlanPreviewRequest struct {
	RepoID     string        `json:"repoID"`
	HeadBranch string        `json:"headBranch"`
	HeadCommit string        `json:"headCommit"` // full hash
	BaseBranch string        `json:"baseBranch"`
	Timeout    time.Duration `json:"timeout,omitempty"` // since the command's creation; 0 is the agent's default
	// PullRequest is the number of the pull request to comment on, 0 for none.
	PullRequest int `json:"pullRequest,omitempty"`
}

// PlanPreview is the result of a CommandBuildPlanPreview. It contains no secret.
type PlanPreview struct {
	CommandID string
	Results   []ApplicationPreview // of the changed applications, ordered by directory
	Error     string               // why there are no results
	At        time.Time
}

// PlanPreviewAnswered returns the event for a completed plan preview of a pull request, with a
// PlanPreviewed as payload. There is one event for each command.
func PlanPreviewAnswered(commandID string, asked PlanPreviewRequest, at time.Time) (Event, error) {
	payload, err := json.Marshal(PlanPreviewed{CommandID: commandID, Request: asked})
	return Event{Key: "plan-preview/" + commandID, Type: EventPlanPreviewed, Payload: payload, At: at}, err
}

// PlanPreviewed is the payload of EventPlanPreviewed.
type PlanPreviewed struct {
	CommandID string             `json:"command"`
	Request   PlanPreviewRequest `json:"request"`
}

// ApplicationPreview describes the effect of a change on one application.
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
	Details       string            `json:"details,omitempty"`  // the rendered diff, or why there is none
	Changes       []PlannedChange   `json:"changes,omitempty"`  // the same by object
	LeftOut       int               `json:"leftOut,omitempty"`  // changes beyond a limit
	Warnings      []string          `json:"warnings,omitempty"` // what of the configuration has no effect
	NoChange      bool              `json:"noChange,omitempty"`
	Error         string            `json:"error,omitempty"` // why there is no preview
	At            time.Time         `json:"at"`
}

// PreviewOutline is an ApplicationPreview without what is planned.
type PreviewOutline struct {
	ApplicationID string            `json:"applicationID"`
	Name          string            `json:"name"`
	Labels        map[string]string `json:"labels,omitempty"`
	NoChange      bool              `json:"noChange,omitempty"`
	Failed        bool              `json:"failed,omitempty"` // there is no preview
}

// Outlines returns the outlines of the results, in their order.
func (p PlanPreview) Outlines() []PreviewOutline {
	var out []PreviewOutline
	for _, r := range p.Results {
		out = append(out, PreviewOutline{ApplicationID: r.ApplicationID, Name: r.Name, Labels: r.Labels, NoChange: r.NoChange, Failed: r.Error != ""})
	}
	return out
}

// PlanPreviewBrief is a requested plan preview with what came of it.
type PlanPreviewBrief struct {
	CommandID   string
	Commander   string // subject of the user or API key
	Request     PlanPreviewRequest
	Status      CommandStatus
	RequestedAt time.Time
	Outlines    []PreviewOutline // of the changed applications, ordered by directory
	Error       string           // why there are no results
	At          time.Time        // of the answer; zero while it is built
}

// PlannedAction is the effect of a deployment on one object.
type PlannedAction string

// The actions. LEAVE means removed from Git but not pruned. REPLACE means deleted and created
// again. FORGET means that the object stays and is not managed any more, IMPORT that one that exists is
// managed from then on, and MOVE that only its address changes.
const (
	PlannedCreate  PlannedAction = "CREATE"
	PlannedUpdate  PlannedAction = "UPDATE"
	PlannedDelete  PlannedAction = "DELETE"
	PlannedLeave   PlannedAction = "LEAVE"
	PlannedReplace PlannedAction = "REPLACE"
	PlannedForget  PlannedAction = "FORGET"
	PlannedImport  PlannedAction = "IMPORT"
	PlannedMove    PlannedAction = "MOVE"
)

// Effect is what a deployment does to objects.
type Effect struct {
	Changes []PlannedChange
	// Summary describes a plan of the platform's program in one line. It is "" if Changes are
	// differences of what Git declares.
	Summary string
	// Digest is the SHA-256, in hex, of the plan that the deployment has saved; "" for none.
	Digest string
	// Note explains to users why Changes are no plan of the platform's program; "" for nothing.
	Note string
}

// PlannedChange is the effect of a deployment on one object, computed by comparing rendered
// manifests or planned by the platform's program. Diff shows it as text, with secrets redacted.
type PlannedChange struct {
	Object ObjectRef     `json:"object"`
	Action PlannedAction `json:"action"`
	Diff   string        `json:"diff,omitempty"`
	// Address is the name of the object for the platform's program; "" if it has no names.
	Address string `json:"address,omitempty"`
	// Origin is where the object comes from, for users, such as the address before a move; "" if it
	// stays at its place.
	Origin string `json:"origin,omitempty"`
	// Attributes are what Diff shows by attribute; only of a plan of the platform's program.
	Attributes []PlannedAttribute `json:"attributes,omitempty"`
}

// PlannedAttribute is an attribute that changes. Values are JSON, "" for an absent one, or a text
// in parentheses in place of a value that is not shown or not known.
type PlannedAttribute struct {
	Path      string `json:"path,omitempty"` // "" for the value itself
	Before    string `json:"before,omitempty"`
	After     string `json:"after,omitempty"`
	Sensitive bool   `json:"sensitive,omitempty"` // the values are masked
	Unknown   bool   `json:"unknown,omitempty"`   // After is known only after the deployment
	Forces    bool   `json:"forces,omitempty"`    // it is a reason to replace the object
}

// Size returns the size of the texts of the change, without the names of the object.
func (c PlannedChange) Size() int {
	n := len(c.Diff)
	for _, a := range c.Attributes {
		n += len(a.Path) + len(a.Before) + len(a.After) + 8
	}
	return n
}

// AffectedApplication is an application that a change to its repository would deploy,
// or whose configuration it would remove.
type AffectedApplication struct {
	// Application is the state after the change. A new application is not in the store
	// and has no LastSuccessful.
	Application Application
	// Removed reports that the change removes the configuration.
	Removed bool
	// Problem is the reason why it could not be deployed, nil if it could.
	Problem error
}
