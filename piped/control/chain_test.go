package control_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// chainOf stores a chain of three blocks: web (deployment d1), then api, then docs, with open
// commands.
func chainOf(t *testing.T, agent *controltest.Agent) {
	t.Helper()
	web, api, docs := agent.Application("web", nil), agent.Application("api", nil), agent.Application("docs", nil)
	node := func(a deploy.Application, command string) deploy.ChainBlock {
		return deploy.ChainBlock{Nodes: []deploy.ChainNode{{ApplicationID: a.ID, ApplicationName: a.Name, CommandID: command}}}
	}
	_, err := agent.Store.CreateDeployment(t.Context(), store.NewDeployment{
		Deployment: deploy.Deployment{
			ID: "d1", ApplicationID: web.ID, ApplicationName: web.Name, Git: web.Git, ChainID: "chain-1",
			Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: controltest.Epoch}, Status: deploy.Pending,
		},
		Chain: &deploy.Chain{ID: "chain-1", Blocks: []deploy.ChainBlock{node(web, ""), node(api, "c-api"), node(docs, "c-docs")}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestGetDeploymentChain(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	chainOf(t, agent)
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	ctx := as(t, agent.ReadOnly)
	get := func() *controlv1.DeploymentChain {
		t.Helper()
		resp, err := client.GetDeploymentChain(ctx, &controlv1.GetDeploymentChainRequest{DeploymentChainId: "chain-1"})
		if err != nil {
			t.Fatal(err)
		}
		return resp.Chain
	}
	const (
		pending, running   = controlv1.ChainState_CHAIN_STATE_PENDING, controlv1.ChainState_CHAIN_STATE_RUNNING
		succeeded, failed  = controlv1.ChainState_CHAIN_STATE_SUCCESS, controlv1.ChainState_CHAIN_STATE_FAILURE
		cancelled, waiting = controlv1.ChainState_CHAIN_STATE_CANCELLED, modelv1.DeploymentStatus_DEPLOYMENT_PENDING
	)
	check := func(when string, c *controlv1.DeploymentChain, whole controlv1.ChainState, blocks ...controlv1.ChainState) {
		t.Helper()
		if c.State != whole || len(c.Blocks) != len(blocks) {
			t.Fatalf("%s: the chain is %v", when, c)
		}
		for i, want := range blocks {
			if c.Blocks[i].State != want {
				t.Errorf("%s: block %d is %s, want %s", when, i, c.Blocks[i].State, want)
			}
		}
		if ended := whole == failed || whole == succeeded; (c.CompletedAtMs != 0) != ended {
			t.Errorf("%s: completed at %d", when, c.CompletedAtMs)
		}
	}

	c := get()
	check("before it runs", c, pending, pending, pending, pending)
	if m := c.Blocks[1].Members[0]; m.ApplicationName != "api" || m.CommandId != "c-api" || m.DeploymentId != "" || m.Status != waiting {
		t.Errorf("the member that waits is %v", m)
	}
	agent.Move("d1", deploy.Success, "")
	check("after its first block", get(), running, succeeded, pending, pending)
	agent.Tick(time.Second)
	err := agent.Store.FinishCommand(t.Context(), "c-api", deploy.CommandFailed, map[string]string{deploy.MetaReason: "onChain is disabled"})
	if err != nil {
		t.Fatal(err)
	}
	c = get()
	check("after a refusal", c, failed, succeeded, failed, cancelled)
	if m := c.Blocks[1].Members[0]; m.Reason != "onChain is disabled" {
		t.Errorf("the refused member is %v", m)
	}

	_, err = client.GetDeploymentChain(ctx, &controlv1.GetDeploymentChainRequest{DeploymentChainId: "none"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("an unknown chain: %v", err)
	}
	_, err = client.GetDeploymentChain(ctx, &controlv1.GetDeploymentChainRequest{})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("no chain named: %v", err)
	}
}
