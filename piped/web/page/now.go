package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a-h/templ"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Limits of the view Now.
const (
	nowEntries  = 200 // applications that need a person or are under way
	nowDetails  = 20  // of these, whose deployment is read
	nowFinished = 8   // last deployments
	nowRollouts = 100 // rollouts in progress
)

// firstApplication is the shortest configuration of an application.
const firstApplication = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec: {name: web}
`

// nowView is what needs a person, and what is under way.
type nowView struct {
	strip    *strip
	problems []problem // of the agent
	waiting  []waiting
	broken   []*controlv1.ApplicationEntry
	held     []*controlv1.ApplicationEntry
	underWay []underWay
	done
	total int32 // applications
	more  int32 // applications that are left out
	pods  rolloutPods
	agent *controlv1.GetStatusResponse // nil for a caller who may not see it
}

// nowGroup is a section of the view. A row is replaced alone unless others come or go.
type nowGroup struct {
	id, title string
	problems  []problem // before the rows
	rows      []part
}

// done is what was done today, and the last deployments.
type done struct {
	today  *controlv1.DeliveryFigures
	recent []*modelv1.Deployment
	readAt time.Time
}

// nowRead is what a stream of the view Now remembers.
type nowRead struct {
	lasts map[string]int64 // durations before the deployments under way, by the IDs of these
	done  done
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
	entry    *controlv1.ApplicationEntry
	last     int64 // milliseconds; 0 without one
	rollouts []*modelv1.Rollout
}

// showNow shows the view Now.
func showNow(v *visit) (*screen, error) {
	view, err := v.readNow(&nowRead{lasts: map[string]int64{}})
	if err != nil {
		return nil, err
	}
	parts := view.parts(v)
	return &screen{title: "Now", nav: "Now", body: parts[0].body, live: "/live", parts: parts, strip: view.strip}, nil
}

// liveNow is the stream of the view Now.
func liveNow(*visit) (source, error) {
	return &nowSource{known: nowRead{lasts: map[string]int64{}}}, nil
}

type nowSource struct {
	everyApplication
	podsRenewal
	known nowRead

	mu      sync.Mutex
	renewed done
}

// renew reads what is done, and the pods.
func (s *nowSource) renew(v *visit) {
	v.now = v.config.Now()
	if read, err := v.readDone(); err == nil { // else the parts read it
		s.mu.Lock()
		s.renewed = read
		s.mu.Unlock()
	}
	s.podsRenewal.renew(v)
}

// remembered returns what is remembered, with what was renewed.
func (s *nowSource) remembered() *nowRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.renewed.readAt.After(s.known.done.readAt) {
		s.known.done = s.renewed
	}
	return &s.known
}

func (s *nowSource) parts(v *visit) ([]part, error) {
	defer s.noted(v)
	view, err := v.readNow(s.remembered())
	if err != nil {
		return nil, err
	}
	return append(view.parts(v), view.strip.part()), nil
}

// parts returns the live parts, but the strip. The first is the whole view.
func (n *nowView) parts(v *visit) []part {
	groups := n.groups(v)
	shape := []any{n.total == 0, n.more}
	for _, g := range groups {
		shape = append(shape, g.id)
	}
	parts := []part{{"now", keyOf(shape...), nowPage(v, n, groups)}, {"now-headline", keyOf(n.headline()), within{nowHeadline(n), "now"}}}
	for _, g := range groups {
		parts = append(parts, g.parts(v)...)
	}
	if n.total > 0 {
		return append(parts, part{"now-done", keyOf(n.today, keyOfAll(n.recent)), within{nowDone(v, n.done), "now"}})
	}
	return append(parts, repositoriesPart(v, n.agent, "now"))
}

// repositoriesPart returns the live list of the repositories that are searched. inside is the ID of the
// part that contains it, "" for none.
func repositoriesPart(v *visit, agent *controlv1.GetStatusResponse, inside string) part {
	return part{"repositories", keyOf(agent == nil, keyOfAll(agent.GetRepositories())), within{searchedRepositories(v, agent), inside}}
}

// groups returns the sections that have rows.
func (n *nowView) groups(v *visit) []nowGroup {
	waits, broken := nowGroup{id: "now-waiting", title: "Waiting for you"}, nowGroup{id: "now-not-well", title: "Not well", problems: n.problems}
	running, held := nowGroup{id: "now-under-way", title: "Under way"}, nowGroup{id: "now-held", title: "Held"}
	for _, w := range n.waiting {
		waits.add(w.entry, keyOf(w.entry, w.deployment, w.mayApprove), waitingRow(v, w))
	}
	for _, e := range n.broken {
		broken.add(e, keyOf(e), brokenRow(v, e))
	}
	for _, u := range n.underWay {
		values := []any{u.entry, u.last}
		for _, r := range u.rollouts {
			values = append(values, r, n.pods[r.Id])
		}
		running.add(u.entry, keyOf(values...), underWayRow(v, n, u))
	}
	for _, e := range n.held {
		held.add(e, keyOf(e), heldRow(v, e))
	}
	return slices.DeleteFunc([]nowGroup{waits, broken, running, held}, func(g nowGroup) bool { return g.count() == 0 })
}

func (g *nowGroup) add(e *controlv1.ApplicationEntry, key string, row templ.Component) {
	g.rows = append(g.rows, part{rowID("now", e.Id), key, within{row, g.id}})
}

func (g nowGroup) count() int { return len(g.problems) + len(g.rows) }

// parts returns the section and its rows.
func (g nowGroup) parts(v *visit) []part {
	shape := []any{g.problems}
	for _, row := range g.rows {
		shape = append(shape, row.id)
	}
	return append([]part{{g.id, keyOf(shape...), within{nowSection(v, g), "now"}}}, g.rows...)
}

// unsettled returns the values of the facet `state` of applications that are not just synced.
func unsettled() []string {
	return []string{"FAILED", "DEGRADED", "INVALID_CONFIG", "DRIFTED", "UNKNOWN", "WAITING_FOR_APPROVAL", "HELD", "DEPLOYING"}
}

// readNow reads the view. It remembers the last durations, which do not change during a deployment,
// and what is done.
func (v *visit) readNow(known *nowRead) (*nowView, error) {
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
	view := &nowView{strip: newStrip(found.Facets, state, v.now), problems: problemsOf(state, v.now), agent: state, more: found.Total - int32(len(found.Applications))}
	for _, n := range countsOf(found.Facets, "state") {
		view.total += n
	}
	for _, e := range found.Applications {
		view.add(v, e, known.lasts)
	}
	view.readRollouts(v)
	if v.now.Sub(known.done.readAt) > v.age || known.done.today == nil {
		if known.done, err = v.readDone(); err != nil {
			return nil, err
		}
	}
	v.saw(known.done.readAt.UnixMilli())
	view.done = known.done
	return view, nil
}

// add sorts an application into its group.
func (n *nowView) add(v *visit, e *controlv1.ApplicationEntry, lasts map[string]int64) {
	switch e.Status.GetState() {
	case controlv1.ApplicationState_APPLICATION_STATE_WAITING_FOR_APPROVAL:
		n.waiting = append(n.waiting, v.readWaiting(e, len(n.waiting) < nowDetails))
	case controlv1.ApplicationState_APPLICATION_STATE_DEPLOYING:
		u := underWay{entry: e}
		if len(n.underWay) < nowDetails {
			u.last = v.rememberedDuration(e, lasts)
		}
		n.underWay = append(n.underWay, u)
	case controlv1.ApplicationState_APPLICATION_STATE_HELD:
		n.held = append(n.held, e)
	default:
		n.broken = append(n.broken, e)
	}
}

// readRollouts reads the rollouts in progress of what is under way, with their pods. If that fails,
// the rest of the view is as useful.
func (n *nowView) readRollouts(v *visit) {
	req := &controlv1.ListRolloutsRequest{Limit: nowRollouts, Outcomes: []modelv1.RolloutOutcome{
		modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD,
	}}
	for _, u := range n.underWay[:min(len(n.underWay), nowDetails)] {
		req.ApplicationIds = append(req.ApplicationIds, u.entry.Id)
	}
	if len(req.ApplicationIds) == 0 {
		return
	}
	resp, err := v.control.ListRollouts(v.ctx, req)
	if err != nil {
		return
	}
	n.pods = v.readPods(resp.Rollouts)
	for _, r := range resp.Rollouts {
		for i := range n.underWay {
			if n.underWay[i].entry.Id == r.ApplicationId {
				n.underWay[i].rollouts = append(n.underWay[i].rollouts, r)
			}
		}
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
	text := "approval by " + cmp.Or(strings.Join(w.stage.AuthorizedOperators, " or "), "anyone")
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

// commitNotLive returns the last deployment of an application if its commit is not live, and the
// words for that; nil if it is.
func commitNotLive(e *controlv1.ApplicationEntry) (*controlv1.DeploymentBrief, string) {
	d := e.GetLastDeployment()
	switch {
	case d.GetCommit() == "", d.Commit == e.GetRunningCommit():
		return nil, ""
	case d.CompletedAtMs == 0:
		return d, "Not live yet:"
	}
	return d, "Not live:"
}

// authored returns the message of a deployment's commit, with who asked for it or wrote it.
func authored(d *controlv1.DeploymentBrief) string {
	message := withoutEscapes(d.CommitMessage)
	if d.By == "" {
		return message
	}
	return strings.TrimSpace(message + " by " + withoutEscapes(d.By))
}

// rememberedDuration returns lastDuration of an application that is being deployed.
func (v *visit) rememberedDuration(e *controlv1.ApplicationEntry, lasts map[string]int64) int64 {
	id := e.GetLastDeployment().GetDeploymentId()
	last, known := lasts[id]
	if !known {
		if len(lasts) >= 10*nowDetails {
			clear(lasts)
		}
		if last = v.lastDuration(e.Id); last > 0 {
			lasts[id] = last
		}
	}
	return last
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
func (v *visit) readDone() (done, error) {
	midnight := time.Date(v.now.Year(), v.now.Month(), v.now.Day(), 0, 0, 0, 0, v.now.Location())
	figures, err := v.control.GetDeliveryFigures(v.ctx, &controlv1.GetDeliveryFiguresRequest{FromMs: midnight.UnixMilli()})
	if err != nil {
		return done{}, err
	}
	recent, err := v.listed(&apiservice.ListDeploymentsRequest{Limit: nowFinished, Statuses: []string{
		modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS.String(), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE.String(), modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED.String(),
	}})
	return done{figures.GetTotal(), recent.GetDeployments(), v.now}, err
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
