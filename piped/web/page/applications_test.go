package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestApplications: the list shows each application with its state, and facets with counts.
func TestApplications(t *testing.T) {
	f := busy(t, "sync")
	body := golden(t, "applications", f.get("/applications"))
	for _, want := range []string{`name="application" value="0000web-id"`, "Failed, 84e16d9 live", "web:v2", "/applications/web~0000web-", `href="/deployments/d-web"`, "Sync…"} {
		if !strings.Contains(body, want) {
			t.Errorf("the list lacks %q", want)
		}
	}
	if body := bodyOf(t, busy(t).get("/applications")); strings.Contains(body, "/actions/") || strings.Contains(body, `name="application"`) {
		t.Error("a viewer can select applications")
	}
}

// TestSearchOfApplications: filters, words, order and page of the address reach the API; a search
// as the user types gets the rows, the filters and the stream.
func TestSearchOfApplications(t *testing.T) {
	f := busy(t)
	var asked *controlv1.SearchApplicationsRequest
	answer := f.answers["SearchApplications"]
	f.answers["SearchApplications"] = func(m proto.Message) (proto.Message, error) {
		if req := m.(*controlv1.SearchApplicationsRequest); req.Limit == listPage {
			asked = proto.CloneOf(req)
		}
		return answer(m)
	}
	r := request(http.MethodGet, "/applications?q=pay+web&state=FAILED&state=DRIFTED&label:team=core&sort=deployed&cursor=next&other=x&provider=", "")
	r.Header.Set("HX-Request", "true")
	body := bodyOf(t, answerOf(f.page(), r))
	want := &controlv1.SearchApplicationsRequest{
		Text: "pay web", Order: controlv1.ApplicationOrder_APPLICATION_ORDER_LAST_DEPLOYED, Limit: listPage, Cursor: "next",
		Filters: []*controlv1.FacetFilter{{Facet: "label:team", Values: []string{"core"}}, {Facet: "state", Values: []string{"FAILED", "DRIFTED"}}},
		Facets:  []string{"label", "state", "health", "sync", "provider", "repository", "kind", "enabled", "label:team"},
	}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the request differs (-want +got):\n" + diff)
	}
	for _, part := range []string{`hx-target="#facets"`, `hx-target="#live"`, "/applications/live?", "label%3Ateam=core"} {
		if !strings.Contains(body, part) {
			t.Errorf("the result lacks %q", part)
		}
	}
	if strings.Contains(body, "<html") {
		t.Error("the result is a whole page")
	}
}

// TestFacetsOfTheAddress: choosing a value adds it to the address from the first page, and choosing
// it again removes it.
func TestFacetsOfTheAddress(t *testing.T) {
	l := newListQuery(map[string][]string{"q": {"web"}, "state": {"FAILED"}, "cursor": {"c"}})
	for got, want := range map[string]string{
		l.toggled("state", "DRIFTED"): "/applications?q=web&state=FAILED&state=DRIFTED",
		l.toggled("state", "FAILED"):  "/applications?q=web",
		l.with("sort", "name"):        "/applications?q=web&sort=name&state=FAILED",
		l.with("cursor", "d"):         "/applications?cursor=d&q=web&state=FAILED",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if l.q.Get("cursor") != "c" || len(l.q["state"]) != 1 {
		t.Error("the address itself changed:", l.q)
	}
}

// TestRowsStayInPlace: a changed application is replaced where it stands; another order is offered.
func TestRowsStayInPlace(t *testing.T) {
	shown := []*controlv1.ApplicationEntry{{Id: "a", Name: "old"}, {Id: "b", Name: "old"}, {Id: "c", Name: "old"}}
	f := calm(t)
	f.streams["WatchApplications"] = func(m proto.Message) ([]proto.Message, error) {
		if diff := cmp.Diff([]string{"b", "c"}, m.(*controlv1.WatchApplicationsRequest).ApplicationIds); diff != "" {
			t.Error("what the search does not find is read (-want +got):", diff)
		}
		return []proto.Message{
			&controlv1.WatchApplicationsResponse{Application: &controlv1.ApplicationEntry{Id: "b", Name: "new"}},
			&controlv1.WatchApplicationsResponse{CaughtUp: true},
		}, nil
	}
	v := &visit{Handler: f.page(), ctx: signedIn(t)}
	rows, gone, err := (&listSource{shown: shown}).rows(v, []*controlv1.ApplicationEntry{{Id: "z"}, {Id: "a", Name: "new"}})
	if err != nil || len(rows) != 3 || rows[0].Name != "new" || rows[1].Name != "new" || rows[2].Name != "old" || gone["a"] || gone["b"] || !gone["c"] {
		t.Errorf("%v, gone %v, %v", rows, gone, err)
	}
	for name, c := range map[string]struct {
		now  []string
		want int
	}{
		"two places": {[]string{"b", "a", "c"}, 2}, "one more": {[]string{"a", "b", "c", "d"}, 1}, "one less": {[]string{"a", "b"}, 1},
	} {
		var now []*controlv1.ApplicationEntry
		for _, id := range c.now {
			now = append(now, &controlv1.ApplicationEntry{Id: id})
		}
		if got := moved(shown, now); got != c.want {
			t.Errorf("%s: %d rows have moved, want %d", name, got, c.want)
		}
	}
}

// TestNoApplications: an empty list shows the shortest configuration, and which repositories were
// searched, to those who may see them. The list of repositories is live.
func TestNoApplications(t *testing.T) {
	repositories := []*controlv1.RepositoryStatus{
		{Id: "config", Branch: "main", CheckedAtMs: minutesAgo(2)},
		{Id: "shop", Branch: "release", Error: "authentication <failed>", FailingSinceMs: minutesAgo(9)},
	}
	nothing := func() *fakeAPI { return calm(t).on("SearchApplications", &controlv1.SearchApplicationsResponse{}) }
	f := nothing().on("GetStatus", &controlv1.GetStatusResponse{Repositories: repositories})
	for _, path := range []string{"/applications", "/"} {
		body := bodyOf(t, f.get(path))
		for _, want := range []string{
			"kind: KubernetesApp", "2 repositories are watched:", "<strong>config</strong>", "branch main", "read <time", "2 min ago", "<strong>shop</strong>", "branch release", "authentication &lt;failed&gt;", "Away",
		} {
			if !strings.Contains(body, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
		if body := bodyOf(t, nothing().get(path)); !strings.Contains(body, "The agent watches no repository.") {
			t.Errorf("%s does not say that there is no repository", path)
		}
	}
	limited := newFake(t).on("GetCaller", &controlv1.GetCallerResponse{Permissions: []*controlv1.CallerPermission{{Permission: "view", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_SOME}}}).
		on("SearchApplications", &controlv1.SearchApplicationsResponse{})
	if body := bodyOf(t, limited.get("/applications")); !strings.Contains(body, "is shown to those who may view all applications") {
		t.Error("the view does not say to a caller without rights why it lists no repositories")
	}
	keys := func() map[string]string {
		v, err := f.page().visit(nil, request(http.MethodGet, "/applications/live", ""))
		if err != nil {
			t.Fatal(err)
		}
		parts, err := (&listSource{query: newListQuery(nil)}).parts(v)
		if err != nil {
			t.Fatal(err)
		}
		return keysOf(parts)
	}
	before := keys()
	repositories[0].CheckedAtMs = minutesAgo(0)
	if after := keys(); before["repositories"] == "" || after["repositories"] == before["repositories"] || after["total"] != before["total"] {
		t.Errorf("after another read: %v, before %v", after, before)
	}
}
