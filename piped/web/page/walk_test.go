package page_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/figures"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web/page"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Results of a request about an application of team payments.
const (
	signIn  = "sign in"   // leads to the sign-in page, or offers it
	shown   = "shown"     // with the application
	without = "without"   // a page that does not know the application
	missing = "not found" // as if there were no such application
	denied  = "denied"
	saved   = "saved" // in the caller's own browser
)

// walkers are the callers, in the order of the columns of walkTable.
var walkers = []string{"nobody", "viewer of search", "viewer", "deployer", "approver", "admin"}

// signedOut are further callers who get what nobody gets.
var signedOut = []string{"expired session", "ended session", "unknown session"}

// walkTable is what each route answers to each of the walkers.
var walkTable = map[string][]string{
	"GET /{$}":               {signIn, without, shown, shown, shown, shown},
	"/":                      {missing, missing, missing, missing, missing, missing},
	"GET /strip/live":        {signIn, without, without, without, without, without},
	"GET /live":              {signIn, without, shown, shown, shown, shown},
	"GET /applications":      {signIn, without, shown, shown, shown, shown},
	"GET /applications/live": {signIn, without, shown, shown, shown, shown},
	// A filter is saved in the caller's browser, and tells nothing about applications.
	"POST /applications/filters": {signIn, saved, saved, saved, saved, saved}, "POST /applications/columns": {signIn, saved, saved, saved, saved, saved},
	"GET /commands": {signIn, without, shown, shown, shown, shown}, "GET /commands/live": {signIn, without, shown, shown, shown, shown},
	"GET /commands/{id}":      {signIn, missing, shown, shown, shown, shown},
	"GET /applications/{ref}": {signIn, missing, shown, shown, shown, shown}, "GET /applications/{ref}/live": {signIn, missing, shown, shown, shown, shown},
	"GET /applications/{ref}/object/live": {signIn, missing, shown, shown, shown, shown},
	// The log of a pod needs a permission of its own.
	"GET /applications/{ref}/object/log": {signIn, missing, shown, shown, shown, shown},
	"GET /deployments/{id}":              {signIn, missing, shown, shown, shown, shown}, "GET /deployments/{id}/live": {signIn, missing, shown, shown, shown, shown},
	"GET /deployments/{id}/stages/{stage}/log":   {signIn, missing, shown, shown, shown, shown},
	"GET /deployments/{id}/stages/{stage}/lines": {signIn, missing, shown, shown, shown, shown},
	// The state of the agent and the list of events name all applications; a search names those
	// that the caller may view.
	"GET /agent":       {signIn, without, without, without, without, without},
	"GET /agent/live":  {signIn, without, without, without, without, without},
	"GET /events":      {signIn, without, without, without, without, without},
	"GET /events/live": {signIn, without, without, without, without, without},
	// A list of plan previews counts applications and names none.
	"GET /plan-previews":      {signIn, without, without, without, without, without},
	"GET /plan-previews/live": {signIn, without, without, without, without, without},
	// A plan preview is for those who may sync: callers who view some applications read their own.
	"GET /plan-previews/{id}":      {signIn, denied, denied, shown, denied, shown},
	"GET /plan-previews/{id}/live": {signIn, without, without, shown, without, shown},
	"GET /plan-previews/{id}/diff": {signIn, denied, denied, shown, denied, shown},
	"GET /previews":                {signIn, without, shown, shown, shown, shown}, "GET /previews/live": {signIn, without, shown, shown, shown, shown},
	"GET /search": {signIn, without, shown, shown, shown, shown},
	// A trace and a chain belong to the applications of their deployments.
	"GET /trace":            {signIn, missing, shown, shown, shown, shown},
	"GET /trace/live":       {signIn, missing, shown, shown, shown, shown},
	"GET /chains/{id}":      {signIn, missing, shown, shown, shown, shown},
	"GET /chains/{id}/live": {signIn, missing, shown, shown, shown, shown},
	"GET /rollouts":         {signIn, without, shown, shown, shown, shown},
	"GET /rollouts/live":    {signIn, without, shown, shown, shown, shown},
	"GET /deployments":      {signIn, without, shown, shown, shown, shown},
	"GET /delivery":         {signIn, without, shown, shown, shown, shown},
	// Syncing needs the permission, in an application that the caller may view.
	"GET /actions/{action}":  {signIn, denied, denied, shown, denied, shown},
	"POST /actions/{action}": {signIn, denied, denied, shown, denied, shown},
}

// TestEveryRouteForEveryCaller walks every route with every kind of caller, against the real API.
func TestEveryRouteForEveryCaller(t *testing.T) {
	w := newWorld(t)
	for _, pattern := range w.patterns() {
		want, ok := walkTable[pattern]
		if !ok {
			t.Errorf("walkTable lacks the route %q", pattern)
			continue
		}
		for i, walker := range walkers {
			if got := w.walk(pattern, walker); got != want[i] {
				t.Errorf("%s by %s: %s, want %s", pattern, walker, got, want[i])
			}
		}
		w.agent.Tick(time.Second) // failed attempts are rate-limited
		for _, walker := range signedOut {
			if got := w.walk(pattern, walker); got != want[0] {
				t.Errorf("%s by %s: %s, want %s", pattern, walker, got, want[0])
			}
		}
	}
	for pattern := range walkTable {
		if !slices.Contains(w.patterns(), pattern) {
			t.Errorf("walkTable has %q, which is no route", pattern)
		}
	}
}

// TestNoActionForViewers: no action is allowed for a caller who may only view, or who is not signed in, and
// nothing changes. A viewer may end sessions of its own, and not those of others.
func TestNoActionForViewers(t *testing.T) {
	w := newWorld(t)
	sessions, err := controlv1.NewControlServiceClient(w.agent.Server.Conn()).ListSessions(w.as("admin"), &controlv1.ListSessionsRequest{Own: true})
	if err != nil || len(sessions.Sessions) == 0 {
		t.Fatal("sessions:", sessions, err)
	}
	key, _ := access.IDOf(w.agent.ReadWrite)
	q := url.Values{
		"application": {w.app.ID}, "deployment": {"d-web"}, "stage": {controltest.SyncStage}, "key": {key}, "session": {sessions.Sessions[0].Id}, "issuer": {"corp"}, "subject": {"ben"},
		"receiver": {"slack"}, "reason": {"forged"}, "name": {"forged"}, "role": {"admin"}, "confirm": {"walked"}, "cascade": {"yes"}, "decision": {"accept:token"},
	}
	before := w.state()
	for _, name := range page.ActionNames() {
		want := map[string]string{"viewer": denied, "nobody": signIn}
		if name == "end-session" {
			want["viewer"] = missing
		}
		for walker, want := range want {
			for method, path := range map[string]string{http.MethodGet: "/actions/" + name + "?" + q.Encode(), http.MethodPost: "/actions/" + name} {
				resp := w.do(t.Context(), method, path, walker, q)
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				if got := result(resp, string(body)); got != want {
					t.Errorf("%s %s by %s: %s, want %s", method, path, walker, got, want)
				}
			}
		}
	}
	if diff := cmp.Diff(before, w.state()); diff != "" {
		t.Error("what was denied has changed (-before +after):\n" + diff)
	}
}

// as returns a context with the session of a walker.
func (w *world) as(walker string) context.Context {
	return metadata.AppendToOutgoingContext(w.t.Context(), "authorization", "SESSION "+w.tokens[walker])
}

// state returns what actions change, as the API and the store have it.
func (w *world) state() []string {
	w.t.Helper()
	ctx, api, control := w.as("admin"), apiservice.NewAPIServiceClient(w.agent.Server.Conn()), controlv1.NewControlServiceClient(w.agent.Server.Conn())
	apps, err := api.ListApplications(ctx, &apiservice.ListApplicationsRequest{})
	deployments, err2 := api.ListDeployments(ctx, &apiservice.ListDeploymentsRequest{})
	deployment, err3 := api.GetDeployment(ctx, &apiservice.GetDeploymentRequest{DeploymentId: "d-web"})
	commands, err4 := w.agent.Store.OpenCommands(ctx)
	keys, err5 := control.ListAPIKeys(ctx, &controlv1.ListAPIKeysRequest{})
	sessions, err6 := control.ListSessions(ctx, &controlv1.ListSessionsRequest{})
	users, err7 := control.ListDisabledUsers(ctx, &controlv1.ListDisabledUsersRequest{})
	if err := errors.Join(err, err2, err3, err4, err5, err6, err7); err != nil {
		w.t.Fatal(err)
	}
	out := []string{fmt.Sprint(commands)}
	for _, m := range []proto.Message{apps, deployments, deployment, users} {
		out = append(out, prototext.Format(m))
	}
	for _, k := range keys.ApiKeys {
		out = append(out, "key "+k.Id)
	}
	for _, s := range sessions.Sessions {
		out = append(out, "session "+s.Id)
	}
	return out
}

// tabLinks matches the links to tabs and parts of a view.
var tabLinks = regexp.MustCompile(`href="([^"]*(?:\?|&amp;)(?:tab|show)=[^"]*)"`)

// controls matches what opens a dialog.
var controls = regexp.MustCompile(`<[^>]*\sdata-dialog[^>]*>`)

// TestNoControlForViewers: every tab of an application, a deployment, an object and the agent is
// without a control for a caller who may view alone, but for the end of its own session.
func TestNoControlForViewers(t *testing.T) {
	w := newWorld(t)
	for start, least := range map[string]int{
		"/applications/walked": 5, "/applications/walked?tab=objects&object=apps/Deployment/shop/walked": 9, "/deployments/d-web": 4, "/agent": 2,
	} {
		seen := map[string]bool{}
		for todo := []string{start}; len(todo) > 0; todo = todo[1:] {
			if seen[todo[0]] {
				continue
			}
			seen[todo[0]] = true
			body := w.read(todo[0], "viewer")
			for _, control := range controls.FindAllString(body, -1) {
				if !strings.Contains(control, "/actions/end-session?") {
					t.Errorf("%s has %s", todo[0], control)
				}
			}
			for _, link := range tabLinks.FindAllStringSubmatch(body, -1) {
				todo = append(todo, html.UnescapeString(link[1]))
			}
		}
		if len(seen) < least {
			t.Errorf("%s leads to %d tabs: %v", start, len(seen), seen)
		}
	}
	if body := w.read("/applications/walked", "admin"); !controls.MatchString(body) {
		t.Error("the page of an admin has no control:", body)
	}
}

// world is a real API with an application that runs a deployment, and the page in front of it.
type world struct {
	t       *testing.T
	agent   *controltest.Agent
	page    *page.Handler
	server  *httptest.Server
	tokens  map[string]string
	app     deploy.Application
	command string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, tokens: map[string]string{}}
	w.agent = controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy, c.Figures, c.Live, c.Objects = access.NewPolicy(nil), figures.NewReader(c.Store.(*store.Store), c.Now), noCluster{}, oneObject{}
	})
	admin := w.agent.LimitedKey("admin", nil)
	w.tokens["expired session"] = w.agent.SignInWithKey(admin)
	w.agent.Tick(controltest.SessionLife + time.Second)
	ended := w.agent.LimitedKey("admin", nil)
	w.tokens["ended session"] = w.agent.SignInWithKey(ended)
	id, _ := access.IDOf(ended)
	if err := w.agent.Store.EndSessionsOfKey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	w.app = w.agent.Application("walked", map[string]string{"team": "payments"})
	w.agent.Deployment("d-before", w.app, "")
	w.agent.Move("d-before", deploy.Success, "for the figures")
	w.rollout("r-before", deploy.RolloutComplete)
	w.agent.Tick(time.Second)
	w.agent.Deployment("d-web", w.app, "")
	w.agent.Move("d-web", deploy.Running, "for the walk")
	w.agent.Log("d-web", controltest.SyncStage, "a line of walked")
	w.chain(w.agent.Application("walked-first", map[string]string{"team": "payments"}))
	command, err := w.agent.Store.CreateCommand(t.Context(), deploy.Command{ID: "c-web", Type: deploy.CommandSync, ApplicationID: w.app.ID, Commander: "someone"})
	if err != nil {
		t.Fatal(err)
	}
	w.command = command.ID
	w.tokens["admin"] = w.agent.SignInWithKey(admin)
	w.tokens["unknown session"] = strings.Map(func(r rune) rune {
		if r == 'a' {
			return 'b'
		}
		return r
	}, w.tokens["admin"]+"a")
	w.tokens["viewer of search"] = w.agent.SignInWithKey(w.agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "search"}}))
	for _, role := range []string{"viewer", "deployer", "approver"} {
		w.tokens[role] = w.agent.SignInWithKey(w.agent.LimitedKey(role, &deploy.Selector{Labels: map[string]string{"team": "payments"}}))
	}
	w.preview(w.keySubject("deployer"))
	w.pullPreview()
	w.page = page.New(page.Config{Conn: w.agent.Server.Conn(), Now: w.agent.Now, Token: func(r *http.Request) string { return w.tokens[r.Header.Get("Walker")] }, LiveWait: time.Hour})
	w.server = httptest.NewServer(w.page)
	t.Cleanup(w.server.Close)
	return w
}

// keySubject returns the subject of the session of a role.
func (w *world) keySubject(role string) string {
	caller, err := controlv1.NewControlServiceClient(w.agent.Server.Conn()).GetCaller(w.as(role), &controlv1.GetCallerRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return caller.Subject
}

// preview stores a plan preview of the application.
func (w *world) preview(commander string) {
	_, err := w.agent.Store.CreateCommand(w.t.Context(), deploy.Command{
		ID: "c-preview", Type: deploy.CommandBuildPlanPreview, Commander: commander, PlanPreview: &deploy.PlanPreviewRequest{RepoID: "apps", HeadBranch: "feature", HeadCommit: "aa", BaseBranch: "main"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	err = w.agent.Store.AnswerPlanPreview(w.t.Context(), deploy.PlanPreview{
		CommandID: "c-preview", At: w.agent.Now(), Results: []deploy.ApplicationPreview{{ApplicationID: w.app.ID, Name: w.app.Name, Labels: w.app.Labels}},
	}, deploy.CommandSucceeded)
	if err != nil {
		w.t.Fatal(err)
	}
}

// pullPreview stores the preview of a pull request of the application.
func (w *world) pullPreview() {
	err := w.agent.Store.PutPullPreview(w.t.Context(), deploy.PullPreview{
		RepoID: "apps", Number: 7, Head: "aa", Branch: "feature", Base: "main", Phase: deploy.PreviewReady, Since: w.agent.Now(),
		Applications: []deploy.PullPreviewApplication{{ID: w.app.ID, Name: w.app.Name, Git: w.app.Git, Labels: w.app.Labels, Phase: deploy.PreviewReady, Host: "walked.example.com"}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// chain stores a chain of one deployment.
func (w *world) chain(app deploy.Application) {
	_, err := w.agent.Store.CreateDeployment(w.t.Context(), store.NewDeployment{
		Deployment: deploy.Deployment{
			ID: "d-chain", ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Labels: app.Labels, ChainID: "chain-1",
			Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: w.agent.Now()}, Status: deploy.Pending,
		},
		Chain: &deploy.Chain{ID: "chain-1", Blocks: []deploy.ChainBlock{{Nodes: []deploy.ChainNode{{ApplicationID: app.ID, ApplicationName: app.Name}}}}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// rollout stores a rollout of the application, or its new phase.
func (w *world) rollout(id string, phase deploy.RolloutPhase) {
	w.t.Helper()
	_, err := w.agent.Store.SaveRollout(w.t.Context(), deploy.Rollout{
		ID: id, ApplicationID: w.app.ID, Cluster: "dev", Phase: phase, ChangedBy: "kubectl", UID: "u1",
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "walked"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// noCluster answers for an application without live objects.
type noCluster struct{}

func (noCluster) LiveState(_ context.Context, app deploy.Application, _ deploy.LiveChildren) (deploy.LiveState, error) {
	return deploy.LiveState{ApplicationID: app.ID}, nil
}

// oneObject answers for an application with one object, which has a log.
type oneObject struct{ control.Objects }

func (oneObject) LiveObject(_ context.Context, _ deploy.Application, q deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	return deploy.ObjectDetail{Object: deploy.LiveObject{Cluster: "dev", Object: deploy.ObjectRef{Group: *q.Group, Kind: q.Kind, Namespace: *q.Namespace, Name: q.Name}}, Live: "kind: Deployment\n"}, nil
}

func (oneObject) PodLog(_ context.Context, _ deploy.Application, q deploy.PodLogQuery, send func(deploy.PodLog) error) error {
	return send(deploy.PodLog{Container: "app", Lines: []deploy.PodLogLine{{Text: "a line of " + q.Pod.Name}}})
}

// patterns returns the routes, but that of the assets.
func (w *world) patterns() []string {
	return slices.DeleteFunc(w.page.Patterns(), func(p string) bool { return p == "GET /assets/" })
}

// do sends a request as a walker.
func (w *world) do(ctx context.Context, method, path, walker string, form url.Values) *http.Response {
	w.t.Helper()
	var sent io.Reader
	if method == http.MethodPost {
		sent = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, w.server.URL+path, sent)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Walker", walker)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp
}

// walk requests a route about the application.
func (w *world) walk(pattern, walker string) string {
	w.t.Helper()
	method, path, ok := strings.Cut(pattern, " ")
	if !ok { // of any method
		method, path = http.MethodGet, pattern+"nothing"
	}
	path = strings.NewReplacer("{$}", "", "{action}", "sync", "{ref}", "walked", "/deployments/{id}", "/deployments/d-web", "/commands/{id}", "/commands/"+w.command, "/chains/{id}", "/chains/chain-1", "/plan-previews/{id}", "/plan-previews/c-preview", "{stage}", controltest.SyncStage).Replace(path)
	switch path {
	case "/search":
		path += "?q=walke"
	case "/commands", "/commands/live":
		path += "?id=" + w.command
	case "/applications/walked/object/live", "/applications/walked/object/log":
		path += "?object=apps/Deployment/shop/walked"
	case "/trace", "/trace/live":
		path += "?deployment=d-web"
	}
	q := url.Values{"application": {w.app.ID}}
	switch path {
	case "/applications/filters":
		q = url.Values{"do": {"save"}, "name": {"walk"}, "query": {"q=walk"}}
	case "/applications/columns":
		q = url.Values{"density": {"compact"}, "query": {"q=walk"}}
	}
	if method == http.MethodGet && strings.HasPrefix(path, "/actions/") {
		path += "?" + q.Encode()
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Minute)
	defer cancel()
	resp := w.do(ctx, method, path, walker, q)
	defer resp.Body.Close()
	var body strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		body.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") && lines.Text() == "" {
			cancel() // one event is enough
			break
		}
	}
	return result(resp, body.String())
}

func result(resp *http.Response, body string) string {
	switch {
	case resp.StatusCode == http.StatusSeeOther && strings.HasPrefix(resp.Header.Get("Location"), "/sign-in?next="), strings.Contains(body, `href="/sign-in?next=`):
		return signIn
	case resp.StatusCode == http.StatusSeeOther && resp.Header.Get("Location") == "/applications?q=walk" && len(resp.Cookies()) == 1:
		return saved
	case resp.StatusCode == http.StatusNotFound, strings.Contains(body, "This does not exist"):
		return missing
	case resp.StatusCode == http.StatusForbidden:
		return denied
	case resp.StatusCode != http.StatusOK:
		return fmt.Sprint(resp.Status, " ", body)
	case strings.Contains(body, "walked"), strings.Contains(body, `id="command"`):
		return shown
	}
	return without
}

// TestLiveChangesArrive: a browser that has the page gets the changed row, and nothing else.
func TestLiveChangesArrive(t *testing.T) {
	w := newWorld(t)
	body := w.read("/applications", "viewer")
	_, rest, ok := strings.Cut(body, `hx-sse:connect="`)
	if !ok {
		t.Fatal("the page has no stream:", body)
	}
	address, _, _ := strings.Cut(rest, `"`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	resp := w.do(ctx, http.MethodGet, strings.ReplaceAll(address, "&amp;", "&"), "viewer", nil)
	defer resp.Body.Close()
	w.agent.Move("d-web", deploy.Failure, "its pods crash")
	id, data := eventWith(t, bufio.NewScanner(resp.Body), "its pods crash")
	if !strings.Contains(data, `hx-target="#app-app-walked"`) || id == "" {
		t.Errorf("the event %q is %s", id, data)
	}
	again, end := context.WithTimeout(t.Context(), 2*time.Minute)
	defer end()
	req, err := http.NewRequestWithContext(again, http.MethodGet, w.server.URL+strings.ReplaceAll(address, "&amp;", "&"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Walker": {"viewer"}, "Last-Event-Id": {id}}
	resumed, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Body.Close()
	lines := bufio.NewScanner(resumed.Body)
	for lines.Scan() && lines.Text() != ": still here" { // until then it has compared what the browser has
		if strings.HasPrefix(lines.Text(), "data: ") {
			t.Fatalf("nothing has changed, but after the reconnect comes %s", lines.Text())
		}
	}
	w.agent.Application("new", map[string]string{"team": "payments"})
	if _, data := eventWith(t, lines, "show the new order"); strings.Contains(data, "its pods crash") {
		t.Errorf("after the reconnect: %s", data)
	}
}

// read returns the body of a page.
func (w *world) read(path, walker string) string {
	w.t.Helper()
	resp := w.do(w.t.Context(), http.MethodGet, path, walker, nil)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}

// eventWith returns the ID and data of the next event with a text.
func eventWith(t *testing.T, lines *bufio.Scanner, text string) (id, data string) {
	t.Helper()
	for lines.Scan() {
		line := lines.Text()
		if value, ok := strings.CutPrefix(line, "id: "); ok {
			id = value
		}
		if value, ok := strings.CutPrefix(line, "data: "); ok {
			data += value + "\n"
		}
		if line == "" && strings.Contains(data, text) {
			return id, data
		}
		if line == "" {
			data = ""
		}
	}
	t.Fatal("the stream ended:", lines.Err())
	return "", ""
}

// TestLogIsNeitherLostNorDoubled: a browser that reconnects gets the lines after the last that it has.
func TestLogIsNeitherLostNorDoubled(t *testing.T) {
	w := newWorld(t)
	body := w.read("/deployments/d-web", "viewer")
	if !strings.Contains(body, "a line of walked") {
		t.Fatal("the view lacks the line that there is:", body)
	}
	_, rest, _ := strings.Cut(body, `hx-sse:connect="/deployments/d-web/stages/`)
	address, _, _ := strings.Cut("/deployments/d-web/stages/"+rest, `"`)
	follow := func(last string) *bufio.Scanner {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		t.Cleanup(cancel)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL+address, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Walker", "viewer")
		if last != "" {
			req.Header.Set("Last-Event-Id", last)
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return bufio.NewScanner(resp.Body)
	}
	w.logLine(1, "the second")
	last, data := eventWith(t, follow(""), "the second")
	if strings.Contains(data, "a line of walked") {
		t.Error("the first line comes twice:", data)
	}
	w.logLine(2, "the third")
	if _, data := eventWith(t, follow(last), "the third"); strings.Contains(data, "the second") {
		t.Error("the second line comes twice:", data)
	}
	if text := w.read("/deployments/d-web/stages/"+controltest.SyncStage+"/log", "viewer"); strings.Count(text, "\n") != 3 || !strings.Contains(text, "Z the third\n") {
		t.Errorf("the whole log is %q", text)
	}
}

// logLine appends a line to the log of the stage.
func (w *world) logLine(index int64, line string) {
	w.t.Helper()
	err := w.agent.Store.AppendStageLogs(w.t.Context(), []deploy.LogBlock{{DeploymentID: "d-web", StageID: controltest.SyncStage, Index: index, Log: line, Severity: deploy.SeverityInfo, At: w.agent.Now()}})
	if err != nil {
		w.t.Fatal(err)
	}
}
