package page

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// TestPullPreviews: each preview is shown with its state and reason; what is ready is linked.
func TestPullPreviews(t *testing.T) {
	f := calm(t).on("ListPreviews", &controlv1.ListPreviewsResponse{Previews: []*controlv1.Preview{
		{
			RepositoryId: "apps", PullRequest: 12, HeadBranch: "<b>new</b>", HeadCommit: imageCommit, BaseBranch: "main", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_READY, SinceMs: minutesAgo(5),
			ExpiresAtMs: noon.Add(time.Hour).UnixMilli(), Applications: []*controlv1.PreviewOfApplication{
				{ApplicationId: "a1", ApplicationName: "api-pr-12", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_READY, DeploymentId: "d1"},
				{ApplicationId: "a2", ApplicationName: "web-pr-12", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_READY, DeploymentId: "d2", Url: "https://web-pr-12.example.com", Header: "X-Preview: pr-12-apps"},
			},
		},
		{
			RepositoryId: "apps", PullRequest: 13, HeadBranch: "crash", HeadCommit: gitCommit, BaseBranch: "main", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_FAILED, SinceMs: minutesAgo(60),
			Reason: "web-pr-13: its pods crash & burn", Applications: []*controlv1.PreviewOfApplication{{ApplicationName: "web-pr-13", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_FAILED}},
		},
		{RepositoryId: "tools", PullRequest: 2, HeadBranch: "more", HeadCommit: gitCommit, BaseBranch: "main", Phase: controlv1.PreviewPhase_PREVIEW_PHASE_WAITING, Reason: "20 pull requests have a preview"},
	}})
	body := golden(t, "pull-previews", f.get("/previews"))
	for _, want := range []string{
		"3 previews: 1 ready, 1 failed.", "apps#12", "&lt;b&gt;new&lt;/b&gt; into main", `href="https://web-pr-12.example.com"`, `href="/deployments/d1"`, "until 2026-03-04 13:00 UTC",
		"web-pr-13: its pods crash &amp; burn", "tools#2", "Waiting", "<code>X-Preview: pr-12-apps</code>", `hx-sse:connect="/previews/live`, `href="/plan-previews"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestPullPreviewFilters: the filters of the address reach the API.
func TestPullPreviewFilters(t *testing.T) {
	f := calm(t)
	var asked *controlv1.ListPreviewsRequest
	f.answers["ListPreviews"] = func(m proto.Message) (proto.Message, error) {
		asked = proto.CloneOf(m.(*controlv1.ListPreviewsRequest))
		return &controlv1.ListPreviewsResponse{}, nil
	}
	body := bodyOf(t, f.get("/previews?repository=apps&state=failed"))
	want := &controlv1.ListPreviewsRequest{RepositoryId: "apps", Phases: []controlv1.PreviewPhase{controlv1.PreviewPhase_PREVIEW_PHASE_FAILED}}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the request differs (-want +got):\n" + diff)
	}
	if !strings.Contains(body, "Nothing matches") {
		t.Error(body)
	}
	if resp := f.get("/previews?state=x"); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("no state: %s", resp.Status)
	}
	if body := bodyOf(t, f.get("/previews")); !strings.Contains(body, "spec.preview") {
		t.Error("without previews nothing says how to have some:", body)
	}
}

// TestPullPreviewsAreLive: an open list is read again, and shows what has changed.
func TestPullPreviewsAreLive(t *testing.T) {
	f := calm(t)
	phase := controlv1.PreviewPhase_PREVIEW_PHASE_BUILDING
	f.answers["ListPreviews"] = func(proto.Message) (proto.Message, error) {
		return &controlv1.ListPreviewsResponse{Previews: []*controlv1.Preview{{RepositoryId: "apps", PullRequest: 12, Phase: phase}}}, nil
	}
	v := &visit{Handler: f.page(), r: request("GET", "/previews/live?state=building", ""), ctx: signedIn(t), now: noon, allowed: map[string]bool{}}
	src, err := livePullPreviews(v)
	if err != nil {
		t.Fatal(err)
	}
	next, err := src.watch(v)
	if err != nil {
		t.Fatal(err)
	}
	if caughtUp, err := next(); !caughtUp || err != nil {
		t.Errorf("first %v, %v", caughtUp, err)
	}
	begin := time.Now()
	if _, err := next(); err != nil || time.Since(begin) < pullPreviewsEvery {
		t.Errorf("again after %s, %v", time.Since(begin), err)
	}
	for _, want := range []string{"Building", "Ready"} {
		parts, err := src.parts(v)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := html(t.Context(), parts[1].body); err != nil || !strings.Contains(text, want+"<") && !strings.Contains(text, want+"\n") {
			t.Errorf("the list lacks %s: %s, %v", want, text, err)
		}
		phase = controlv1.PreviewPhase_PREVIEW_PHASE_READY
	}
}
