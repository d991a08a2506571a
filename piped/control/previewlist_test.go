package control_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// previewsOf stores three plan previews of web and another application: one is open, one has
// results and one failed.
func previewsOf(t *testing.T, agent *controltest.Agent, commander string, apps ...deploy.Application) {
	t.Helper()
	for _, r := range []deploy.PlanPreviewRequest{
		{RepoID: "apps", HeadBranch: "a", HeadCommit: "aa", BaseBranch: "main", PullRequest: 7},
		{RepoID: "apps", HeadBranch: "b", HeadCommit: "bb", BaseBranch: "main"},
		{RepoID: "other", HeadBranch: "c", HeadCommit: "cc", BaseBranch: "main"},
	} {
		if _, err := agent.Store.CreateCommand(t.Context(), deploy.Command{ID: commander + "-" + r.HeadBranch, Type: deploy.CommandBuildPlanPreview, Commander: commander, PlanPreview: &r}); err != nil {
			t.Fatal(err)
		}
		agent.Tick(time.Second)
	}
	results := []deploy.ApplicationPreview{{ApplicationID: "gone", Name: "gone", NoChange: true}}
	for _, a := range apps {
		results = append(results, deploy.ApplicationPreview{
			ApplicationID: a.ID, Name: a.Name, Kind: a.Kind, Dir: a.Git.Dir, Labels: a.Labels, Strategy: deploy.StrategyPipeline, Summary: "1 changed", Details: "+ x",
			Changes: []deploy.PlannedChange{{Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: a.Name}, Action: deploy.PlannedUpdate, Diff: "@@ -1 +1 @@\n-a\n+b\n"}},
			LeftOut: 2, Warnings: []string{"app.pipecd.yaml:4: not used"},
		})
	}
	results[len(results)-1].Error = "cannot be rendered"
	for _, p := range []struct {
		preview deploy.PlanPreview
		status  deploy.CommandStatus
	}{
		{deploy.PlanPreview{CommandID: commander + "-a", Results: results, At: agent.Now()}, deploy.CommandSucceeded},
		{deploy.PlanPreview{CommandID: commander + "-b", Error: "hidden/app.yaml conflicts", At: agent.Now()}, deploy.CommandFailed},
	} {
		if err := agent.Store.AnswerPlanPreview(t.Context(), p.preview, p.status); err != nil {
			t.Fatal(err)
		}
	}
}

func listedPreviews(list []*controlv1.PlanPreviewBrief) string {
	ids := make([]string, len(list))
	for i, b := range list {
		ids[i] = b.CommandId
	}
	return strings.Join(ids, " ")
}

func TestListPlanPreviews(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadWrite)
	previewsOf(t, agent, "ann", agent.Application("web", nil), agent.Application("api", nil))
	for name, c := range map[string]struct {
		req  *controlv1.ListPlanPreviewsRequest
		want string
	}{
		"all, the newest first": {&controlv1.ListPlanPreviewsRequest{}, "ann-c ann-b ann-a"},
		"by repository":         {&controlv1.ListPlanPreviewsRequest{RepositoryId: "apps"}, "ann-b ann-a"},
		"by branch":             {&controlv1.ListPlanPreviewsRequest{HeadBranch: "b"}, "ann-b"},
		"by pull request":       {&controlv1.ListPlanPreviewsRequest{PullRequest: 7}, "ann-a"},
		"by status":             {&controlv1.ListPlanPreviewsRequest{Statuses: []modelv1.CommandStatus{modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET, modelv1.CommandStatus_COMMAND_FAILED}}, "ann-c ann-b"},
	} {
		resp, err := client.ListPlanPreviews(ctx, c.req)
		if got := listedPreviews(resp.GetPlanPreviews()); err != nil || got != c.want || resp.GetCursor() != "" {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	first, err := client.ListPlanPreviews(ctx, &controlv1.ListPlanPreviewsRequest{Limit: 2})
	if err != nil || listedPreviews(first.PlanPreviews) != "ann-c ann-b" {
		t.Fatal(first, err)
	}
	rest, err := client.ListPlanPreviews(ctx, &controlv1.ListPlanPreviewsRequest{Limit: 2, Cursor: first.Cursor})
	want := []*controlv1.PlanPreviewBrief{{
		CommandId: "ann-a", RepositoryId: "apps", HeadBranch: "a", HeadCommit: "aa", BaseBranch: "main", PullRequest: 7, RequestedBy: "ann", Status: modelv1.CommandStatus_COMMAND_SUCCEEDED,
		RequestedAtMs: agent.Now().Add(-3 * time.Second).UnixMilli(), AnsweredAtMs: agent.Now().UnixMilli(), Applications: 3, ChangedApplications: 1, FailedApplications: 1,
	}}
	if diff := cmp.Diff(want, rest.GetPlanPreviews(), protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("%v, second page (-want +got):\n%s", err, diff)
	}
	for name, req := range map[string]*controlv1.ListPlanPreviewsRequest{
		"status": {Statuses: []modelv1.CommandStatus{9}}, "cursor": {Cursor: "?"}, "limit": {Limit: -1}, "pull request": {PullRequest: -1},
	} {
		if _, err := client.ListPlanPreviews(ctx, req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := client.ListPlanPreviews(as(t, agent.ReadOnly), &controlv1.ListPlanPreviewsRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("with a key that only reads: %v", err)
	}
}

// TestPlanPreviewsOfOthersAreHidden: a caller who may view some applications gets the plan
// previews that it requested, and of these no count or error about other applications.
func TestPlanPreviewsOfOthersAreHidden(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Policy = access.NewPolicy(nil) })
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	key := agent.LimitedKey("deployer", &deploy.Selector{Labels: map[string]string{"team": "search"}})
	caller, err := client.GetCaller(as(t, key), &controlv1.GetCallerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	search, payments := agent.Application("find", map[string]string{"team": "search"}), agent.Application("pay", map[string]string{"team": "payments"})
	previewsOf(t, agent, "ann", search, payments)
	previewsOf(t, agent, caller.Subject, search, payments)
	resp, err := client.ListPlanPreviews(as(t, key), &controlv1.ListPlanPreviewsRequest{})
	want := caller.Subject + "-c " + caller.Subject + "-b " + caller.Subject + "-a"
	if got := listedPreviews(resp.GetPlanPreviews()); err != nil || got != want {
		t.Fatalf("%s, %v, want %s", got, err, want)
	}
	if b := resp.PlanPreviews[1]; strings.Contains(b.Error, "hidden") || b.Error == "" {
		t.Errorf("the error is %q", b.Error)
	}
	one, err := client.GetPlanPreview(as(t, key), &controlv1.GetPlanPreviewRequest{CommandId: caller.Subject + "-a"})
	if err != nil || len(one.Applications) != 1 || one.Applications[0].ApplicationName != "find" {
		t.Errorf("the changes of other applications: %v, %v", one, err)
	}
	if _, err := client.GetPlanPreview(as(t, key), &controlv1.GetPlanPreviewRequest{CommandId: "ann-a"}); status.Code(err) != codes.NotFound {
		t.Errorf("the plan preview of another caller: %v", err)
	}
	if b := resp.PlanPreviews[2]; b.Applications != 1 || b.ChangedApplications != 1 || b.FailedApplications != 0 {
		t.Errorf("counts of other applications: %v", b)
	}
}

// TestPlanPreviewsOfOneSubject: an API key and a user with the same subject get only the plan
// previews that each requested itself, in any session, and those that earlier versions stored
// without an account.
func TestPlanPreviewsOfOneSubject(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Policy = access.NewPolicy([]access.Role{{
			Name: "searcher", Subjects: []string{ana.Subject}, Applications: deploy.Selector{Labels: map[string]string{"team": "search"}},
			Permissions: []deploy.Permission{deploy.PermView, deploy.PermSync},
		}})
	})
	conn := dial(t, agent.Server.Addr())
	api, client := apiservice.NewAPIServiceClient(conn), controlv1.NewControlServiceClient(conn)
	key := agent.Key(ana.Subject, "searcher")
	callers := map[string][]context.Context{
		"the key":  {as(t, key), withSession(t, agent.SignInWithKey(key))},
		"the user": {withSession(t, agent.SignIn(ana)), withSession(t, agent.SignIn(ana))},
	}
	previewsOf(t, agent, ana.Subject)
	earlier := ana.Subject + "-c " + ana.Subject + "-b " + ana.Subject + "-a"
	requested := map[string]string{}
	for who, sessions := range callers {
		resp, err := api.RequestPlanPreview(sessions[0], &apiservice.RequestPlanPreviewRequest{RepoRemoteUrl: "https://git.example.com/apps.git", HeadBranch: "pr", HeadCommit: "beef", BaseBranch: "main"})
		if err != nil || len(resp.Commands) != 1 {
			t.Fatalf("%s: %v, %v", who, resp, err)
		}
		requested[who] = resp.Commands[0]
	}
	for who, sessions := range callers {
		for _, ctx := range sessions {
			list, err := client.ListPlanPreviews(ctx, &controlv1.ListPlanPreviewsRequest{})
			if got, want := listedPreviews(list.GetPlanPreviews()), requested[who]+" "+earlier; err != nil || got != want {
				t.Errorf("%s: %s, %v, want %s", who, got, err, want)
			}
			for requester, id := range requested {
				want := codes.OK
				if requester != who {
					want = codes.NotFound
				}
				_, err := client.GetPlanPreview(ctx, &controlv1.GetPlanPreviewRequest{CommandId: id})
				if status.Code(err) != want {
					t.Errorf("%s gets the plan preview of %s: %v, want %s", who, requester, err, want)
				}
				if _, err = api.GetCommand(ctx, &apiservice.GetCommandRequest{CommandId: id}); status.Code(err) != want {
					t.Errorf("%s gets the command of %s: %v, want %s", who, requester, err, want)
				}
			}
		}
	}
}

// TestGetPlanPreview: a plan preview has its changes by object, and is there while it is built.
func TestGetPlanPreview(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadWrite)
	web := agent.Application("web", map[string]string{"team": "shop"})
	previewsOf(t, agent, "ann", web, agent.Application("api", nil))
	got, err := client.GetPlanPreview(ctx, &controlv1.GetPlanPreviewRequest{CommandId: "ann-a"})
	if err != nil {
		t.Fatal(err)
	}
	want := []*controlv1.PreviewedApplication{
		{ApplicationId: "gone", ApplicationName: "gone", Kind: modelv1.ApplicationKind_KUBERNETES, NoChange: true},
		{
			ApplicationId: web.ID, ApplicationName: "web", Kind: modelv1.ApplicationKind_KUBERNETES, Directory: web.Git.Dir, Labels: web.Labels, Exists: true,
			Strategy: modelv1.SyncStrategy_PIPELINE, Summary: "1 changed", ChangesLeftOut: 2, Warnings: []string{"app.pipecd.yaml:4: not used"},
			Changes: []*controlv1.PlannedChange{{
				Object: &modelv1.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
				Action: controlv1.PlannedAction_PLANNED_ACTION_UPDATE, Diff: "@@ -1 +1 @@\n-a\n+b\n",
			}},
		},
	}
	if diff := cmp.Diff(want, got.Applications[:2], protocmp.Transform()); diff != "" || len(got.Applications) != 3 {
		t.Errorf("%d applications, the first (-want +got):\n%s", len(got.Applications), diff)
	}
	if b := got.PlanPreview; b.CommandId != "ann-a" || b.PullRequest != 7 || b.Applications != 3 || got.Applications[2].Error != "cannot be rendered" {
		t.Errorf("the rest is %v", got)
	}
	open, err := client.GetPlanPreview(ctx, &controlv1.GetPlanPreviewRequest{CommandId: "ann-c"})
	if err != nil || open.PlanPreview.GetStatus() != modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET || open.PlanPreview.HeadBranch != "c" {
		t.Errorf("while it is built: %v, %v", open, err)
	}
	failed, err := client.GetPlanPreview(ctx, &controlv1.GetPlanPreviewRequest{CommandId: "ann-b"})
	if err != nil || failed.PlanPreview.GetError() != "hidden/app.yaml conflicts" {
		t.Errorf("one that failed: %v, %v", failed, err)
	}
	for id, want := range map[string]codes.Code{"": codes.InvalidArgument, "unknown": codes.NotFound} {
		if _, err := client.GetPlanPreview(ctx, &controlv1.GetPlanPreviewRequest{CommandId: id}); status.Code(err) != want {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := client.GetPlanPreview(as(t, agent.ReadOnly), &controlv1.GetPlanPreviewRequest{CommandId: "ann-a"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("with a key that only reads: %v", err)
	}
}

// TestWatchPlanPreviews: a watch reports a plan preview when it is requested and when it ends, of
// those that the conditions and the rights of the caller select.
func TestWatchPlanPreviews(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Policy = access.NewPolicy(nil) })
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	search, payments := agent.Application("find", map[string]string{"team": "search"}), agent.Application("pay", map[string]string{"team": "payments"})
	key := agent.LimitedKey("deployer", &deploy.Selector{Labels: map[string]string{"team": "search"}})
	caller, err := client.GetCaller(as(t, key), &controlv1.GetCallerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	watch := func(key string, req *controlv1.WatchPlanPreviewsRequest) func() *controlv1.PlanPreviewBrief {
		t.Helper()
		stream, err := client.WatchPlanPreviews(as(t, key), req)
		if err != nil {
			t.Fatal(err)
		}
		if first, err := stream.Recv(); err != nil || !first.CaughtUp {
			t.Fatal(first, err)
		}
		return func() *controlv1.PlanPreviewBrief {
			t.Helper()
			next, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return next.PlanPreview
		}
	}
	all := watch(agent.LimitedKey("admin", nil), &controlv1.WatchPlanPreviewsRequest{})
	own := watch(key, &controlv1.WatchPlanPreviewsRequest{})
	branch := watch(agent.LimitedKey("admin", nil), &controlv1.WatchPlanPreviewsRequest{HeadBranch: "b", RepositoryId: "apps"})
	one := watch(agent.LimitedKey("admin", nil), &controlv1.WatchPlanPreviewsRequest{CommandIds: []string{"ann-a"}})
	ended := func(next func() *controlv1.PlanPreviewBrief, id string) *controlv1.PlanPreviewBrief {
		t.Helper()
		for {
			switch b := next(); {
			case b.CommandId != id:
				t.Fatalf("the watch for %s reports %v", id, b)
			case b.Status != modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET:
				return b
			}
		}
	}
	previewsOf(t, agent, "ann", search, payments)
	if b := ended(one, "ann-a"); b.Applications != 3 {
		t.Errorf("the end of ann-a: %v", b)
	}
	ended(branch, "ann-b")
	seen := map[string]bool{}
	for len(seen) < 3 {
		seen[all().CommandId] = true
	}
	previewsOf(t, agent, caller.Subject, search, payments)
	for {
		b := own()
		if strings.HasPrefix(b.CommandId, "ann-") {
			t.Fatalf("the plan preview of another caller is reported: %v", b)
		}
		if b.CommandId == caller.Subject+"-a" && b.Status == modelv1.CommandStatus_COMMAND_SUCCEEDED {
			if b.Applications != 1 {
				t.Errorf("it counts other applications: %v", b)
			}
			break
		}
	}
}
