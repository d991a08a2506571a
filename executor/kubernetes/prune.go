package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	cluster "github.com/c785c783/piped/piped/kubernetes"
)

// prune deletes what the application applied earlier and no longer declares, if
// it asks for that. Without prune the leftovers stay in the inventory.
func prune(ctx context.Context, w *work) error {
	if !w.set.Spec.Prune {
		return nil
	}
	deletes, held, err := cluster.PlanPrune(cluster.PruneRequest{Inventory: w.before, Applied: w.items, Kinds: w.set.Spec.PruneKinds})
	for _, item := range held {
		w.log.Infof("%s is no longer in Git; its kind is deleted only if spec.pruneKinds names it", item.Object)
	}
	if err != nil || len(deletes) == 0 {
		return err
	}
	return w.delete(ctx, deletes)
}

// delete deletes objects and takes them out of the inventory.
func (w *work) delete(ctx context.Context, items []deploy.InventoryItem) error {
	if err := w.cluster.Delete(ctx, items, w.log); err != nil {
		return err
	}
	refs := make([]deploy.ObjectRef, len(items))
	for i, item := range items {
		refs[i] = item.Object
	}
	return w.Store.DeleteInventory(ctx, w.run.Application.ID, w.cluster.Name(), refs...)
}
