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
	kept := map[string]bool{}
	for _, item := range w.items {
		kept[item.Object.Key()] = true
	}
	inventory, err := w.Store.Inventory(ctx, w.run.Application.ID)
	if err != nil {
		return err
	}
	var created []deploy.InventoryItem
	for _, item := range inventory {
		if item.CreatedBy == w.run.Deployment.ID && !kept[item.Object.Key()] {
			created = append(created, item)
		}
	}
	if len(created) == 0 {
		return nil
	}
	return w.delete(ctx, created)
}
