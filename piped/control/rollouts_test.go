package control_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// rollouts stores two rollouts of deployments and, between them, an external one.
func rollouts(t *testing.T, agent *controltest.Agent) {
	t.Helper()
	web, api := agent.Application("web", map[string]string{"env": "prod"}), agent.Application("api", nil)
	agent.Deployment("d1", web, "")
	agent.Deployment("d2", api, "")
	workload := func(name string) deploy.ObjectRef {
		return deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name}
	}
	for _, r := range []deploy.Rollout{
		{
			ID: "r1", ApplicationID: web.ID, DeploymentID: "d1", StageID: "sync", Cluster: "dev", Workload: workload("web"), UID: "u1",
			Phase: deploy.RolloutComplete, Reason: "web: 3 of 3", Revision: 7, Images: "web:2 log:1", ImagesBefore: "web:1", ReplicasBefore: 2, ReplicasAfter: 3,
			TargetName: "web-7d9f", SupersededBy: "kubectl", Parts: deploy.RolloutParts{Schedule: deploy.Took{Measured: true}, Ready: deploy.Took{Measured: true, Time: 2 * time.Second}},
		},
		{ID: "r2", ApplicationID: api.ID, DeploymentID: "d2", StageID: "sync", Cluster: "dev", Workload: workload("api"), Phase: deploy.RolloutHeld},
		{
			ID: "r3", ApplicationID: web.ID, Cluster: "dev", Workload: workload("web"), UID: "u1", Phase: deploy.RolloutProgressing,
			ChangedBy: "kubectl\xff", FoundLate: true, Revision: 8, AppliedAt: controltest.Epoch.Add(5500 * time.Millisecond),
		},
	} {
		agent.Tick(time.Second)
		if _, err := agent.Store.SaveRollout(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListRollouts(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	rollouts(t, agent)
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	list := func(t *testing.T, req *controlv1.ListRolloutsRequest) (*controlv1.ListRolloutsResponse, string) {
		t.Helper()
		resp, err := client.ListRollouts(as(t, agent.ReadOnly), req)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range resp.Rollouts {
			ids = append(ids, r.Id)
		}
		return resp, strings.Join(ids, " ")
	}
	began := func(n int) int64 { return controltest.Epoch.Add(time.Duration(n) * time.Second).UnixMilli() }
	for name, c := range map[string]struct {
		req  *controlv1.ListRolloutsRequest
		want string
	}{
		"newest first":         {&controlv1.ListRolloutsRequest{}, "r2 r3 r1"},
		"of an application":    {&controlv1.ListRolloutsRequest{ApplicationIds: []string{"app-web"}}, "r3 r1"},
		"by a label":           {&controlv1.ListRolloutsRequest{Labels: map[string]string{"env": "prod"}}, "r3 r1"},
		"of a deployment":      {&controlv1.ListRolloutsRequest{DeploymentId: "d2"}, "r2"},
		"by outcome":           {&controlv1.ListRolloutsRequest{Outcomes: []modelv1.RolloutOutcome{modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD}}, "r2 r3"},
		"of an unused outcome": {&controlv1.ListRolloutsRequest{Outcomes: []modelv1.RolloutOutcome{modelv1.RolloutOutcome_ROLLOUT_OUTCOME_GONE}}, ""},
		"rollouts":             {&controlv1.ListRolloutsRequest{Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT}, "r2 r3 r1"},
		"scalings":             {&controlv1.ListRolloutsRequest{Kind: modelv1.RolloutKind_ROLLOUT_KIND_SCALING}, ""},
		"from a time":          {&controlv1.ListRolloutsRequest{FromMs: began(6)}, "r2"},
		"to a time":            {&controlv1.ListRolloutsRequest{ToMs: began(6)}, "r3 r1"},
		"in a namespace":       {&controlv1.ListRolloutsRequest{Namespaces: []string{"shop"}}, "r2 r3 r1"},
		"of a workload":        {&controlv1.ListRolloutsRequest{Workloads: []string{"web"}}, "r3 r1"},
		"in none there is":     {&controlv1.ListRolloutsRequest{Namespaces: []string{"other"}}, ""},
		"a page":               {&controlv1.ListRolloutsRequest{Limit: 2}, "r2 r3"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := list(t, c.req); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}

	page, _ := list(t, &controlv1.ListRolloutsRequest{Limit: 2})
	rest, ids := list(t, &controlv1.ListRolloutsRequest{Limit: 2, Cursor: page.Cursor})
	if page.Cursor == "" || ids != "r1" || rest.Cursor != "" {
		t.Errorf("behind the first page: %q, with cursor %q", ids, rest.Cursor)
	}
	want := []*modelv1.Rollout{{
		Id: "r1", Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT, ApplicationId: "app-web", ApplicationName: "web", DeploymentId: "d1", StageId: "sync",
		Workload: &modelv1.ObjectRef{Cluster: "dev", Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Uid: "u1"},
		Revision: 7, Commit: "0123456789abcdef0123456789abcdef01234567", Images: []string{"web:2", "log:1"}, ImagesBefore: []string{"web:1"},
		Outcome: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE, Reason: "web: 3 of 3", FromReplicas: 2, ToReplicas: 3,
		RevisionName: "web-7d9f", SupersededBy: "kubectl", ScheduleMs: new(int64(0)), ReadyMs: new(int64(2000)),
		StartedAtMs: began(5), CompletedAtMs: began(5), MarkedAtMs: began(5),
	}}
	if diff := cmp.Diff(want, rest.Rollouts, protocmp.Transform()); diff != "" {
		t.Errorf("a rollout of a deployment (-want +got):\n%s", diff)
	}
	want = []*modelv1.Rollout{{
		Id: "r3", Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT, ApplicationId: "app-web", ApplicationName: "web",
		Workload: &modelv1.ObjectRef{Cluster: "dev", Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web", Uid: "u1"},
		Revision: 8, Outcome: modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING, CausedBy: "kubectl\uFFFD", FoundLate: true, StartedAtMs: began(5) + 500,
	}}
	if diff := cmp.Diff(want, page.Rollouts[1:], protocmp.Transform()); diff != "" {
		t.Errorf("an external rollout (-want +got):\n%s", diff)
	}
}

// TestListRolloutsScalings: scalings are listed with rollouts, or alone if requested.
func TestListRolloutsScalings(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	rollouts(t, agent)
	_, err := agent.Store.SaveRollout(t.Context(), deploy.Rollout{
		ID: "s1", Kind: deploy.RolloutKindScaling, ApplicationID: "app-web", Cluster: "dev", Phase: deploy.RolloutComplete, ChangedBy: "kube-controller-manager",
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, ReplicasBefore: 2, ReplicasAfter: 5,
	})
	if err != nil {
		t.Fatal(err)
	}
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for kind, want := range map[modelv1.RolloutKind]int{0: 4, modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT: 3, modelv1.RolloutKind_ROLLOUT_KIND_SCALING: 1} {
		resp, err := client.ListRollouts(as(t, agent.ReadOnly), &controlv1.ListRolloutsRequest{Kind: kind})
		if err != nil || len(resp.Rollouts) != want {
			t.Fatalf("%s: %d rollouts, %v; want %d", kind, len(resp.GetRollouts()), err, want)
		}
		if s := resp.Rollouts[0]; want == 1 && (s.Kind != kind || s.ApplicationName != "web" || s.FromReplicas != 2 || s.ToReplicas != 5 || s.CausedBy != "kube-controller-manager" || s.Commit != "") {
			t.Errorf("a scaling: %v", s)
		}
	}
}

// TestListRolloutsPages: the default page size is a hundred, the maximum a thousand.
func TestListRolloutsPages(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	web := agent.Application("web", nil)
	agent.Deployment("d1", web, "")
	for i := range 1001 {
		r := deploy.Rollout{
			ID: fmt.Sprintf("r%04d", i), ApplicationID: web.ID, DeploymentID: "d1", StageID: "s", Cluster: "dev", Phase: deploy.RolloutIntent,
			Workload: deploy.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: fmt.Sprint(i)},
		}
		if _, err := agent.Store.SaveRollout(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for limit, want := range map[int32]int{0: 100, 7: 7, 1000: 1000, 5000: 1000} {
		resp, err := client.ListRollouts(as(t, agent.ReadOnly), &controlv1.ListRolloutsRequest{Limit: limit})
		if err != nil || len(resp.Rollouts) != want || resp.Cursor == "" {
			t.Errorf("limit %d: %d rollouts, %v; want %d and a cursor", limit, len(resp.GetRollouts()), err, want)
		}
	}
}

func TestListRolloutsRefusals(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for name, req := range map[string]*controlv1.ListRolloutsRequest{
		"a negative limit":       {Limit: -1},
		"a kind there is not":    {Kind: 9},
		"an outcome there isn't": {Outcomes: []modelv1.RolloutOutcome{99}},
		"another list's cursor":  {Cursor: "nonsense"},
		"a namespace's wildcard": {Namespaces: []string{"sh%"}},
		"too many namespaces":    {Namespaces: make([]string, 1001)},
		"too many applications":  {ApplicationIds: make([]string, 1001)},
	} {
		if _, err := client.ListRollouts(as(t, agent.ReadOnly), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
