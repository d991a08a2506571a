package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// Rollback runs ROLLBACK: it applies the set of the last success again, waits
// for its rollouts, and deletes what the failed deployment created.
func (e *Executor) Rollback() Stage {
	return e.stage(openCluster, recordCreated, restore, sayNoHooks, leaveForbidden, putBack, removeCreated)
}

// recordCreated completes the inventory with the objects that the failed stages
// created without coming to know it: they were stopped, or the agent was killed,
// between the request and its answer.
func recordCreated(ctx context.Context, w *work) error {
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	known := keys(inventory)
	var unknown []deploy.ObjectRef
	for _, stage := range w.run.Deployment.ForwardStages() {
		announced, err := announcedBy(stage)
		if err != nil {
			return err
		}
		for _, ref := range announced {
			if !known[ref.Key()] {
				unknown = append(unknown, ref)
			}
		}
	}
	created, err := w.cluster.Owned(ctx, w.run.Application.ID, w.PipedID, unknown)
	if err != nil {
		return err
	}
	for i := range created {
		created[i].DeploymentID, created[i].CreatedBy = w.run.Deployment.ID, w.run.Deployment.ID
	}
	return w.Store.PutInventory(ctx, created...)
}

// removeCreated deletes the objects that exist only because of the failed
// deployment. Objects it merely changed are in the set and were put back.
func removeCreated(ctx context.Context, w *work) error {
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	created := createdBy(w.run.Deployment.ID, inventory, w.items)
	if len(created) == 0 {
		return nil
	}
	return w.delete(ctx, created)
}

// createdBy returns the items of the inventory that the deployment created and
// that are not among the kept ones.
func createdBy(deployment string, inventory, kept []deploy.InventoryItem) []deploy.InventoryItem {
	keep := keys(kept)
	var out []deploy.InventoryItem
	for _, item := range inventory {
		if item.CreatedBy == deployment && !keep[item.Object.Key()] {
			out = append(out, item)
		}
	}
	return out
}

// keys returns the keys of the items' objects.
func keys(items []deploy.InventoryItem) map[string]bool {
	out := map[string]bool{}
	for _, item := range items {
		out[item.Object.Key()] = true
	}
	return out
}
