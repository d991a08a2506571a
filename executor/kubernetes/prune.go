package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
)

// limitPrune fails a stage that would delete too many objects, before its first write.
func limitPrune(ctx context.Context, w *work) error {
	if !w.set.Spec.Prune {
		return nil
	}
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	return w.refusePrune(ctx, apply.CheckPrune(w.pruneRequest(inventory), objectRefs(w.set.Objects)), w.run.First())
}

// pruneRequest returns a request for the items of the inventory that the tenancy rules let
// the application delete, without those of the canary and the baseline, which other stages
// remove.
func (w *work) pruneRequest(inventory []deploy.InventoryItem) apply.PruneRequest {
	inventory = w.permitted(ofPrimary(inventory), func(string) {})
	permitted := w.run.Deployment.Trigger.PermitPrune
	if w.run.Deployment.Git.PullRequest != 0 { // a pull request may shrink its preview
		permitted = itemRefs(inventory)
	}
	return apply.PruneRequest{Inventory: inventory, Kinds: w.set.Spec.PruneKinds, Permitted: permitted}
}

// refusePrune converts an *apply.TooMany into a stageError and records the objects, so that
// a user can permit their deletion. It returns other errors unchanged.
func (w *work) refusePrune(ctx context.Context, err error, noRollback bool) error {
	var many *apply.TooMany
	if !errors.As(err, &many) {
		return err
	}
	if err := saveMetadata(ctx, w.run, deploy.MetaPruneRefused, itemRefs(many.Deletes)); err != nil {
		return fmt.Errorf("record what the stage would delete: %w", err)
	}
	return &stageError{reason: err.Error(), noRollback: noRollback}
}

// prune deletes the objects that the application applied earlier and no longer declares,
// if prune is on. All rollouts have ended by then, so that the successor of a renamed or
// moved object runs. Objects that stay are logged and stay in the inventory.
func prune(ctx context.Context, w *work) error {
	if err := w.logElsewhere(ctx); err != nil {
		return err
	}
	request := w.pruneRequest(w.before)
	request.Applied = w.items
	w.logForbidden()
	if !w.set.Spec.Prune {
		if left, held := apply.Leftovers(request); len(left)+len(held) > 0 {
			w.log.Infof("No longer in Git, and left alone because prune is off: %s", list(append(left, held...)))
		}
		return nil
	}
	deletes, held, err := apply.PlanPrune(request)
	for _, item := range held {
		w.log.Infof("%s is no longer in Git; its kind is deleted only if spec.pruneKinds names it", item.Object)
	}
	if err != nil {
		return w.refusePrune(ctx, err, false)
	}
	if deletes, err = w.keepUsed(ctx, deletes); err != nil || len(deletes) == 0 {
		return err
	}
	return w.delete(ctx, deletes)
}

// logElsewhere lists the objects on clusters that the application was moved away from.
func (w *work) logElsewhere(ctx context.Context) error {
	all, err := w.Store.Inventory(ctx, w.run.Application.ID)
	if err != nil {
		return err
	}
	clusters := byCluster(all)
	delete(clusters, w.cluster.Name())
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		w.log.Infof("The application was moved: its objects on platform provider %s are left there; delete them by hand if they are not needed: %s", name, list(clusters[name]))
	}
	return nil
}

// keepUsed returns deletes without the objects that a retained revision of a workload needs
// to start pods; later syncs try to delete these again. If the revisions cannot be read, it
// also omits every object that a revision may use.
func (w *work) keepUsed(ctx context.Context, deletes []deploy.InventoryItem) ([]deploy.InventoryItem, error) {
	going, owners := keys(deletes), map[string]bool{}
	for _, item := range slices.Concat(w.before, w.items) {
		if !going[item.Object.Key()] {
			owners[item.UID] = true
		}
	}
	used, err := w.cluster.InUse(ctx, deletes, owners)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		w.log.Infof("Cannot read which ConfigMaps and Secrets earlier revisions use, so all that may be used stay: %v", err)
	}
	return slices.DeleteFunc(deletes, func(item deploy.InventoryItem) bool {
		by := used[item.Object.Key()]
		if by != "" {
			w.log.Infof("%s is no longer in Git; it stays while %s uses it", item.Object, by)
		}
		return by != "" || err != nil && apply.Generated(item.Object)
	}), nil
}

// delete deletes objects. Those that are gone leave the inventory; the next prune tries the
// others again. The error names the objects that could not be deleted.
func (w *work) delete(ctx context.Context, items []deploy.InventoryItem) error {
	gone, err := w.cluster.Delete(ctx, w.PipedID, items, w.log)
	return errors.Join(err, w.forget(ctx, gone))
}

// forget removes deleted objects from the inventory, even if the stage was stopped
// meanwhile.
func (w *work) forget(ctx context.Context, gone []deploy.InventoryItem) error {
	return w.Store.DeleteInventory(context.WithoutCancel(ctx), w.run.Application.ID, w.cluster.Name(), itemRefs(gone)...)
}

// list joins the names of objects for a message, sorted.
func list(items []deploy.InventoryItem) string {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = item.Object.String()
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
