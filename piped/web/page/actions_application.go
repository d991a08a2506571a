package page

import (
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func prepareSync(v *visit, q url.Values) (*dialog, error) {
	apps, err := v.applications(q)
	if err != nil {
		return nil, err
	}
	out := &dialog{submit: "Sync", fields: []field{strategies()}}
	if len(apps) == 1 {
		out.title, out.text = "Sync "+apps[0].Name+"?", "What Git wants is deployed."
		out.fields = append(out.fields, field{kind: "text", name: "commit", label: "Commit", hint: "empty: the head of the branch"})
		out.command, out.related = "pipectl application sync --app-id "+apps[0].Id, v.refused(apps[0])
		return out, nil
	}
	out.title, out.text = "Sync "+plural(len(apps), "application", "applications")+"?", "What Git wants is deployed for each of them: "+names(apps)+"."
	return out, nil
}

func prepareHeal(v *visit, q url.Values) (*dialog, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	report, err := v.control.GetDriftReport(v.ctx, &controlv1.GetDriftReportRequest{ApplicationId: app.GetId()})
	if err != nil {
		return nil, err
	}
	out := &dialog{title: "Heal " + app.Name + "?", submit: "Heal", text: "What Git says is applied again. These live objects change:",
		command: "pipectl application sync --app-id " + app.Id}
	for _, o := range report.GetReport().GetObjects() {
		out.consequences = append(out.consequences, objectName(o.Object)+": "+differs(o))
	}
	return out, nil
}

// names returns the names of applications in one line.
func names(apps []*modelv1.Application) string {
	list := make([]string, len(apps))
	for i, a := range apps {
		list[i] = a.Name
	}
	return strings.Join(list, ", ")
}

// differs says how an object differs from Git.
func differs(o *modelv1.ObjectDrift) string {
	switch o.Kind {
	case modelv1.DriftKind_DRIFT_KIND_MISSING:
		return "it is missing"
	case modelv1.DriftKind_DRIFT_KIND_EXTRA:
		return "it is not in Git"
	}
	if len(o.Fields) == 1 {
		return o.Fields[0].Path + " differs"
	}
	return plural(len(o.Fields), "field differs", "fields differ")
}

func runSync(v *visit, q url.Values) (*outcome, error) {
	apps, err := v.applications(q)
	if err != nil {
		return nil, err
	}
	if len(apps) > 1 {
		return v.syncTogether(apps, q), nil
	}
	resp, err := v.sync(apps[0], q)
	if err != nil {
		return nil, err
	}
	return started("Sync was asked for", "The agent deploys "+apps[0].Name+".", apps[0], resp), nil
}

func (v *visit) sync(app *modelv1.Application, q url.Values) (*controlv1.SyncApplicationResponse, error) {
	return v.control.SyncApplication(v.ctx, &controlv1.SyncApplicationRequest{ApplicationId: app.Id, Strategy: strategyOf(q), Commit: strings.TrimSpace(q.Get("commit"))})
}

// syncTogether syncs several applications, and leads to the view of what becomes of that. If some
// cannot be synced, it says first which and why.
func (v *visit) syncTogether(apps []*modelv1.Application, q url.Values) *outcome {
	out := &outcome{}
	var syncing []*modelv1.Application
	var commands []string
	for _, app := range apps {
		resp, err := v.sync(app, q)
		if err != nil {
			out.failures = append(out.failures, app.Name+": "+status.Convert(err).Message())
			continue
		}
		syncing, commands = append(syncing, app), append(commands, resp.CommandId)
	}
	if len(commands) == 0 {
		out.title = "Nothing was synced"
		return out
	}
	out.title, out.text = "Sync was asked for", "The agent deploys "+names(syncing)+". These cannot be synced:"
	out.links = []navLink{{label: "Show the progress", path: commandsPath(commands)}}
	if len(out.failures) == 0 {
		out.to = commandsPath(commands)
	}
	return out
}

func prepareRollback(v *visit, q url.Values) (*dialog, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	past, err := v.listed(&apiservice.ListDeploymentsRequest{ApplicationIds: []string{app.GetId()}, Statuses: []string{modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS.String()}, Limit: 10})
	if err != nil {
		return nil, err
	}
	choice := field{kind: "choice", name: "deployment", label: "Roll back to"}
	for _, d := range past.Deployments {
		if d.GetTrigger().GetCommit().GetHash() != app.RunningCommit {
			choice.options = append(choice.options, option{value: d.Id, chosen: len(choice.options) == 0 && !q.Has("deployment") || q.Get("deployment") == d.Id,
				label: short(d.Trigger.Commit.Hash) + " " + firstLine(d.Trigger.Commit.Message), hint: versions(d.Versions) + ", " + ago(v.now, d.CompletedAtMs)})
		}
	}
	if len(choice.options) == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "%s has no earlier success to roll back to", app.Name)
	}
	return &dialog{title: "Roll " + app.Name + " back?", submit: "Roll back", danger: true, fields: []field{choice, reasonField("for those who see that it is held")},
		text:    app.Name + " runs " + short(app.RunningCommit) + " now. It is held at the chosen version until a new commit or a sync.",
		command: "pipectl application rollback --app-id " + app.Id}, nil
}

func runRollback(v *visit, q url.Values) (*outcome, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.RollbackApplication(v.ctx, &controlv1.RollbackApplicationRequest{ApplicationId: app.Id, DeploymentId: q.Get("deployment"), Reason: q.Get("reason")})
	return started("Rolling back", app.Name+" goes back to "+short(resp.GetCommit())+".", app, resp), err
}

func prepareEnable(v *visit, q url.Values) (*dialog, error) {
	app, err := v.application(q)
	return &dialog{title: "Enable " + app.GetName() + "?", submit: "Enable", text: "Commits deploy it again.", command: "pipectl application enable --app-id " + app.GetId()}, err
}

func runEnable(v *visit, q url.Values) (*outcome, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	_, err = v.control.EnableApplication(v.ctx, &controlv1.EnableApplicationRequest{ApplicationId: app.Id})
	return started("Enabled", app.Name+" is enabled.", app, &controlv1.SyncApplicationResponse{}), err
}

func prepareDisable(v *visit, q url.Values) (*dialog, error) {
	app, err := v.application(q)
	return &dialog{title: "Disable " + app.GetName() + "?", submit: "Disable", danger: true, text: "Nothing is deployed or healed until it is enabled again. What runs goes on running.",
		command: "pipectl application disable --app-id " + app.GetId()}, err
}

func runDisable(v *visit, q url.Values) (*outcome, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	_, err = v.api.DisableApplication(v.ctx, &apiservice.DisableApplicationRequest{ApplicationId: app.Id})
	return started("Disabled", app.Name+" is disabled.", app, &controlv1.SyncApplicationResponse{}), err
}

func preparePrune(v *visit, q url.Values) (*dialog, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.ConfirmPrune(v.ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.Id, DeploymentId: q.Get(refusedField), DryRun: true})
	if err != nil {
		return nil, err
	}
	out := &dialog{title: "Delete " + plural(len(resp.Objects), "object", "objects") + " of " + app.Name + "?", submit: "Delete and deploy", danger: true, confirm: app.Name,
		text:         "Git no longer has them. The deployment failed because it would have deleted them; it is repeated and deletes:",
		consequences: objectNames(resp.Objects), command: "pipectl application sync --confirm-prune --app-id " + app.Id,
		fields: []field{{kind: "hidden", name: refusedField, value: resp.DeploymentId}}}
	if app.Kind == modelv1.ApplicationKind_KUBERNETES {
		return out, nil
	}
	out.title, out.submit = "Destroy or replace "+plural(len(resp.Objects), "resource", "resources")+" of "+app.Name+"?", "Destroy and deploy"
	out.text = "The deployment failed before it applied anything, because its plan destroys or replaces more resources than its limit (confirmDestroyAbove). It is repeated, and may destroy or replace these, and beyond the limit no others:"
	out.command = "pipectl application sync --confirm-destroy --app-id " + app.Id
	plan, err := v.control.GetPlan(v.ctx, &controlv1.GetPlanRequest{DeploymentId: resp.DeploymentId, Diff: true})
	if names := destroyed(plan.GetPlan().GetChanges()); err == nil && len(names) == len(resp.Objects) {
		out.consequences = names
	}
	return out, nil
}

// refusedField is the input with the deployment whose deletions a user has seen.
const refusedField = "refused"

// refused returns what permits the deletions that the newest deployment of an application was
// refused, nil if it was not.
func (v *visit) refused(app *modelv1.Application) *related {
	resp, err := v.control.ConfirmPrune(v.ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.Id, DryRun: true})
	if err != nil || len(resp.Objects) == 0 {
		return nil // a sync needs no confirmation
	}
	text := "The last deployment failed because it would have deleted " + plural(len(resp.Objects), "object", "objects") + ". A sync of the same fails again, unless the deletions are confirmed."
	if app.Kind != modelv1.ApplicationKind_KUBERNETES {
		text = "The last deployment failed because it would have destroyed or replaced " + plural(len(resp.Objects), "resource", "resources") + ". A sync of the same fails again, unless that is confirmed."
	}
	return &related{text, navLink{label: "Confirm deletions…", path: applicationAction("confirm-prune", app.Id)}}
}

func objectNames(list []*modelv1.ObjectRef) []string {
	out := make([]string, len(list))
	for i, o := range list {
		out[i] = objectName(o)
	}
	return out
}

func runPrune(v *visit, q url.Values) (*outcome, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.ConfirmPrune(v.ctx, &controlv1.ConfirmPruneRequest{ApplicationId: app.Id, DeploymentId: q.Get(refusedField)})
	text := plural(len(resp.GetObjects()), "object is", "objects are") + " deleted by a new deployment."
	if app.Kind != modelv1.ApplicationKind_KUBERNETES {
		text = "A new deployment may destroy or replace " + plural(len(resp.GetObjects()), "resource", "resources") + "."
	}
	return started("The deletions are permitted", text, app, resp), err
}

// adoption returns the decision that an application awaits.
func (v *visit) adoption(app *modelv1.Application) (*controlv1.Adoption, error) {
	resp, err := v.control.ListAdoptions(v.ctx, &controlv1.ListAdoptionsRequest{ApplicationId: app.Id})
	if err == nil && len(resp.Adoptions) == 0 {
		err = status.Errorf(codes.FailedPrecondition, "%s awaits no decision about live objects", app.Name)
	}
	if err != nil {
		return nil, err
	}
	return resp.Adoptions[0], nil
}

func prepareAdopt(v *visit, q url.Values) (*dialog, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	a, err := v.adoption(app)
	if err != nil {
		return nil, err
	}
	out := &dialog{title: "Take over " + plural(len(a.Objects), "live object", "live objects") + "?", submit: "Decide", command: "pipectl application adopt --app-id " + app.Id,
		text: app.Name + " declares objects that exist already. Those marked as changed get fields from Git.",
		fields: []field{{kind: "choice", name: "decision", label: "Decision", options: []option{
			{"accept:" + a.Token, "Take them over", "the agent manages them from now on", true},
			{"decline:" + a.Token, "Leave them alone", "the application is disabled", false},
		}}}}
	for _, o := range a.Objects {
		line := objectName(o.Object)
		if o.Changes {
			line += " (changed)"
		}
		if len(o.Managers) > 0 {
			line += ", managed by " + strings.Join(o.Managers, ", ")
		}
		out.consequences = append(out.consequences, line)
	}
	return out, nil
}

func runAdopt(v *visit, q url.Values) (*outcome, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	decision, token, _ := strings.Cut(q.Get("decision"), ":")
	resp, err := v.control.DecideAdoption(v.ctx, &controlv1.DecideAdoptionRequest{ApplicationId: app.Id, Accept: decision == "accept", Token: token})
	if decision == "accept" {
		return started("Taking over", "The live objects of "+app.Name+" are taken over.", app, resp), err
	}
	return started("Left alone", app.Name+" is disabled, and its live objects stay as they are.", app, resp), err
}

func prepareDelete(v *visit, q url.Values) (*dialog, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	out := &dialog{title: "Delete " + app.Name + "?", submit: "Delete", danger: true, confirm: app.Name,
		text:    "The application is unregistered, and stays so until it is added again.",
		command: "pipectl application delete --app-id " + app.Id,
		fields:  []field{{kind: "check", name: "cascade", label: "Also delete its live objects", value: "yes"}}}
	resp, err := v.control.DeleteApplication(v.ctx, &controlv1.DeleteApplicationRequest{ApplicationId: app.Id, Cascade: true, DryRun: true})
	switch {
	case status.Code(err) == codes.FailedPrecondition || status.Code(err) == codes.Unavailable:
		out.fields = nil
		out.consequences = []string{"Its live objects stay: " + status.Convert(err).Message()}
		return out, nil
	case err != nil:
		return nil, err
	}
	out.fields[0].hint = fmt.Sprintf("deletes %s: %s", plural(len(resp.Objects), "object", "objects"), strings.Join(objectNames(resp.Objects), ", "))
	return out, nil
}

func runDelete(v *visit, q url.Values) (*outcome, error) {
	app, err := v.application(q)
	if err != nil {
		return nil, err
	}
	resp, err := v.control.DeleteApplication(v.ctx, &controlv1.DeleteApplicationRequest{ApplicationId: app.Id, Cascade: q.Get("cascade") == "yes"})
	return &outcome{title: "Deleted", text: app.Name + " is unregistered.", command: resp.GetCommandId(), links: []navLink{{label: "All applications", path: "/applications"}}}, err
}
