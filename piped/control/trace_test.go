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
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// tracedHash is the commit of controltest's deployments.
const tracedHash = "0123456789abcdef0123456789abcdef01234567"

// registered stores an event with its handlings; its source commit is c0ffee0 followed by its ID.
func registered(t testing.TB, agent *controltest.Agent, id string, handlings ...deploy.EventHandling) {
	t.Helper()
	agent.Tick(time.Second)
	_, err := agent.Store.RegisterEvent(t.Context(), deploy.RegisteredEvent{
		ID: id, Name: "image", Data: "v2", Labels: map[string]string{"id": id}, Trigger: deploy.TriggerCommit{Hash: "c0ffee0" + id, URL: "https://git.example.com/src"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range handlings {
		if err := agent.Store.SaveEventHandling(t.Context(), id, h); err != nil {
			t.Fatal(err)
		}
	}
}

// deployed stores a deployment of a commit.
func deployed(t *testing.T, agent *controltest.Agent, id string, app deploy.Application, hash string, change ...func(*deploy.Deployment)) {
	t.Helper()
	agent.Tick(time.Second)
	d := deploy.Deployment{
		ID: id, ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: agent.Now(), Strategy: deploy.StrategyAuto, Commit: deploy.Commit{Hash: hash, Message: "Bump", Author: "Ada", Branch: "main", At: agent.Now()}},
	}
	for _, c := range change {
		c(&d)
	}
	if _, err := agent.Store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d}); err != nil {
		t.Fatal(err)
	}
}

func subject(text string) func(*deploy.Deployment) {
	return func(d *deploy.Deployment) { d.Trigger.Commit.Message = text }
}

func inChain(id string, block int) func(*deploy.Deployment) {
	return func(d *deploy.Deployment) { d.ChainID, d.ChainBlock = id, block }
}

// treeOf writes a trace as text: events with their commits, and below each commit its
// deployments with statuses and rollouts.
func treeOf(m *controlv1.DeploymentTrace) string {
	var out strings.Builder
	for _, e := range m.Events {
		fmt.Fprintf(&out, "event %s %s=%s\n", e.EventId, e.Name, e.Data)
	}
	for _, c := range m.Commits {
		fmt.Fprintf(&out, "commit %s %s", c.RepositoryId, c.Hash[:min(len(c.Hash), 12)])
		for _, id := range c.EventIds {
			fmt.Fprintf(&out, " by %s", id)
		}
		for _, p := range c.PullRequests {
			fmt.Fprintf(&out, " #%d %s", p.Number, strings.TrimPrefix(p.Link.String(), "PULL_REQUEST_LINK_"))
		}
		out.WriteString("\n")
		for _, d := range c.Deployments {
			fmt.Fprintf(&out, "  %s of %s", d.Deployment.DeploymentId, d.ApplicationName)
			for _, p := range d.Phases {
				fmt.Fprintf(&out, " %s", strings.TrimPrefix(p.Status.String(), "DEPLOYMENT_"))
			}
			for _, r := range d.Rollouts {
				fmt.Fprintf(&out, " %s:%s", r.WorkloadName, strings.TrimPrefix(r.Outcome.String(), "ROLLOUT_OUTCOME_"))
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// TestDeploymentTrace: an event wrote a commit of a pull request that was merged as another
// commit, whose deployment started a chain. Every begin leads to the same deployments.
func TestDeploymentTrace(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	web, api, db := agent.Application("web", map[string]string{"team": "shop"}), agent.Application("api", map[string]string{"team": "shop"}), agent.Application("db", map[string]string{"team": "data"})
	head, merged, other := "aaaaaaa1"+strings.Repeat("0", 32), "bbbbbbb2"+strings.Repeat("0", 32), "bbbbbbb3"+strings.Repeat("0", 32)
	registered(t, agent, "e1", deploy.EventHandling{RepoID: "apps", PullRequest: true, Status: deploy.EventHandled, Description: "opened it", Commit: head, PullRequestURL: "https://github.com/shop/apps/pull/12"})
	registered(t, agent, "e2")
	deployed(t, agent, "d1", web, merged, subject("Merge pull request #12 from shop/bump"), inChain("chain", 0))
	deployed(t, agent, "d2", api, merged, subject("Merge pull request #12 from shop/bump"))
	deployed(t, agent, "d3", db, other, inChain("chain", 1))
	agent.Move("d1", deploy.Success, "done")
	for name, started := range map[string]int{"first": 1, "second": 2} {
		_, err := agent.Store.SaveRollout(t.Context(), deploy.Rollout{
			ID: name, ApplicationID: web.ID, DeploymentID: "d1", StageID: controltest.SyncStage, Cluster: "dev", Phase: deploy.RolloutComplete, StartedAt: agent.Now().Add(time.Duration(started) * time.Second),
			Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name}, CompletedAt: agent.Now().Add(time.Minute),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	whole := "commit apps bbbbbbb20000 #12 NAMED\n" +
		"  d1 of web PENDING PLANNED RUNNING SUCCESS first:COMPLETE second:COMPLETE\n" +
		"  d2 of api PENDING\n" +
		"  d3 of db PENDING\n"
	written := "event e1 image=v2\n" + whole + "commit apps aaaaaaa10000 by e1 #12 HEAD\n"
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	shop := agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "shop"}})
	data := agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "data"}})
	for name, c := range map[string]struct {
		key  string
		req  *controlv1.GetDeploymentTraceRequest
		want string // or a code
	}{
		"the merged commit":        {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: merged}, written},
		"the head":                 {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: "aaaaaaa1", RepositoryId: "apps"}, written},
		"the source commit":        {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: "c0ffee0e1"}, written},
		"ambiguous source commits": {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: "c0ffee0"}, "code InvalidArgument"},
		"of shop, a source commit": {shop, &controlv1.GetDeploymentTraceRequest{Commit: "c0ffee0"}, strings.Replace(written, "  d3 of db PENDING\n", "", 1)},
		"of data, a source commit": {data, &controlv1.GetDeploymentTraceRequest{Commit: "c0ffee0"}, "code NotFound"},
		"the event":                {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{EventId: "e1"}, written},
		"an event, not handled":    {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{EventId: "e2"}, "event e2 image=v2\n"},
		"the pull request":         {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{PullRequest: 12, RepositoryId: "apps"}, written},
		"a deployment":             {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{DeploymentId: "d2"}, written},
		"one of the chain":         {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{DeploymentId: "d3"}, written},
		"its own commit":           {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: other}, "commit apps bbbbbbb30000\n  d3 of db PENDING\n"},
		"an ambiguous commit":      {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: "bbbbbbb"}, "code InvalidArgument"},
		"another repository":       {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: merged, RepositoryId: "libs"}, "code NotFound"},
		"an unknown commit":        {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: "fffffff"}, "code NotFound"},
		"no hash":                  {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: "main"}, "code InvalidArgument"},
		"an unknown event":         {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{EventId: "e9"}, "code NotFound"},
		"an unknown deployment":    {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{DeploymentId: "d9"}, "code NotFound"},
		"an unknown number":        {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{PullRequest: 13, RepositoryId: "apps"}, "code NotFound"},
		"no repository":            {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{PullRequest: 12}, "code InvalidArgument"},
		"a negative number":        {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{PullRequest: -1, RepositoryId: "apps"}, "code InvalidArgument"},
		"nothing":                  {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{RepositoryId: "apps"}, "code InvalidArgument"},
		"two":                      {agent.ReadOnly, &controlv1.GetDeploymentTraceRequest{Commit: merged, EventId: "e1"}, "code InvalidArgument"},

		// A caller sees what belongs to a visible deployment.
		"of shop, the event":                   {shop, &controlv1.GetDeploymentTraceRequest{EventId: "e1"}, strings.Replace(written, "  d3 of db PENDING\n", "", 1)},
		"of shop, the pull request":            {shop, &controlv1.GetDeploymentTraceRequest{PullRequest: 12, RepositoryId: "apps"}, strings.Replace(written, "  d3 of db PENDING\n", "", 1)},
		"of shop, an event without deployment": {shop, &controlv1.GetDeploymentTraceRequest{EventId: "e2"}, "code NotFound"},
		"of shop, a hidden commit":             {shop, &controlv1.GetDeploymentTraceRequest{Commit: other}, "code NotFound"},
		"of shop, a prefix":                    {shop, &controlv1.GetDeploymentTraceRequest{Commit: "bbbbbbb"}, strings.Replace(written, "  d3 of db PENDING\n", "", 1)},
		"of data, one of the chain":            {data, &controlv1.GetDeploymentTraceRequest{DeploymentId: "d3"}, "commit apps bbbbbbb30000\n  d3 of db PENDING\n"},
		"of data, the event":                   {data, &controlv1.GetDeploymentTraceRequest{EventId: "e1"}, "code NotFound"},
		"of data, the pull request":            {data, &controlv1.GetDeploymentTraceRequest{PullRequest: 12, RepositoryId: "apps"}, "code NotFound"},
		"of data, the merged commit":           {data, &controlv1.GetDeploymentTraceRequest{Commit: merged}, "code NotFound"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, err := client.GetDeploymentTrace(as(t, c.key), c.req)
			got := fmt.Sprintf("code %s", status.Code(err))
			if err == nil {
				got = treeOf(resp.Trace)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("trace, %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestHiddenAndUnknownEvents: the error of a hidden event is that of an unknown one.
func TestHiddenAndUnknownEvents(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", map[string]string{"team": "shop"})
	deployed(t, agent, "d1", app, tracedHash)
	registered(t, agent, "e1", deploy.EventHandling{RepoID: "apps", Status: deploy.EventHandled, Commit: tracedHash})
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	key := agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "data"}})
	ask := func(id string) string {
		_, err := client.GetDeploymentTrace(as(t, key), &controlv1.GetDeploymentTraceRequest{EventId: id})
		return strings.ReplaceAll(status.Convert(err).Message(), id, "ID")
	}
	if hidden, unknown := ask("e1"), ask("e9"); hidden != unknown || !strings.Contains(hidden, "there is no event ID") {
		t.Errorf("a hidden event: %q, an unknown one: %q", hidden, unknown)
	}
}

// TestTracedValues: what a trace says of an event, a commit, a deployment and a rollout.
func TestTracedValues(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", map[string]string{"team": "shop"})
	if _, err := agent.Store.RegisterEvent(t.Context(), deploy.RegisteredEvent{
		ID: "e1", Name: "image", Data: strings.Repeat("v", 2000), Trigger: deploy.TriggerCommit{Hash: "c0ffee0c0ffee0", URL: "https://git.example.com/src"},
	}); err != nil {
		t.Fatal(err)
	}
	at := agent.Now()
	for _, h := range []deploy.EventHandling{
		{RepoID: "other", Status: deploy.EventHandled, Commit: "abc", PullRequestURL: "https://git.example.com/hidden/pulls/3"},
		{RepoID: "apps", Status: deploy.EventOpen, Description: "the remote does not answer"},
		{RepoID: "apps", Status: deploy.EventHandled, Description: "committed", Commit: tracedHash},
	} {
		if err := agent.Store.SaveEventHandling(t.Context(), "e1", h); err != nil {
			t.Fatal(err)
		}
	}
	deployed(t, agent, "d1", app, tracedHash, func(d *deploy.Deployment) {
		d.Trigger.Commit.URL, d.Trigger.Commit.Trace, d.Kind = "https://git.example.com/c", "c0ffee0c0ffee0", deploy.KindKubernetes
	})
	created := agent.Now()
	agent.Move("d1", deploy.Planned, "ready")
	planned := agent.Now()
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	want := &controlv1.DeploymentTrace{
		Events: []*controlv1.TracedEvent{{
			EventId: "e1", Name: "image", Data: strings.Repeat("v", 1000), SourceCommit: "c0ffee0c0ffee0", SourceUrl: "https://git.example.com/src", RegisteredAtMs: at.UnixMilli(),
			Status: new(modelv1.EventStatus_EVENT_NOT_HANDLED), StatusDescription: "committed", PullRequestUrl: "https://git.example.com/hidden/pulls/3",
		}},
		Commits: []*controlv1.TracedCommit{
			{RepositoryId: "apps", Hash: tracedHash, Message: "Bump", Author: "Ada", Branch: "main", Url: "https://git.example.com/c", CommittedAtMs: created.UnixMilli(), SourceCommit: "c0ffee0c0ffee0",
				EventIds: []string{"e1"}, Deployments: []*controlv1.TracedDeployment{{
					Deployment: &controlv1.DeploymentBrief{
						DeploymentId: "d1", Status: modelv1.DeploymentStatus_DEPLOYMENT_PLANNED, StatusReason: "The deployment is planned and waits for a free slot", Commit: tracedHash, CommitMessage: "Bump", By: "Ada", CreatedAtMs: created.UnixMilli(),
					},
					ApplicationId: "app-web", ApplicationName: "web", Kind: modelv1.ApplicationKind_KUBERNETES, PlatformProvider: "dev", TriggerKind: modelv1.TriggerKind_TRIGGER_KIND_ON_COMMIT,
					Phases: []*controlv1.DeploymentPhase{
						{Status: modelv1.DeploymentStatus_DEPLOYMENT_PENDING, FromMs: created.UnixMilli(), ToMs: planned.UnixMilli()},
						{Status: modelv1.DeploymentStatus_DEPLOYMENT_PLANNED, FromMs: planned.UnixMilli()},
					},
				}}},
			{RepositoryId: "other", Hash: "abc", EventIds: []string{"e1"}, PullRequests: []*controlv1.TracedPullRequest{{Number: 3, Link: controlv1.PullRequestLink_PULL_REQUEST_LINK_HEAD}}},
		},
	}
	ask := func(key string) *controlv1.DeploymentTrace {
		t.Helper()
		resp, err := client.GetDeploymentTrace(as(t, key), &controlv1.GetDeploymentTraceRequest{Commit: "c0ffee0"}) // the source commit
		if err != nil {
			t.Fatal(err)
		}
		return resp.Trace
	}
	if diff := cmp.Diff(want, ask(agent.ReadOnly), protocmp.Transform()); diff != "" {
		t.Errorf("for a caller who may view all (-want +got):\n%s", diff)
	}
	want.Commits, want.Events[0].Status, want.Events[0].StatusDescription, want.Events[0].PullRequestUrl = want.Commits[:1], nil, "", ""
	if diff := cmp.Diff(want, ask(agent.LimitedKey("viewer", &deploy.Selector{Names: []string{"web"}})), protocmp.Transform()); diff != "" {
		t.Errorf("for a caller who may view the application (-want +got):\n%s", diff)
	}
}

// TestLargeTrace: a trace of many deployments fits into a response and says that it is
// truncated.
func TestLargeTrace(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	for i := range 30 {
		id := fmt.Sprintf("d%02d", i)
		deployed(t, agent, id, app, tracedHash, subject(strings.Repeat("x", 200_000)))
		_, err := agent.Store.SaveRollout(t.Context(), deploy.Rollout{
			ID: id, ApplicationID: app.ID, DeploymentID: id, StageID: controltest.SyncStage, Cluster: "dev", Phase: deploy.RolloutComplete, StartedAt: agent.Now(),
			Workload: deploy.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: "web"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	resp, err := client.GetDeploymentTrace(as(t, agent.ReadOnly), &controlv1.GetDeploymentTraceRequest{Commit: tracedHash})
	if status.Code(err) != codes.OK {
		t.Fatal(err)
	}
	left := resp.Trace.Commits[0].Deployments
	if n := len(left); n == 0 || n >= 30 || !resp.Trace.DeploymentsTruncated || !resp.Trace.RolloutsTruncated {
		t.Fatalf("%d deployments, truncated: %t, rollouts: %t", n, resp.Trace.DeploymentsTruncated, resp.Trace.RolloutsTruncated)
	}
	if last := left[len(left)-1]; last.Deployment.DeploymentId != "d29" || len(last.Rollouts) != 0 {
		t.Errorf("the last deployment is %s with %d rollouts", last.Deployment.DeploymentId, len(last.Rollouts))
	}
}
