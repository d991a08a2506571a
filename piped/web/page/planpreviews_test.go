package page

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// previewer returns the API for a caller with the permission sync somewhere.
func previewer(t *testing.T) *fakeAPI {
	return calm(t).on("GetCaller", &controlv1.GetCallerResponse{Subject: "ana", Permissions: []*controlv1.CallerPermission{
		{Permission: "sync", Extent: controlv1.PermissionExtent_PERMISSION_EXTENT_SOME},
	}})
}

// TestPlanPreviews: each plan preview is shown with what was found, and leads to its trace.
func TestPlanPreviews(t *testing.T) {
	f := previewer(t).on("ListPlanPreviews", &controlv1.ListPlanPreviewsResponse{Cursor: "more", PlanPreviews: []*controlv1.PlanPreviewBrief{
		{CommandId: "c3", RepositoryId: "apps", HeadBranch: "<b>new</b>", HeadCommit: imageCommit, BaseBranch: "main", RequestedBy: "ana", RequestedAtMs: minutesAgo(1)},
		{CommandId: "c2", RepositoryId: "apps", HeadBranch: "feature", HeadCommit: gitCommit, BaseBranch: "main", PullRequest: 12, RequestedBy: "pull request", Status: modelv1.CommandStatus_COMMAND_SUCCEEDED,
			RequestedAtMs: minutesAgo(5), AnsweredAtMs: minutesAgo(5) + 7000, Applications: 3, ChangedApplications: 1, FailedApplications: 1},
		{CommandId: "c1", RepositoryId: "apps", HeadBranch: "old", HeadCommit: gitCommit, BaseBranch: "main", RequestedBy: "ben", Status: modelv1.CommandStatus_COMMAND_FAILED, RequestedAtMs: minutesAgo(60), AnsweredAtMs: minutesAgo(59), Error: "web/app.yaml conflicts"},
	}})
	body := golden(t, "plan-previews", f.get("/plan-previews"))
	for _, want := range []string{
		"The last 3 plan previews: 1 being built, 1 failed.", "1 of 3 applications changed, 1 failed", "took 7 s", "&lt;b&gt;new&lt;/b&gt; into main", "web/app.yaml conflicts", "cursor=more",
		`href="/plan-previews/c3"`, `hx-sse:connect="/plan-previews/live?from=`, "seen=c3",
		`href="/trace?pull-request=12&amp;repository=apps"`, `href="/trace?commit=` + imageCommit, `href="/events"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestPlanPreviewFilters: the filters of the address reach the API.
func TestPlanPreviewFilters(t *testing.T) {
	f := previewer(t)
	var asked *controlv1.ListPlanPreviewsRequest
	f.answers["ListPlanPreviews"] = func(m proto.Message) (proto.Message, error) {
		asked = proto.CloneOf(m.(*controlv1.ListPlanPreviewsRequest))
		return &controlv1.ListPlanPreviewsResponse{}, nil
	}
	body := bodyOf(t, f.get("/plan-previews?repository=apps&branch=feature&pull-request=12&status=failed&cursor=next"))
	want := &controlv1.ListPlanPreviewsRequest{RepositoryId: "apps", HeadBranch: "feature", PullRequest: 12, Statuses: []modelv1.CommandStatus{modelv1.CommandStatus_COMMAND_FAILED}, Limit: 50, Cursor: "next"}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the request differs (-want +got):\n" + diff)
	}
	if !strings.Contains(body, "Nothing matches") {
		t.Error(body)
	}
	if resp := f.get("/plan-previews?pull-request=x"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("no number: %s", resp.Status)
	}
	if body := bodyOf(t, f.get("/plan-previews")); !strings.Contains(body, "pipectl plan-preview") {
		t.Error("without plan previews nothing says how to request one:", body)
	}
}

// TestPlanPreviewsNeedSync: the page asks for no list on behalf of a caller who only views.
func TestPlanPreviewsNeedSync(t *testing.T) {
	f := calm(t).on("GetCaller", &controlv1.GetCallerResponse{Subject: "ben"}).fails("ListPlanPreviews", codes.PermissionDenied, "no")
	if body := bodyOf(t, f.get("/plan-previews")); !strings.Contains(body, "needs the permission sync") {
		t.Error(body)
	}
}

// livePreviews returns the live parts of the list or a plan preview, by ID.
func livePreviews(t *testing.T, f *fakeAPI, target string) map[string]string {
	t.Helper()
	v := &visit{Handler: f.page(), r: request("GET", target, ""), ctx: signedIn(t), now: noon, allowed: map[string]bool{}}
	var err error
	if v.caller, err = v.control.GetCaller(v.ctx, &controlv1.GetCallerRequest{}); err != nil {
		t.Fatal(err)
	}
	src, err := livePlanPreviews(v)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := src.parts(v)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range parts {
		if out[p.id], err = html(t.Context(), p.body); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestNewPlanPreviews: the stream changes shown rows in place and offers new ones. Where none was
// shown, and in the list of a state, it shows the list as it is.
func TestNewPlanPreviews(t *testing.T) {
	f := previewer(t).on("ListPlanPreviews", &controlv1.ListPlanPreviewsResponse{PlanPreviews: []*controlv1.PlanPreviewBrief{
		{CommandId: "c2", RepositoryId: "apps", HeadBranch: "second"},
		{CommandId: "c1", RepositoryId: "apps", HeadBranch: "first", Status: modelv1.CommandStatus_COMMAND_SUCCEEDED},
	}})
	parts := livePreviews(t, f, "/plan-previews/live?seen=c1&branch=first")
	if text := parts["resort"]; !strings.Contains(text, "1 new plan preview: show") || !strings.Contains(text, `href="/plan-previews?branch=first"`) {
		t.Errorf("what is new: %s", text)
	}
	if _, new := parts["preview-c2"]; new || !strings.Contains(parts["preview-c1"], "Done") || !strings.Contains(parts["previews-headline"], "1 plan preview: 0 being built") {
		t.Errorf("the parts are %v", parts)
	}
	for _, target := range []string{"/plan-previews/live?seen=-", "/plan-previews/live?seen=c1&status=done"} {
		if text := livePreviews(t, f, target)["previews"]; !strings.Contains(text, "preview-c2") || !strings.Contains(text, "preview-c1") {
			t.Errorf("%s shows %s", target, text)
		}
	}
}

// TestManyNewPlanPreviews: shown rows change in place however many newer ones there are, and
// without the first of them none changes.
func TestManyNewPlanPreviews(t *testing.T) {
	var list []*controlv1.PlanPreviewBrief
	for i := range 2 * previewsPage {
		list = append(list, &controlv1.PlanPreviewBrief{CommandId: fmt.Sprint("c", i), HeadBranch: "b"})
	}
	f := previewer(t).on("ListPlanPreviews", &controlv1.ListPlanPreviewsResponse{PlanPreviews: list})
	for _, c := range []struct{ seen, newer, first, last, beyond, headline string }{
		{"c10", "10 new plan previews: show", "preview-c10", "preview-c59", "preview-c60", "The last 50 plan previews: 50 being built"},
		{"c50", "50 new plan previews: show", "preview-c50", "preview-c99", "preview-c49", "50 plan previews: 50 being built"},
		{"removed", "100 new plan previews: show", "", "", "preview-c0", "Plan previews"},
	} {
		parts := livePreviews(t, f, "/plan-previews/live?seen="+c.seen)
		if !strings.Contains(parts["resort"], c.newer) || !strings.Contains(parts["previews-headline"], ">"+c.headline) {
			t.Errorf("after %s: %s, %s", c.seen, parts["resort"], parts["previews-headline"])
		}
		for _, id := range []string{c.first, c.last} {
			if _, ok := parts[id]; id != "" && !ok {
				t.Errorf("after %s: no part %s", c.seen, id)
			}
		}
		if _, ok := parts[c.beyond]; ok {
			t.Errorf("after %s: a part %s", c.seen, c.beyond)
		}
	}
}

// diffOfLines returns a diff that adds n lines.
func diffOfLines(n int) string { return "@@ -0,0 +1 @@\n" + strings.Repeat("+  line: x\n", n) }

// previewOfAll is a plan preview with an application of each kind.
func previewOfAll() *controlv1.GetPlanPreviewResponse {
	update := func(kind, diff string) *controlv1.PlannedChange {
		return &controlv1.PlannedChange{Object: &modelv1.ObjectRef{Kind: kind, Namespace: "shop", Name: "web"}, Action: controlv1.PlannedAction_PLANNED_ACTION_UPDATE, Diff: diff}
	}
	return &controlv1.GetPlanPreviewResponse{
		PlanPreview: &controlv1.PlanPreviewBrief{
			CommandId: "c2", RepositoryId: "apps", HeadBranch: "<b>feature</b>", HeadCommit: gitCommit, BaseBranch: "main", PullRequest: 12, RequestedBy: "pull request", Status: modelv1.CommandStatus_COMMAND_SUCCEEDED,
			RequestedAtMs: minutesAgo(5), AnsweredAtMs: minutesAgo(5) + 7000, Applications: 4, ChangedApplications: 2, FailedApplications: 1,
		},
		Applications: []*controlv1.PreviewedApplication{
			{ApplicationId: "web-id", ApplicationName: "web", Directory: "shop/web", Exists: true, Strategy: modelv1.SyncStrategy_PIPELINE, Summary: "2 changed manifests", Warnings: []string{"app.pipecd.yaml:4: not used"},
				Changes: []*controlv1.PlannedChange{update("Deployment", "@@ -1 +1 @@\n-  image: web:v1\n+  image: web:v2\n"), update("ConfigMap", diffOfLines(3))}, ChangesLeftOut: 3},
			{ApplicationId: "new-id", ApplicationName: "new", Directory: "shop/new", Strategy: modelv1.SyncStrategy_QUICK_SYNC, Summary: "first deployment", Details: "the running commit is gone\n"},
			{ApplicationId: "same-id", ApplicationName: "same", Directory: "shop/same", Exists: true, NoChange: true, Summary: "No changes were detected"},
			{ApplicationId: "bad-id", ApplicationName: "bad", Directory: "shop/bad", Exists: true, Error: "bad/app.yaml:3: <wrong>\nsecond line"},
		},
	}
}

// TestPlanPreview: a plan preview says what it would do to each object, also as text.
func TestPlanPreview(t *testing.T) {
	f := previewer(t).on("GetPlanPreview", previewOfAll())
	body := golden(t, "plan-preview", f.get("/plan-previews/c2"))
	for _, want := range []string{
		"This change would change 2 of 4 applications; of 1 there is no preview.", "&lt;b&gt;feature&lt;/b&gt; into main at", `href="/trace?commit=` + gitCommit, `href="/trace?pull-request=12&amp;repository=apps"`, "took 7 s",
		`href="/applications/web~web-id"`, "Pipeline.", "2 changed manifests.", "app.pipecd.yaml:4: not used", `<span class="removed">-  image: web:v1</span>`, `href="/plan-previews/c2/diff"`,
		"3 further changes are not stored", "the running commit is gone", "No change", "bad/app.yaml:3: &lt;wrong&gt;", "second line",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if strings.Contains(body, "/applications/new") || strings.Contains(body, "/plan-previews/c2/live") {
		t.Error("the view links an application that does not exist, or follows what has ended")
	}
	resp := f.get("/plan-previews/c2/diff")
	text := bodyOf(t, resp)
	if resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || strings.Count(text, "+  line: x\n") != 3 || !strings.Contains(text, "# bad in shop/bad\n# bad/app.yaml:3: <wrong>\n# second line\n") || !strings.Contains(text, "# Pipeline\n# 2 changed manifests\n# app.pipecd.yaml:4: not used\n") {
		t.Errorf("%v: %s", resp.Header, text)
	}
}

// TestPlanPreviewOfManyLines: a diff and all diffs together are cut, and every object is named. The
// text has all of it.
func TestPlanPreviewOfManyLines(t *testing.T) {
	p := previewOfAll()
	for range 20 {
		p.Applications[0].Changes = append(p.Applications[0].Changes, &controlv1.PlannedChange{Object: &modelv1.ObjectRef{Kind: "Secret", Name: "many"}, Diff: diffOfLines(1000)})
	}
	f := previewer(t).on("GetPlanPreview", p)
	body := bodyOf(t, f.get("/plan-previews/c2"))
	if text := bodyOf(t, f.get("/plan-previews/c2/diff")); strings.Count(text, "+  line: x\n") != 20_003 {
		t.Errorf("the text has %d bytes", len(text))
	}
	if !strings.Contains(body, `701 lines are not shown here; <a href="/plan-previews/c2/diff">`) || !strings.Contains(body, "1,001 lines are not shown here") && !strings.Contains(body, "1001 lines are not shown here") {
		t.Error("nothing says that diffs are cut")
	}
	if n := strings.Count(body, "+  line: x"); n > 2000 || n < 1900 {
		t.Errorf("%d lines are shown", n)
	}
	if n := strings.Count(body, "Secret many"); n != 20 {
		t.Errorf("%d of 20 objects are named", n)
	}
}

// TestPlanPreviewWithoutResult: a plan preview that is being built is followed, and one that
// failed says why.
func TestPlanPreviewWithoutResult(t *testing.T) {
	brief := &controlv1.PlanPreviewBrief{CommandId: "c3", RepositoryId: "apps", HeadBranch: "feature", HeadCommit: gitCommit, BaseBranch: "main", RequestedBy: "ana", RequestedAtMs: minutesAgo(1)}
	f := previewer(t).on("GetPlanPreview", &controlv1.GetPlanPreviewResponse{PlanPreview: brief})
	if body := bodyOf(t, f.get("/plan-previews/c3")); !strings.Contains(body, "This plan preview is being built.") || !strings.Contains(body, `hx-sse:connect="/plan-previews/c3/live?from=`) {
		t.Error("while it is built:", body)
	}
	brief.Status, brief.Error = modelv1.CommandStatus_COMMAND_FAILED, "web/app.yaml conflicts"
	if body := bodyOf(t, f.get("/plan-previews/c3")); !strings.Contains(body, "could not be built") || !strings.Contains(body, "web/app.yaml conflicts") || strings.Contains(body, "/plan-previews/c3/live") {
		t.Error("after it failed:", body)
	}
	f.fails("GetPlanPreview", codes.NotFound, "there is no plan preview c3")
	if resp := f.get("/plan-previews/c3"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown one: %s", resp.Status)
	}
}
