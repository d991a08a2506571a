package storetest

import (
	"context"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
)

// snapshot contains everything that a store contains about one application.
type snapshot struct {
	Application deploy.Application
	Deployments []deploy.Deployment
	Transitions []deploy.Transition
	Commands    []deploy.Command
	Logs        map[string][]deploy.LogBlock
	Inventory   []deploy.InventoryItem
	Rollouts    []deploy.Rollout
	Keys        []deploy.APIKey
	Events      []deploy.Event
	Set         deploy.AppliedSet
	Chain       deploy.Chain
	Candidates  []deploy.Candidate
}

func takeSnapshot(t *testing.T, s *store.Store, appID, deploymentID string) (out snapshot) {
	t.Helper()
	ctx := context.Background()
	for _, read := range []func() error{
		func() (err error) { out.Application, err = s.Application(ctx, appID); return err },
		func() (err error) { out.Deployments, err = s.DeploymentsIn(ctx); return err },
		func() (err error) { out.Transitions, err = s.Transitions(ctx, deploymentID); return err },
		func() (err error) { out.Commands, err = s.OpenCommands(ctx); return err },
		func() (err error) { out.Logs, err = s.StageLogs(ctx, deploymentID); return err },
		func() (err error) { out.Inventory, err = s.Inventory(ctx, appID); return err },
		func() (err error) { out.Rollouts, err = s.Rollouts(ctx, store.RolloutQuery{}); return err },
		func() (err error) { out.Keys, err = s.APIKeys(ctx); return err },
		func() (err error) { out.Events, err = s.Events(ctx, 0, 0); return err },
		func() (err error) { out.Set, err = s.AppliedSet(ctx, deploymentID); return err },
		func() (err error) { out.Chain, err = s.Chain(ctx, "chain"); return err },
		func() (err error) { out.Candidates, err = s.Candidates(ctx); return err },
	} {
		if err := read(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func testReopen(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.beginChain(t, "d1", a, []deploy.Application{e.putApp(t, "next")})
	e.run(t, "d1")
	ref := deploy.ObjectRef{Kind: "Service", Version: "v1", Namespace: "shop", Name: "web"}
	for _, write := range []func() error{
		func() error {
			_, err := e.store.CreateCommand(ctx, deploy.Command{ID: "c1", Type: deploy.CommandSync})
			return err
		},
		func() error {
			return e.store.AppendStageLogs(ctx, []deploy.LogBlock{{DeploymentID: "d1", StageID: "sync", Severity: deploy.SeverityInfo, Log: "hello", At: e.clock.now()}})
		},
		func() error {
			return e.store.PutInventory(ctx, deploy.InventoryItem{ApplicationID: a.ID, Cluster: "c", Object: ref})
		},
		func() error {
			_, err := e.store.SaveRollout(ctx, deploy.Rollout{ID: "r1", DeploymentID: "d1", ApplicationID: a.ID, Workload: ref, Phase: deploy.RolloutApplied})
			return err
		},
		func() error {
			return e.store.CreateAPIKey(ctx, deploy.APIKey{ID: "k1", Role: deploy.ReadOnly, Hash: []byte{1}})
		},
		func() error {
			_, err := e.store.SetCandidates(ctx, "repo", []deploy.Candidate{{Git: a.Git, State: deploy.CandidateUnregistered}})
			return err
		},
		func() error {
			_, err := e.store.SetNotice(ctx, a.ID, "stopped", nil)
			return err
		},
		func() error {
			return e.store.SaveAppliedSet(ctx, deploy.AppliedSet{ApplicationID: a.ID, DeploymentID: "d1", Commit: "c", Objects: []byte("[]")})
		},
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	before := takeSnapshot(t, e.store, a.ID, "d1")
	again := Open(t, e.dsn, e.clock.now)
	if diff := cmp.Diff(before, takeSnapshot(t, again, a.ID, "d1")); diff != "" {
		t.Errorf("after opening again (-before +after):\n%s", diff)
	}
	if len(before.Transitions) == 0 || len(before.Events) == 0 || len(before.Deployments[0].Stages) != 2 || len(before.Chain.Blocks) != 2 {
		t.Errorf("the snapshot is poor: %+v", before)
	}
	// Event numbers continue after the last one.
	if _, err := again.UpdateDeployment(ctx, "d1", func(d *deploy.Deployment) error { return d.StartStage("sync", e.clock.now()) }); err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
