package storetest

import (
	"slices"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// beginChain stores a deployment of a that starts the chain "chain" with the given later
// blocks of applications.
func (e *env) beginChain(t testing.TB, id string, a deploy.Application, blocks ...[]deploy.Application) deploy.Deployment {
	t.Helper()
	d := e.deployment(id, a, deploy.OnCommit)
	d.ChainID = "chain"
	c := &deploy.Chain{ID: "chain", Blocks: []deploy.ChainBlock{{}}}
	for _, apps := range blocks {
		var b deploy.ChainBlock
		for _, a := range apps {
			b.Nodes = append(b.Nodes, deploy.ChainNode{ApplicationID: a.ID, ApplicationName: a.Name, CommandID: "ask-" + a.Name})
		}
		c.Blocks = append(c.Blocks, b)
	}
	created, err := e.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d, Chain: c})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// answer creates the deployment that a chain's command requests.
func (e *env) answer(t testing.TB, command string, a deploy.Application, block int) deploy.Deployment {
	t.Helper()
	d := e.deployment("by-"+command, a, deploy.OnChain)
	d.ChainID, d.ChainBlock = "chain", block
	created, err := e.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d, CommandID: command})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func testChain(t *testing.T, e *env) {
	ctx, first, b, c, d := t.Context(), e.putApp(t, "first"), e.putApp(t, "b"), e.putApp(t, "c"), e.putApp(t, "d")
	feed := e.store.Watch(deploy.TopicChain)
	defer feed.Close()
	announced := func(apps ...deploy.Application) {
		t.Helper()
		var want []deploy.Change
		for _, a := range apps {
			want = append(want, deploy.Change{Topic: deploy.TopicChain, ID: "chain", ApplicationID: a.ID})
		}
		if diff := cmp.Diff(want, feed.Take()); diff != "" {
			t.Errorf("announced (-want +got):\n%s", diff)
		}
	}
	created := e.beginChain(t, "d1", first, []deploy.Application{b, c}, nil, []deploy.Application{d})
	announced(first)
	commands, err := e.store.OpenCommands(ctx, deploy.CommandChainSync)
	if err != nil || len(commands) != 3 {
		t.Fatalf("open commands: %v, %v", commands, err)
	}
	want := deploy.Command{ID: "ask-d", Type: deploy.CommandChainSync, ApplicationID: d.ID, Commander: "chain",
		Strategy: deploy.StrategyAuto, ChainID: "chain", ChainBlock: 3, Status: deploy.CommandOpen}
	i := slices.IndexFunc(commands, func(c deploy.Command) bool { return c.ApplicationID == d.ID })
	if diff := cmp.Diff(want, commands[i], cmpopts.IgnoreFields(deploy.Command{}, "CreatedAt", "UpdatedAt")); diff != "" {
		t.Errorf("command (-want +got):\n%s", diff)
	}
	e.wantChain(t, "PENDING", "first PENDING", "b PENDING, c PENDING", "", "d PENDING")

	e.run(t, "d1")
	e.succeed(t, "d1")
	announced(first)
	e.answer(t, "ask-b", b, 1)
	announced(b)
	e.run(t, "by-ask-b")
	e.wantChain(t, "RUNNING", "first SUCCESS", "b RUNNING, c PENDING", "", "d PENDING")
	if got := feed.Take(); got != nil {
		t.Errorf("a start was announced: %v", got)
	}
	if err := e.store.FinishCommand(ctx, "ask-c", deploy.CommandFailed, map[string]string{deploy.MetaReason: "onChain is disabled"}); err != nil {
		t.Fatal(err)
	}
	announced(c)
	if err := e.store.FinishCommand(ctx, "ask-d", deploy.CommandTimeout, nil); err != nil {
		t.Fatal(err)
	}
	announced(d)
	chain := e.wantChain(t, "FAILURE", "first SUCCESS", "b RUNNING, c FAILURE", "", "d FAILURE")
	if !chain.CreatedAt.Equal(created.CreatedAt) {
		t.Errorf("created at %s, its first deployment at %s", chain.CreatedAt, created.CreatedAt)
	}
	node := chain.Blocks[1].Nodes[1]
	if node.Reason != "onChain is disabled" || node.CompletedAt.IsZero() || node.DeploymentID != "" {
		t.Errorf("refused node: %+v", node)
	}
	if reason := chain.Blocks[3].Nodes[0].Reason; reason != "The command that asks for the deployment was not answered in time" {
		t.Errorf("the unanswered node says %q", reason)
	}
	ok := e.succeed(t, "by-ask-b")
	announced(b)
	node = e.wantChain(t, "FAILURE", "first SUCCESS", "b SUCCESS, c FAILURE", "", "d FAILURE").Blocks[1].Nodes[0]
	wantNode := deploy.ChainNode{ApplicationID: b.ID, ApplicationName: "b", CommandID: "ask-b", DeploymentID: ok.ID, Status: deploy.Success,
		Reason: ok.StatusReason, CompletedAt: ok.CompletedAt}
	if diff := cmp.Diff(wantNode, node); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
}

// wantChain fails the test unless the chain "chain" has the status and its nodes have the
// given states, block by block.
func (e *env) wantChain(t testing.TB, status deploy.Status, blocks ...string) deploy.Chain {
	t.Helper()
	c, err := e.store.Chain(t.Context(), "chain")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range c.Blocks {
		text := ""
		for i, n := range b.Nodes {
			if i > 0 {
				text += ", "
			}
			text += n.ApplicationName + " " + string(n.Status)
		}
		got = append(got, text)
	}
	if diff := cmp.Diff(blocks, got); diff != "" || c.Status() != status {
		t.Errorf("chain %s, want %s (-want +got):\n%s", c.Status(), status, diff)
	}
	return c
}

// testChainRefusals: a chain is stored completely or not at all.
func testChainRefusals(t *testing.T, e *env) {
	ctx, a, b := t.Context(), e.putApp(t, "a"), e.putApp(t, "b")
	_, err := e.store.Chain(ctx, "nobody")
	wantKind(t, err, deploy.NotFound, "no deployment chain nobody")
	e.beginChain(t, "d1", a, []deploy.Application{b})
	create := func(id, chainID string, c deploy.Chain) error {
		d := e.deployment(id, a, deploy.OnCommit)
		d.ChainID = chainID
		_, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d, Chain: &c})
		return err
	}
	later := deploy.ChainBlock{Nodes: []deploy.ChainNode{{ApplicationID: b.ID, CommandID: "new"}, {ApplicationID: b.ID, CommandID: "ask-b"}}}
	wantKind(t, create("d2", "chain", deploy.Chain{ID: "chain", Blocks: []deploy.ChainBlock{{}}}), deploy.Exists, "deployment chain chain exists already")
	wantKind(t, create("d3", "c3", deploy.Chain{ID: "c3", Blocks: []deploy.ChainBlock{{}, later}}), deploy.Exists, "command ask-b exists already")
	wantKind(t, create("d4", "c4", deploy.Chain{ID: "c5", Blocks: []deploy.ChainBlock{{}}}), deploy.Internal, `cannot begin the chain "c5"`)
	wantKind(t, create("d5", "c5", deploy.Chain{ID: "c5"}), deploy.Internal, "of 0 blocks")
	if diff := cmp.Diff([]string{"d1"}, e.deploymentPages(t, store.DeploymentQuery{})); diff != "" {
		t.Errorf("a refused deployment was written (-want +got):\n%s", diff)
	}
	if open, err := e.store.OpenCommands(ctx); err != nil || len(open) != 1 {
		t.Errorf("open commands: %v, %v", open, err)
	}
	_, err = e.store.Chain(ctx, "c3")
	wantKind(t, err, deploy.NotFound, "c3")
}
