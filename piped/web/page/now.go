package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of the view Now.
const (
	nowEntries  = 200 // applications that need a person or are under way
	nowDetails  = 20  // of these, whose deployment is read
	nowFinished = 8   // last deployments
)

// nowView is what needs a person, and what is under way.
type nowView struct {
	strip    *strip
	problems []problem // of the agent
	waiting  []waiting
	broken   []*controlv1.ApplicationEntry
	held     []*controlv1.ApplicationEntry
	underWay []underWay
	today    *controlv1.DeliveryFigures
	recent   []*modelv1.Deployment
	total    int32 // applications
	more     int32 // applications that are left out
	key      string
}

// waiting is a deployment that waits for an approval.
type waiting struct {
	entry      *controlv1.ApplicationEntry
	deployment *modelv1.Deployment
	stage      *modelv1.PipelineStage // nil if it is over by now
	mayApprove bool
}

// underWay is a deployment that runs, with the duration of the last one that succeeded.
type underWay struct {
	entry *controlv1.ApplicationEntry
	last  int64 // milliseconds; 0 without one
}

// showNow shows the view Now.
func showNow(v *visit) (*screen, error) {
	view, err := v.readNow()
	if err != nil {
		return nil, err
	}
	return &screen{title: "Now", nav: "Now", body: nowPage(v, view), live: "/live", parts: view.parts(v), strip: view.strip}, nil
}

// liveNow is the stream of the view Now.
func liveNow(*visit) (source, error) { return nowSource{}, nil }

type nowSource struct{}

func (nowSource) watch(v *visit) (receive, error) { return v.watchApplications() }

func (nowSource) changed(*controlv1.WatchApplicationsResponse) {}

func (nowSource) parts(v *visit) ([]part, error) {
	view, err := v.readNow()
	if err != nil {
		return nil, err
	}
	return append(view.parts(v), view.strip.part()), nil
}

// parts returns the live parts, but the strip.
func (n *nowView) parts(v *visit) []part { return []part{{"now", n.key, nowPage(v, n)}} }

// unsettled returns the values of the facet `state` of applications that are not just synced.
func unsettled() []string {
	return []string{"FAILED", "DEGRADED", "INVALID_CONFIG", "DRIFTED", "UNKNOWN", "WAITING_FOR_APPROVAL", "HELD", "DEPLOYING"}
}

// readNow reads the view.
func (v *visit) readNow() (*nowView, error) {
	found, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{
		Filters: []*controlv1.FacetFilter{{Facet: "state", Values: unsettled()}}, Facets: []string{"state"},
		Order: controlv1.ApplicationOrder_APPLICATION_ORDER_STATE, Limit: nowEntries,
	})
	if err != nil {
		return nil, err
	}
	state, err := v.agentState()
	if err != nil {
		return nil, err
	}
	view := &nowView{strip: newStrip(found.Facets, state, v.now), problems: problemsOf(state, v.now), more: found.Total - int32(len(found.Applications))}
	for _, n := range countsOf(found.Facets, "state") {
		view.total += n
	}
	for _, e := range found.Applications {
		view.add(v, e)
	}
	if err := v.readDone(view); err != nil {
		return nil, err
	}
	return view.keyed(found), nil
}

// add sorts an application into its group.
func (n *nowView) add(v *visit, e *controlv1.ApplicationEntry) {
	switch e.Status.GetState() {
	case controlv1.ApplicationState_APPLICATION_STATE_WAITING_FOR_APPROVAL:
		n.waiting = append(n.waiting, v.readWaiting(e, len(n.waiting) < nowDetails))
	case controlv1.ApplicationState_APPLICATION_STATE_DEPLOYING:
		u := underWay{entry: e}
		if len(n.underWay) < nowDetails {
			u.last = v.lastDuration(e.Id)
		}
		n.underWay = append(n.underWay, u)
	case controlv1.ApplicationState_APPLICATION_STATE_HELD:
		n.held = append(n.held, e)
	default:
		n.broken = append(n.broken, e)
	}
}

// readWaiting reads the deployment that waits. What cannot be read is left out: the link to the
// deployment remains.
func (v *visit) readWaiting(e *controlv1.ApplicationEntry, detailed bool) waiting {
	w := waiting{entry: e, mayApprove: v.can("approve", e.Id)}
	if !detailed {
		return w
	}
	resp, err := v.api.GetDeployment(v.ctx, &apiservice.GetDeploymentRequest{DeploymentId: e.GetLastDeployment().GetDeploymentId()})
	if err != nil {
		return w
	}
	w.deployment = resp.Deployment
	i := slices.IndexFunc(resp.Deployment.GetStages(), awaitsApproval)
	if i >= 0 {
		w.stage = resp.Deployment.Stages[i]
	}
	return w
}

// awaitsApproval reports whether a stage can be approved now.
func awaitsApproval(s *modelv1.PipelineStage) bool {
	return s.Status == modelv1.StageStatus_STAGE_RUNNING && s.AvailableOperation == modelv1.ManualOperation_MANUAL_OPERATION_APPROVE
}

// approvals returns the number of approvals that a stage has, and who gave them.
func approvals(s *modelv1.PipelineStage) (given int32, by []string) {
	for _, d := range s.GetDecisions() {
		if d.Verdict == modelv1.StageDecision_VERDICT_APPROVED {
			given++
			by = append(by, d.Subject)
		}
	}
	return given, by
}

// reason says whose approvals are missing, such as `approval by payments (1 of 2: jane)`.
func (w waiting) reason() string {
	if w.stage == nil {
		return w.entry.Status.GetReason()
	}
	text := "approval"
	if len(w.stage.AuthorizedOperators) > 0 {
		text += " by " + strings.Join(w.stage.AuthorizedOperators, " or ")
	}
	given, by := approvals(w.stage)
	switch {
	case len(by) > 0:
		text += fmt.Sprintf(" (%d of %d: %s)", given, w.stage.RequiredApprovals, strings.Join(by, ", "))
	case w.stage.RequiredApprovals > 1:
		text += fmt.Sprintf(" (0 of %d)", w.stage.RequiredApprovals)
	}
	if w.stage.Desc != "" {
		text += " · " + w.stage.Desc
	}
	return text
}

// lastDuration returns how long the last successful deployment of an application took; 0 if that
// is not known.
func (v *visit) lastDuration(applicationID string) int64 {
	resp, err := v.listed(&apiservice.ListDeploymentsRequest{
		ApplicationIds: []string{applicationID}, Statuses: []string{modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS.String()}, Limit: 1,
	})
	if err != nil || len(resp.Deployments) == 0 {
		return 0
	}
	return took(resp.Deployments[0])
}

// took returns how long a deployment took, in milliseconds; 0 before its end.
func took(d *modelv1.Deployment) int64 {
	if d.GetCompletedAtMs() == 0 {
		return 0
	}
	return d.CompletedAtMs - d.CreatedAtMs
}

// readDone reads what was done today, and the last deployments.
func (v *visit) readDone(view *nowView) error {
	midnight := time.Date(v.now.Year(), v.now.Month(), v.now.Day(), 0, 0, 0, 0, v.now.Location())
	figures, err := v.control.GetDeliveryFigures(v.ctx, &controlv1.GetDeliveryFiguresRequest{FromMs: midnight.UnixMilli()})
	if err != nil {
		return err
	}
	view.today = figures.GetTotal()
	recent, err := v.listed(&apiservice.ListDeploymentsRequest{Limit: nowFinished, Statuses: []string{
		modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS.String(), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE.String(), modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED.String(),
	}})
	view.recent = recent.GetDeployments()
	return err
}

// keyed sets the key of what is shown.
func (n *nowView) keyed(found *controlv1.SearchApplicationsResponse) *nowView {
	values := []any{found, n.today, n.problems, keyOfAll(n.recent)}
	for _, w := range n.waiting {
		values = append(values, w.deployment, w.mayApprove)
	}
	n.key = keyOf(values...)
	return n
}

// calm reports whether nothing needs a person.
func (n *nowView) calm() bool {
	return len(n.waiting)+len(n.broken)+len(n.problems) == 0
}

// doneToday says what was done today.
func doneToday(f *controlv1.DeliveryFigures) string {
	done := f.GetSucceeded() + f.GetFailed() + f.GetCancelled()
	if done == 0 {
		return "Nothing was deployed today."
	}
	text := plural(done, "deployment", "deployments") + " today"
	if f.GetFailed() > 0 {
		text += ", " + plural(f.GetFailed(), "failed", "failed")
	}
	if f.LeadTimeMedianMs != nil {
		text += ", median " + millis(f.GetLeadTimeMedianMs()) + " from commit to live"
	}
	return text + "."
}

// headline is the first sentence of the view.
func (n *nowView) headline() string {
	switch {
	case n.total == 0:
		return "There are no applications yet."
	case n.calm() && len(n.underWay) > 0:
		return "All is well; " + plural(len(n.underWay), "deployment is", "deployments are") + " under way."
	case n.calm():
		return "All is well: " + plural(n.total, "application", "applications") + ", nothing waits for you."
	case len(n.waiting) == 0:
		return plural(len(n.broken)+len(n.problems), "thing is", "things are") + " not well."
	case len(n.broken)+len(n.problems) == 0:
		return plural(len(n.waiting), "deployment waits", "deployments wait") + " for approval."
	}
	return plural(len(n.waiting), "deployment waits", "deployments wait") + " for approval, " + plural(len(n.broken)+len(n.problems), "thing is", "things are") + " not well."
}
