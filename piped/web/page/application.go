package page

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// historyPage is the number of deployments and rollouts that a tab shows at once.
const historyPage = 50

// applicationView is one application: the summary, and the content of a tab.
type applicationView struct {
	id      string
	app     *modelv1.Application
	summary *controlv1.ApplicationSummary
	tab     string
	query   url.Values
	body    templ.Component
	key     string // of the body
	live    []part // within the body
	tree    *tree
	object  *objectView
	beside  bool           // only the object beside the tree is shown
	adopts  bool           // its live objects await a decision
	traffic []trafficShare // as a deployment under way shares it; nil: all to the primary, or not known
}

// applicationTab is a part of the view. read returns its content and the key of that.
type applicationTab struct {
	name, label string
	read        func(*visit, *applicationView) (templ.Component, string, error)
}

// applicationTabs are the tabs in their order; the first is shown by default.
func applicationTabs() []applicationTab {
	return []applicationTab{
		{"objects", "Objects", readObjects}, {"drift", "Drift", readDrift}, {"deployments", "Deployments", readDeployments},
		{"rollouts", "Rollouts", readRollouts}, {"events", "Events", readEvents}, {"config", "Config", readConfig},
	}
}

// findApplication returns the ID of the application that an address names: by its ID, its name,
// or its name and the beginning of its ID. Several of that name are returned as a choice.
func (v *visit) findApplication() (id string, several []*controlv1.ResolvedReference, err error) {
	ref := v.r.PathValue("ref")
	if i := strings.LastIndex(ref, refMark); i >= 0 && len(ref)-i-1 >= refLength {
		name := ref[:i]
		ref = ref[i+1:]
		found, err := v.control.SearchApplications(v.ctx, &controlv1.SearchApplicationsRequest{Text: name, Limit: listPage})
		if err != nil {
			return "", nil, err
		}
		for _, e := range found.Applications {
			if strings.HasPrefix(e.Id, ref) {
				return e.Id, nil, nil
			}
		}
	}
	found, err := v.control.Resolve(v.ctx, &controlv1.ResolveRequest{Application: ref})
	switch {
	case err != nil:
		return "", nil, err
	case len(found.Matches) == 0:
		return "", nil, status.Error(codes.NotFound, "There is no application "+v.r.PathValue("ref"))
	case len(found.Matches) > 1:
		return "", found.Matches, nil
	}
	return found.Matches[0].Id, nil, nil
}

// showApplication shows an application, or the choice between several of a name.
func showApplication(v *visit) (*screen, error) {
	id, several, err := v.findApplication()
	if err != nil {
		return nil, err
	}
	if several != nil {
		return &screen{title: "Which application?", nav: "Applications", code: http.StatusMultipleChoices, body: chooseApplication(v.r.PathValue("ref"), several)}, nil
	}
	view, err := v.readApplication(id, v.fragment() && !v.query().Has("level"))
	if err != nil {
		return nil, err
	}
	s := &screen{title: view.app.GetName(), nav: "Applications", body: applicationPage(v, view), parts: view.parts(v)}
	level := view.query.Get("level")
	for _, name := range []string{"object", "show", "cluster", "container", "previous", "level"} { // an object has a stream of its own
		view.query.Del(name)
	}
	s.live = withQuery("/applications/"+url.PathEscape(id)+"/live", view.query)
	switch {
	case level != "" && view.tree != nil:
		err = view.tree.answer(v, s, level)
	case view.beside && view.tab == "objects":
		s.part = drawer(v, view.object)
	}
	return s, err
}

// readApplication reads an application with the tab that the address names, or only what is beside
// its tree.
func (v *visit) readApplication(id string, beside bool) (*applicationView, error) {
	resp, err := v.control.GetApplicationSummary(v.ctx, &controlv1.GetApplicationSummaryRequest{ApplicationId: id, MaxAgeMs: v.age.Milliseconds()})
	if err != nil {
		return nil, err
	}
	v.saw(resp.GetLiveReadAtMs())
	view := &applicationView{id: id, app: resp.GetSummary().GetApplication(), summary: resp.GetSummary(), query: v.query(), beside: beside}
	if view.app.GetNotice() != "" && v.can("sync", id) { // an application that awaits a decision has a notice
		awaited, err := v.control.ListAdoptions(v.ctx, &controlv1.ListAdoptionsRequest{ApplicationId: id})
		if err != nil {
			return nil, err
		}
		view.adopts = len(awaited.Adoptions) > 0
	}
	if current := view.current(); current != "" {
		resp, err := v.api.GetDeployment(v.ctx, &apiservice.GetDeploymentRequest{DeploymentId: current})
		if err == nil { // without it the rest of the view is as useful
			view.traffic = currentTraffic(resp.GetDeployment())
		}
	}
	view.query.Del("from")
	tab := applicationTabs()[0]
	for _, t := range applicationTabs() {
		if t.name == view.query.Get("tab") {
			tab = t
		}
	}
	view.tab = tab.name
	view.body, view.key, err = tab.read(v, view)
	if err != nil && status.Code(err) != codes.Unauthenticated {
		view.body, view.key = v.failedTab(err)
		err = nil // the rest of the view stays usable
	}
	return view, err
}

func (a *applicationView) parts(v *visit) []part {
	parts := []part{{id: "summary", key: keyOf(a.summary, a.adopts, a.traffic), body: summaryOf(v, a)}}
	parts = append(parts, part{id: "tab", key: a.key, body: tabBody(a.body)})
	return append(parts, a.live...)
}

// tabs returns the links to the tabs.
func (a *applicationView) tabs() []tab {
	var out []tab
	for _, t := range applicationTabs() {
		link := tab{label: t.label, path: withQuery(applicationPath(a.id, a.app.GetName()), url.Values{"tab": {t.name}}), current: t.name == a.tab}
		if n := a.summary.GetDrift().GetFields(); t.name == "drift" && n > 0 {
			link.count = plural(n, "field", "fields")
		}
		out = append(out, link)
	}
	return out
}

// applicationSource is the stream of one application.
type applicationSource struct{ id string }

func liveApplication(v *visit) (source, error) {
	id, several, err := v.findApplication()
	if several != nil {
		err = errSeveral
	}
	return &applicationSource{id}, err
}

func (s *applicationSource) watch(v *visit) (receive, error) { return v.watchApplications(s.id) }

func (s *applicationSource) opened() string { return "" }

// renew reads the live objects, which the API then has for the summary and the tree.
func (s *applicationSource) renew(v *visit) {
	_, _ = v.control.GetLiveState(v.ctx, &controlv1.GetLiveStateRequest{ApplicationId: s.id, LevelLimit: 1, MaxAgeMs: v.age.Milliseconds()}) // parts report the error
}

func (s *applicationSource) parts(v *visit) ([]part, error) {
	view, err := v.readApplication(s.id, false)
	if err != nil {
		return nil, err
	}
	strip, err := v.readStrip()
	if err != nil {
		return nil, err
	}
	return append(view.parts(v), strip.part()), nil
}

func readDrift(v *visit, a *applicationView) (templ.Component, string, error) {
	resp, err := v.control.GetDriftReport(v.ctx, &controlv1.GetDriftReportRequest{ApplicationId: a.id, Diff: a.query.Has("diff")})
	if err != nil {
		return nil, "", err
	}
	past, err := v.control.ListDriftReports(v.ctx, &controlv1.ListDriftReportsRequest{ApplicationIds: []string{a.id}, Limit: 20})
	if err != nil {
		return nil, "", err
	}
	ended := slices.DeleteFunc(slices.Clone(past.GetReports()), func(r *modelv1.DriftReport) bool { return r.EndedAtMs == 0 })
	return driftTab(v, a, resp.GetReport(), ended), keyOf(keyOfAll(resp.GetReport().GetObjects()), keyOfAll(past.GetReports())), nil
}

func readDeployments(v *visit, a *applicationView) (templ.Component, string, error) {
	resp, err := v.listed(&apiservice.ListDeploymentsRequest{ApplicationIds: []string{a.id}, Limit: historyPage, Cursor: a.query.Get("cursor")})
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(resp.Deployments) == historyPage {
		next = resp.Cursor
	}
	return historyTab(a, "deployments", deploymentRows(v, resp.Deployments, false), len(resp.Deployments), next), keyOfAll(resp.Deployments), nil
}

func readRollouts(v *visit, a *applicationView) (templ.Component, string, error) {
	resp, err := v.control.ListRollouts(v.ctx, &controlv1.ListRolloutsRequest{ApplicationIds: []string{a.id}, Limit: historyPage, Cursor: a.query.Get("cursor")})
	if err != nil {
		return nil, "", err
	}
	pods := v.readPods(resp.Rollouts)
	return historyTab(a, "rollouts", rolloutRows(v, resp.Rollouts, pods), len(resp.Rollouts), resp.Cursor), keyOf(keyOfAll(resp.Rollouts), pods), nil
}

func readConfig(v *visit, a *applicationView) (templ.Component, string, error) {
	resp, err := v.control.GetApplicationConfig(v.ctx, &controlv1.GetApplicationConfigRequest{ApplicationId: a.id})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unauthenticated:
		return nil, "", err
	default: // the details are known
		resp = &controlv1.GetApplicationConfigResponse{Error: status.Convert(err).Message()}
	}
	path := withQuery(applicationPath(a.id, a.app.GetName()), url.Values{"tab": {a.tab}})
	shown := newConfigView(path, resp.GetPath(), resp.GetYaml(), a.query.Get("only") == "configured")
	return configTab(v, a, resp, shown), keyOf(a.app, resp), nil
}

// driftEnd returns how a period of drift ended.
func driftEnd(e modelv1.DriftEnd) string {
	switch e {
	case modelv1.DriftEnd_DRIFT_END_DEPLOYED:
		return "a deployment brought it back to Git"
	case modelv1.DriftEnd_DRIFT_END_REVERTED:
		return "it was changed back in the cluster"
	case modelv1.DriftEnd_DRIFT_END_ACCEPTED:
		return "Git or the ignore rules allow it now"
	case modelv1.DriftEnd_DRIFT_END_ABANDONED:
		return "the application was disabled or deleted"
	}
	return "it lasts"
}

// orNothing returns a value of a field, or a word for none.
func orNothing(value string) string {
	if value == "" {
		return "not set"
	}
	return value
}

// page returns the address of the next page of a tab.
func (a *applicationView) page(cursor string) string {
	return withQuery(applicationPath(a.id, a.app.GetName()), url.Values{"tab": {a.tab}, "cursor": {cursor}})
}

// measured returns a duration, if it was measured.
func measured(ms *int64) string {
	if ms == nil {
		return ""
	}
	return millis(*ms)
}

// diffClass returns the class of a line of a unified diff.
func diffClass(line string) string {
	switch {
	case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "@@"):
		return "muted"
	case strings.HasPrefix(line, "+"):
		return "added"
	case strings.HasPrefix(line, "-"):
		return "removed"
	}
	return "same"
}

// unaffected reports whether Git is ahead of what runs with commits that change nothing here.
func (a *applicationView) unaffected() bool {
	s := a.summary
	return s.GetStatus().GetState() == controlv1.ApplicationState_APPLICATION_STATE_SYNCED && s.GetRunningCommit() != "" && s.GetWantedCommit() != s.GetRunningCommit()
}

// current returns the ID of the deployment that has not ended; "" if there is none.
func (a *applicationView) current() string {
	for _, d := range a.summary.GetDeployments() {
		if d.CompletedAtMs == 0 {
			return d.DeploymentId
		}
	}
	return ""
}
