package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// Rollback runs ROLLBACK: it applies the set of the last success again, waits
// for its rollouts, and deletes what the failed deployment created.
func (e *Executor) Rollback() Stage {
	return e.stage(openCluster, restore, apply, await, removeCreated)
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
	keep := map[string]bool{}
	for _, item := range kept {
		keep[item.Object.Key()] = true
	}
	var out []deploy.InventoryItem
	for _, item := range inventory {
		if item.CreatedBy == deployment && !keep[item.Object.Key()] {
			out = append(out, item)
		}
	}
	return out
}
