package opentofu

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/opentofu"
)

// group is the API group of the references to resources and outputs.
const group = "opentofu.piped"

// kindOutput is the kind of references to outputs.
const kindOutput = "output"

// Record is what is kept of a deployment, encrypted, as its applied set.
type Record struct {
	Plan  *SavedPlan      `json:"plan,omitempty"`
	State *opentofu.State `json:"state,omitempty"` // after the last apply; nil before it
	// Unread is set while the state after the last apply could not be read, so that State is that of
	// before.
	Unread bool `json:"unread,omitempty"`
}

// SavedPlan is a plan that was made by a stage.
type SavedPlan struct {
	Stage   string        `json:"stage"` // the ID of the stage
	Digest  string        `json:"digest"`
	Summary string        `json:"summary,omitempty"`
	Data    []byte        `json:"data,omitempty"` // removed once it was applied
	Changes []ShownChange `json:"changes,omitempty"`
}

// ShownChange is a change without sensitive values.
type ShownChange struct {
	opentofu.Resource
	Action     opentofu.Action  `json:"action"`
	Origin     string           `json:"origin,omitempty"`
	Text       string           `json:"text"`
	Attributes []ShownAttribute `json:"attributes,omitempty"`
}

// ShownAttribute is an attribute that changes, as users see its values.
type ShownAttribute struct {
	Path      string `json:"path"`
	Before    string `json:"before"`
	After     string `json:"after"`
	Sensitive bool   `json:"sensitive,omitempty"`
	Unknown   bool   `json:"unknown,omitempty"`
	Forces    bool   `json:"forces,omitempty"`
}

// RecordOf decodes the applied set of a deployment.
func RecordOf(set deploy.AppliedSet) (Record, error) {
	var all []Record
	if err := json.Unmarshal(set.Objects, &all); err != nil || len(all) != 1 {
		return Record{}, fmt.Errorf("the record of deployment %s is damaged: %w", set.DeploymentID, err)
	}
	return all[0], nil
}

// applied reports whether the plan of a stage that was interrupted was applied, and what it left
// recorded: only the end of the stage was not stored.
func (r Record) applied(run deploy.StageRun) bool {
	done := run.Stage.Metadata[metaIntent] != "" && r.State != nil && r.Plan != nil && len(r.Plan.Data) == 0
	if done {
		run.Log.Infof("The plan had been applied before the agent was interrupted")
	}
	return done
}

// record reads what is kept of a deployment, the zero Record for nothing.
func (e *Executor) record(ctx context.Context, deploymentID string) (Record, error) {
	set, err := e.Store.AppliedSet(ctx, deploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return Record{}, nil
	}
	if err != nil {
		return Record{}, err
	}
	return RecordOf(set)
}

// save stores what is kept of a deployment as the objects of set.
func (e *Executor) save(ctx context.Context, set deploy.AppliedSet, r Record) (err error) {
	if set.Objects, err = json.Marshal([]Record{r}); err != nil {
		return err
	}
	return e.Store.SaveAppliedSet(ctx, set)
}

// Ref returns the reference of a resource of an application: its type is the kind, and the
// namespace is where it is declared.
func Ref(at deploy.GitPath, r opentofu.Resource) deploy.ObjectRef {
	namespace := path.Join(at.RepoID, at.Dir)
	if at.ConfigFile != config.DefaultName { // several applications may be in a directory
		namespace = path.Join(namespace, at.ConfigFile)
	}
	if r.Module != "" {
		namespace += "/" + r.Module
	}
	kind := r.Type
	if kind == "" {
		kind = kindOutput
	}
	return deploy.ObjectRef{Group: group, Version: "v1", Kind: kind, Namespace: namespace, Name: r.Name}
}

// shownChanges converts the changes of a plan for users; redact removes further secrets.
func shownChanges(p opentofu.Plan, redact func(string) string) (out []ShownChange) {
	for _, changes := range [][]opentofu.Change{p.Changes, p.Outputs} {
		for _, c := range changes {
			shown := ShownChange{Resource: c.Resource, Action: c.Action, Origin: redact(c.Origin), Text: redact(c.String())}
			for _, a := range c.Attributes {
				before, after := a.Shown()
				shown.Attributes = append(shown.Attributes, ShownAttribute{redact(a.Path), redact(before), redact(after), a.Sensitive, a.Unknown, a.Forces})
			}
			out = append(out, shown)
		}
	}
	return out
}

// Planned converts changes of a plan for the API.
func Planned(at deploy.GitPath, changes []ShownChange) (out []deploy.PlannedChange) {
	actions := map[opentofu.Action]deploy.PlannedAction{
		opentofu.Create: deploy.PlannedCreate, opentofu.Update: deploy.PlannedUpdate, opentofu.Delete: deploy.PlannedDelete,
		opentofu.Replace: deploy.PlannedReplace, opentofu.Forget: deploy.PlannedForget,
		opentofu.Import: deploy.PlannedImport, opentofu.Move: deploy.PlannedMove,
	}
	for _, c := range changes {
		planned := deploy.PlannedChange{Object: Ref(at, c.Resource), Action: actions[c.Action], Diff: c.Text + "\n", Address: c.Label(), Origin: c.Origin}
		for _, a := range c.Attributes {
			planned.Attributes = append(planned.Attributes, deploy.PlannedAttribute{
				Path: a.Path, Before: present(a.Before), After: present(a.After), Sensitive: a.Sensitive, Unknown: a.Unknown, Forces: a.Forces,
			})
		}
		out = append(out, planned)
	}
	return out
}

// present returns "" for an absent value, as the API has it.
func present(shown string) string {
	if shown == "null" {
		return ""
	}
	return shown
}
