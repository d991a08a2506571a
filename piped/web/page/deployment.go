package page

import (
	"cmp"
	"net/url"
	"slices"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// deploymentView is one deployment: the pipeline, and the content of a tab.
type deploymentView struct {
	d     *modelv1.Deployment
	stage *modelv1.PipelineStage // that is selected; nil without stages
	tab   string
	query url.Values
	body  templ.Component
	key   string // of the body

	rollouts    []*modelv1.Rollout
	rolloutsErr error
	pods        rolloutPods
	last        int64 // milliseconds that the last successful one of the application took; 0 without one

	appended bool // as that of the tab
}

// deploymentTab is a part of the view.
type deploymentTab struct {
	name, label string
	read        func(*visit, *deploymentView) (templ.Component, string, error)
	appended    bool // a stream of its own adds to it; nothing else refreshes it
}

// deploymentTabs are the tabs in their order; the first is shown by default.
func deploymentTabs() []deploymentTab {
	return []deploymentTab{
		{name: "log", label: "Log", read: readLogTab, appended: true}, {name: "plan", label: "Plan", read: readPlan},
		{name: analysisName, label: "Analysis", read: readAnalysis}, {name: "rollouts", label: "Rollouts", read: readDeploymentRollouts}, {name: "timeline", label: "Timeline", read: readTimeline},
	}
}

// showDeployment shows a deployment.
func showDeployment(v *visit) (*screen, error) {
	view, err := v.readDeployment(v.r.PathValue("id"), false)
	if err != nil {
		return nil, err
	}
	if view.d.CompletedAtMs == 0 {
		view.last = v.lastDuration(view.d.ApplicationId)
	}
	return &screen{
		title: view.d.ApplicationName + " at " + short(view.d.GetTrigger().GetCommit().GetHash()), nav: "Applications", body: deploymentPage(v, view),
		live: withQuery(deploymentPath(view.d.Id)+"/live", view.query), parts: view.parts(v),
	}, nil
}

// readDeployment reads a deployment with the stage and the tab that the address names, or, to
// refresh the view, only what its stream replaces.
func (v *visit) readDeployment(id string, refresh bool) (*deploymentView, error) {
	d, err := v.deployment(url.Values{"deployment": {id}})
	if err != nil {
		return nil, err
	}
	view := &deploymentView{d: d, query: v.query()}
	view.query.Del("from")
	view.stage = selected(d, view.query.Get("stage"))
	tab := deploymentTabs()[0]
	for _, t := range deploymentTabs() {
		if t.name == view.query.Get("tab") {
			tab = t
		}
	}
	view.tab, view.appended = tab.name, tab.appended
	view.readRollouts(v)
	if refresh && tab.appended {
		return view, nil
	}
	view.body, view.key, err = tab.read(v, view)
	if err != nil && status.Code(err) != codes.Unauthenticated {
		view.body, view.key = v.failedTab(err)
		err = nil // the rest of the view stays usable
	}
	return view, err
}

// readRollouts reads the rollouts with their pods. If that fails, the stages are shown without.
func (d *deploymentView) readRollouts(v *visit) {
	resp, err := v.control.ListRollouts(v.ctx, &controlv1.ListRolloutsRequest{DeploymentId: d.d.Id, Limit: historyPage})
	d.rollouts, d.rolloutsErr = resp.GetRollouts(), err
	d.pods = v.readPods(d.rollouts)
}

// rolloutsOf returns the rollouts of a stage.
func (d *deploymentView) rolloutsOf(s *modelv1.PipelineStage) []*modelv1.Rollout {
	return slices.DeleteFunc(slices.Clone(d.rollouts), func(r *modelv1.Rollout) bool { return r.StageId != s.Id })
}

// selected returns the stage with an ID, else the one that failed, runs or ended last.
func selected(d *modelv1.Deployment, id string) *modelv1.PipelineStage {
	var last *modelv1.PipelineStage
	for _, s := range shownStages(d) {
		switch {
		case s.Id == id:
			return s
		case last == nil, s.StartedAtMs > 0 && last.Status != modelv1.StageStatus_STAGE_FAILURE:
			last = s
		}
	}
	return last
}

// shownStages returns the stages to show: those of the rollback only once it runs.
func shownStages(d *modelv1.Deployment) []*modelv1.PipelineStage {
	return slices.DeleteFunc(slices.Clone(d.GetStages()), func(s *modelv1.PipelineStage) bool { return s.Rollback && s.StartedAtMs == 0 })
}

// parts returns the live parts. The log is none: a stream of its own appends to it.
func (d *deploymentView) parts(v *visit) []part {
	parts := []part{{"summary", keyOf(d.d, keyOfAll(d.rollouts), d.pods), deploymentSummary(v, d)}}
	if !d.appended {
		parts = append(parts, part{"tab", d.key, tabBody(d.body)})
	}
	return parts
}

// deploymentSource is the stream of one deployment.
type deploymentSource struct {
	podsRenewal
	id   string
	last *int64 // nil until it is read
}

func liveDeployment(v *visit) (source, error) { return &deploymentSource{id: v.r.PathValue("id")}, nil }

func (s *deploymentSource) watch(v *visit) (receive, error) { return v.watchDeployment(s.id) }

func (s *deploymentSource) opened() string { return "" }

func (s *deploymentSource) parts(v *visit) ([]part, error) {
	defer s.noted(v)
	view, err := v.readDeployment(s.id, true)
	if err != nil {
		return nil, err
	}
	if view.d.CompletedAtMs == 0 {
		if s.last == nil {
			s.last = new(v.lastDuration(view.d.ApplicationId))
		}
		view.last = *s.last
	}
	strip, err := v.readStrip()
	if err != nil {
		return nil, err
	}
	return append(view.parts(v), strip.part()), nil
}

// path returns the address of the view with a parameter set.
func (d *deploymentView) path(name, value string) string {
	q := url.Values{}
	for n, values := range d.query {
		q[n] = values
	}
	q.Set(name, value)
	return withQuery(deploymentPath(d.d.Id), q)
}

// tabs returns the links to the tabs.
func (d *deploymentView) tabs() []tab {
	var out []tab
	for _, t := range deploymentTabs() {
		if t.name == analysisName && !analysed(d.d) {
			continue
		}
		out = append(out, tab{label: t.label, path: d.path("tab", t.name), current: t.name == d.tab})
	}
	return out
}

// headline answers what the deployment does or did.
func (d *deploymentView) headline() string {
	text := what(d.d)
	switch d.d.Status {
	case modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS:
		return text + " is deployed: it took " + millis(took(d.d)) + "."
	case modelv1.DeploymentStatus_DEPLOYMENT_FAILURE:
		return text + stopped(" is not deployed: "+cmp.Or(headlineOf(d.d.StatusReason), "it failed"))
	case modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED:
		return text + stopped(" was cancelled: "+cmp.Or(headlineOf(d.d.StatusReason), "no reason is known"))
	case modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK:
		return text + stopped(" is rolled back: "+cmp.Or(headlineOf(d.d.StatusReason), "a stage failed"))
	}
	if w := d.d.GetWait().GetWaitsFor(); w != "" {
		return text + " waits for " + w + "."
	}
	return text + " is being deployed."
}

// mark returns the mark of the deployment, which may wait for an approval.
func (d *deploymentView) mark() mark {
	if d.d.GetWait().GetApproval() {
		return stateMark("WAITING_FOR_APPROVAL")
	}
	return deploymentMark(d.d.Status)
}

// brings says what the deployment brings where, in place of what.
func (d *deploymentView) brings() string {
	text := ", to " + d.d.PlatformProvider
	if list := versions(d.d.Versions); list != "" {
		text += ": " + list
	}
	if d.d.RunningCommitHash != "" {
		text += ", in place of " + short(d.d.RunningCommitHash)
	}
	return text
}

// trigger says what caused the deployment.
func (d *deploymentView) trigger() string {
	switch d.d.TriggerKind {
	case modelv1.TriggerKind_TRIGGER_KIND_ON_COMMAND:
		return "asked for by " + cmp.Or(d.d.GetTrigger().GetCommander(), "a user")
	case modelv1.TriggerKind_TRIGGER_KIND_ON_OUT_OF_SYNC:
		return "because the cluster differed from Git"
	case modelv1.TriggerKind_TRIGGER_KIND_ON_CHAIN:
		return "as part of a chain"
	}
	return "by a commit of " + cmp.Or(d.d.GetTrigger().GetCommit().GetAuthor(), "an unknown author")
}

// lasted returns how long a stage ran, in milliseconds; 0 unless it has ended.
func lasted(s *modelv1.PipelineStage) int64 {
	if s.StartedAtMs == 0 || s.CompletedAtMs == 0 {
		return 0
	}
	return s.CompletedAtMs - s.StartedAtMs
}

func readPlan(v *visit, d *deploymentView) (templ.Component, string, error) {
	resp, err := v.control.GetPlan(v.ctx, &controlv1.GetPlanRequest{DeploymentId: d.d.Id, Diff: true})
	if err != nil {
		return nil, "", err
	}
	return planTab(resp.GetPlan()), keyOf(resp), nil
}

func readDeploymentRollouts(v *visit, d *deploymentView) (templ.Component, string, error) {
	if d.rolloutsErr != nil {
		return nil, "", d.rolloutsErr
	}
	if len(d.rollouts) == 0 {
		return empty("No rollouts", "This deployment has replaced no pods so far."), "none", nil
	}
	return rolloutRows(v, d.rollouts, d.pods), keyOf(keyOfAll(d.rollouts), d.pods), nil
}

func readTimeline(v *visit, d *deploymentView) (templ.Component, string, error) {
	return timelineTab(v, d), keyOfAll(d.d.GetTransitions()), nil
}

// changes returns the transitions without those that only create a stage.
func changes(d *modelv1.Deployment) []*modelv1.Transition {
	return slices.DeleteFunc(slices.Clone(d.GetTransitions()), func(t *modelv1.Transition) bool {
		return t.To == modelv1.StageStatus_STAGE_NOT_STARTED_YET.String()
	})
}

// stageName returns the name of a stage of a transition; "" for the deployment itself.
func stageName(d *modelv1.Deployment, id string) string {
	for _, s := range d.GetStages() {
		if s.Id == id {
			return s.Name
		}
	}
	return ""
}

// transitionMark returns the mark of the status that a transition leads to.
func transitionMark(t *modelv1.Transition) mark {
	if s, ok := modelv1.DeploymentStatus_value[t.To]; ok {
		return deploymentMark(modelv1.DeploymentStatus(s))
	}
	if s, ok := modelv1.StageStatus_value[t.To]; ok {
		return stageMark(&modelv1.PipelineStage{Status: modelv1.StageStatus(s)})
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// orDeployment names what a transition is about.
func orDeployment(stage string) string { return cmp.Or(stage, "The deployment") }

// verdict returns a decision in words.
func verdict(d *modelv1.StageDecision) string {
	text := "decided"
	switch d.Verdict {
	case modelv1.StageDecision_VERDICT_APPROVED:
		text = "approved"
	case modelv1.StageDecision_VERDICT_REJECTED:
		text = "rejected"
	case modelv1.StageDecision_VERDICT_SKIPPED:
		text = "skipped"
	}
	text += " by " + d.Subject
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}
