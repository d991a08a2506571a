package opentofu

import (
	"context"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/opentofu"
)

// conclude reads the state after an apply and stores which resources the application has now, for
// the deployment whose commit they are of: after a rollback, the last successful one. The apply is
// done, so a state that cannot be read is no failure: Run reads it later.
func (e *Executor) conclude(ctx context.Context, run deploy.StageRun, s *session) error {
	defer e.recording(run.Deployment.ApplicationID)()
	d, of, commit := run.Deployment, run.Deployment.ID, run.Deployment.Trigger.Commit.Hash
	if run.Stage.Rollback {
		d.Git, of, commit = d.RunningGit(), d.RunningDeploymentID, d.RunningCommit
	}
	kept, err := e.record(ctx, of)
	if err != nil {
		return err
	}
	if kept.Plan != nil {
		kept.Plan.Data = nil
	}
	state, err := s.State(ctx)
	switch {
	case err == nil:
		kept.State, kept.Unread = redacted(state, s.redactor.Text), false
		if err := e.putInventory(ctx, d, *kept.State); err != nil {
			return err
		}
	case ctx.Err() != nil:
		return err
	default:
		err = s.redactor.Error(err)
		run.Log.Infof("Warning: the state cannot be read after the apply, so the application shows the resources of before until it can be: %v", err)
		e.Logger.Warn("cannot read the state after an apply; trying again", "app", d.ApplicationName, "deployment", d.ID, "error", err)
		if kept.State, err = e.stateBefore(ctx, d, kept); err != nil {
			return err
		}
		kept.Unread = true
	}
	err = e.save(ctx, deploy.AppliedSet{ApplicationID: d.ApplicationID, DeploymentID: of, Commit: commit}, kept)
	if err != nil && (!run.Stage.Rollback || !deploy.IsKind(err, deploy.NotFound)) { // it was removed by retention
		return err
	}
	if !kept.Unread {
		run.Log.Successf("The state has %d resources and %d outputs", len(state.Resources), len(state.Outputs))
	}
	e.Applied(d.ApplicationID)
	return nil
}

// stateBefore returns the last known state of the application of a deployment.
func (e *Executor) stateBefore(ctx context.Context, d deploy.Deployment, kept Record) (*opentofu.State, error) {
	if kept.State != nil {
		return kept.State, nil
	}
	before, err := e.record(ctx, d.RunningDeploymentID)
	if err != nil {
		return nil, err
	}
	if before.State != nil {
		return before.State, nil
	}
	return &opentofu.State{}, nil
}

// recording makes sure that the states of an application are read and stored one after the other,
// so that none is replaced by an older one. The caller calls the result when it has stored it.
func (e *Executor) recording(applicationID string) (done func()) {
	lock, _ := e.recordings.LoadOrStore(applicationID, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

// redacted returns a state without the secrets that were decrypted for it.
func redacted(s opentofu.State, redact func(string) string) *opentofu.State {
	for i := range s.Outputs {
		s.Outputs[i].Value = redact(s.Outputs[i].Value)
	}
	return &s
}

// AppliedMark is the mark of a resource in the inventory: nothing has changed it since the apply.
const AppliedMark = "applied"

// putInventory records the resources of a state in place of those of before.
func (e *Executor) putInventory(ctx context.Context, d deploy.Deployment, state opentofu.State) error {
	before, err := e.Store.Inventory(ctx, d.ApplicationID)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	var items []deploy.InventoryItem
	for _, r := range state.Resources {
		ref := Ref(d.Git, r.Resource)
		now[ref.Key()] = true
		items = append(items, deploy.InventoryItem{
			ApplicationID: d.ApplicationID, Cluster: d.Provider, Variant: "primary", Object: ref, UID: ref.Key(), OwnedHash: AppliedMark, Mark: AppliedMark,
			DeploymentID: d.ID, UpdatedAt: e.Now(),
		})
	}
	if err := e.Store.PutInventory(ctx, items...); err != nil {
		return err
	}
	for _, item := range before {
		if !now[item.Object.Key()] {
			if err := e.Store.DeleteInventory(ctx, d.ApplicationID, item.Cluster, item.Object); err != nil {
				return err
			}
		}
	}
	return nil
}
