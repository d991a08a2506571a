package page

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// searchable returns the API of an agent whose applications are found by the beginning of their
// name.
func searchable(t *testing.T, permissions ...string) *fakeAPI {
	f := calm(t, permissions...)
	apps := []*controlv1.ApplicationEntry{
		entry("web", controlv1.ApplicationState_APPLICATION_STATE_SYNCED, "Synced", ""), entry("search", controlv1.ApplicationState_APPLICATION_STATE_DRIFTED, "Drifted", ""),
	}
	f.answers["SearchApplications"] = func(m proto.Message) (proto.Message, error) {
		resp := &controlv1.SearchApplicationsResponse{}
		for _, a := range apps {
			if strings.HasPrefix(a.Name, m.(*controlv1.SearchApplicationsRequest).Text) {
				resp.Applications = append(resp.Applications, a)
				resp.Total++
			}
		}
		return resp, nil
	}
	f.answers["Resolve"] = func(m proto.Message) (proto.Message, error) {
		if m.(*controlv1.ResolveRequest).Deployment == "web" {
			return &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: "d-web", ApplicationName: "web"}}}, nil
		}
		return &controlv1.ResolveResponse{}, nil
	}
	return f.fails("GetDeploymentTrace", codes.NotFound, "nothing is known of it")
}

// linksOf returns where the results of a search lead to.
func linksOf(t *testing.T, f *fakeAPI, text string) []string {
	t.Helper()
	r := request(http.MethodGet, withQuery("/search", url.Values{"q": {text}}), "")
	r.Header.Set("HX-Request", "true")
	body := bodyOf(t, answerOf(f.page(), r))
	if strings.Contains(body, "<html") {
		t.Error("the palette is sent a whole page")
	}
	var out []string
	for _, piece := range strings.Split(body, `href="`)[1:] {
		link, _, _ := strings.Cut(piece, `"`)
		out = append(out, strings.ReplaceAll(link, "&amp;", "&"))
	}
	return out
}

// TestSearch: a text finds views, applications, deployments, commits and actions.
func TestSearch(t *testing.T) {
	f := searchable(t, "sync", "rollback", "keys")
	for text, want := range map[string][]string{
		"web":      {applicationPath("0000web-id", "web"), "/deployments/d-web"},
		"sync web": {"/actions/sync?application=0000web-id"},
		"heal":     {"/actions/heal?application=0000search-id"},
		"api key":  {"/agent?tab=keys", "/actions/create-key"},
		"events":   {"/events"},
		"apps#12":  {"/trace?q=apps%2312"},
		"nothing":  nil,
		"1f2ac83":  nil,
	} {
		if got := linksOf(t, f, text); !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", text, got, want)
		}
	}
	f.on("GetDeploymentTrace", &controlv1.GetDeploymentTraceResponse{Trace: &controlv1.DeploymentTrace{Commits: []*controlv1.TracedCommit{{Hash: gitCommit, Message: "Raise the limit"}, {Hash: imageCommit}}}})
	if got := linksOf(t, f, "1F2AC83"); !slices.Equal(got, []string{"/trace?commit=" + gitCommit}) {
		t.Errorf("a commit finds %q", got)
	}
	if body := golden(t, "search", f.get("/search?q=web")); !strings.Contains(body, "2 results for “web”.") {
		t.Error("the page:", body)
	}
}

// TestSearchOffersWhatIsPermitted: a viewer finds no action, and a deployer only in the
// applications of the role.
func TestSearchOffersWhatIsPermitted(t *testing.T) {
	if got := linksOf(t, searchable(t), "sync web"); len(got) > 0 {
		t.Errorf("a viewer finds %q", got)
	}
	if got := linksOf(t, searchable(t), ""); slices.ContainsFunc(got, func(link string) bool { return strings.Contains(link, "actions") || strings.HasPrefix(link, "/search") }) {
		t.Errorf("a viewer is offered %q", got)
	}
	f := searchable(t).on("GetCaller", &controlv1.GetCallerResponse{Subject: "ben", Permissions: []*controlv1.CallerPermission{{Permission: "sync", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_SOME}}})
	f.answers["CheckAccess"] = func(m proto.Message) (proto.Message, error) {
		return &controlv1.CheckAccessResponse{Allowed: m.(*controlv1.CheckAccessRequest).ApplicationId == "0000web-id"}, nil
	}
	if got := linksOf(t, f, "sync"); !slices.Equal(got, []string{"/actions/sync?application=0000web-id"}) {
		t.Errorf("a deployer of web finds %q", got)
	}
}

// TestPaletteIsOnEveryView: the palette and the shortcuts are in the page; without the script its
// field leads to the search.
func TestPaletteIsOnEveryView(t *testing.T) {
	body := bodyOf(t, calm(t).get("/"))
	for _, want := range []string{`<dialog id="palette"`, `<dialog id="help"`, `action="/search"`, "data-palette", "g n", "g e", "g g"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	list := bodyOf(t, calm(t).get("/applications"))
	if bar, _, _ := strings.Cut(list, "<main"); !strings.Contains(bar, `action="/applications"`) || !strings.Contains(bar, "data-find") {
		t.Error("the field of the list does not search the list:", bar)
	}
	if resp := searchable(t).get("/search?q=" + strings.Repeat("x", 201)); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a text that is too long: %s", resp.Status)
	}
}

// TestHostileContentOfTheAgent: what others write is shown as text, without control characters, in
// these views, too.
func TestHostileContentOfTheAgent(t *testing.T) {
	const hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)> \x1b[31m\u202eevil" + `<hx-partial hx-target="body"></hx-partial>`
	long := strings.Repeat("w", 5000)
	f := searchable(t, "keys", "administer", "sync")
	s := &controlv1.GetStatusResponse{Agent: &controlv1.AgentStatus{Name: hostile, Version: hostile, BuildCommit: hostile, ConfigError: hostile},
		Clusters:     []*controlv1.ClusterStatus{{Name: hostile, Error: hostile, Version: long, WatchProblems: []*controlv1.WatchProblem{{Kind: hostile, Error: hostile}}}},
		Repositories: []*controlv1.RepositoryStatus{{Id: hostile, Remote: hostile, Branch: hostile, Error: hostile, Head: hostile}},
		Queues:       []*controlv1.QueueStatus{{Name: hostile}},
		Receivers:    []*controlv1.ReceiverStatus{{Name: hostile, Error: hostile, DeadLetterCount: 1, DeadLetters: []*controlv1.DeadLetter{{Key: hostile, Event: hostile, DeploymentId: hostile, Error: hostile}}}}}
	e := &modelv1.Event{Id: hostile, Name: hostile, Data: hostile, Labels: map[string]string{hostile: hostile}, StatusDescription: hostile, PullRequestUrl: hostile, PushedCommit: hostile}
	trace := traceOf()
	trace.Events[0].Name, trace.Events[0].Data, trace.Events[0].SourceUrl, trace.Commits[0].Message, trace.Commits[0].Url = hostile, hostile, hostile, hostile, hostile
	trace.Commits[0].Deployments[0].ApplicationName, trace.Commits[0].Deployments[0].Rollouts[0].Reason, trace.Commits[0].Deployments[0].ChainId = hostile, hostile, hostile
	f.on("GetStatus", s).on("ListEvents", &controlv1.ListEventsResponse{Events: []*modelv1.Event{e}}).on("GetDeploymentTrace", &controlv1.GetDeploymentTraceResponse{Trace: trace}).
		on("ListAPIKeys", &controlv1.ListAPIKeysResponse{ApiKeys: []*modelv1.APIKey{{Id: hostile, Name: hostile, Subject: hostile + "2", RoleName: hostile, Creator: hostile}}}).
		on("ListSessions", &controlv1.ListSessionsResponse{Sessions: []*controlv1.Session{{Id: hostile, Issuer: hostile, Subject: hostile, Name: hostile + "2", Client: hostile, Remote: hostile, ExpiresAtMs: minutesAgo(-9)}}}).
		on("ListAudit", &controlv1.ListAuditResponse{Records: []*controlv1.AuditRecord{{Subject: hostile, Issuer: hostile, Method: hostile, Code: hostile, Reason: hostile, Target: map[string]string{hostile: hostile}, ApplicationId: hostile, DeploymentId: hostile}}}).
		on("ListDisabledUsers", &controlv1.ListDisabledUsersResponse{Users: []*controlv1.DisabledUser{{Issuer: hostile, Subject: hostile, DisabledBy: hostile}}})
	f.on("GetDeploymentChain", &controlv1.GetDeploymentChainResponse{Chain: &controlv1.DeploymentChain{Id: hostile, Blocks: []*controlv1.DeploymentChainBlock{{Members: []*controlv1.DeploymentChainMember{{ApplicationId: hostile, ApplicationName: hostile, DeploymentId: hostile, Reason: hostile}}}}}})
	for _, target := range []string{
		"/agent", "/agent?tab=receivers", "/agent?tab=keys", "/agent?tab=sessions", "/agent?tab=users", "/agent?tab=audit", "/events", "/trace?event=e2", "/chains/c1",
		withQuery("/search", url.Values{"q": {hostile}}), withQuery("/actions/drop-dead-letters", url.Values{"receiver": {hostile}}), withQuery("/actions/replay-dead-letters", url.Values{"receiver": {hostile}}), withQuery("/actions/disable-user", url.Values{"subject": {hostile}, "issuer": {hostile}}), withQuery("/actions/disable-key", url.Values{"key": {hostile}}),
	} {
		resp := f.get(target)
		body := bodyOf(t, resp)
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", target, resp.Status)
		}
		for _, forbidden := range []string{"<script>alert", "<img", `"'>`, `<hx-partial hx-target="body"`, " style=", "javascript:", "\x1b", "\u202e"} {
			if strings.Contains(body, forbidden) {
				t.Errorf("%s contains %q", target, forbidden)
			}
		}
	}
}
