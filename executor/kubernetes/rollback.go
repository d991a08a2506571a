package kubernetes

import (
	"context"
	"errors"
	"slices"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// Rollback runs ROLLBACK: it applies the set of the last success again, waits for its
// rollouts, and deletes the variants and the objects that the failed deployment created.
// A first deployment has no success to roll back to: its routes are restored as they are
// in Git, its variants are deleted, and its other objects stay for inspection.
func (e *Executor) Rollback() Stage {
	back := e.stage(openCluster, recordCreated, restoreSet, logNoHooks, dropForbidden, rollBack)
	first := e.stage(openCluster, recordCreated, routeAsGit, removeAllVariants)
	return func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
		if run.Deployment.RunningCommit == "" {
			return first(ctx, run)
		}
		return back(ctx, run)
	}
}

// recordCreated adds objects to the inventory that the failed stages created without
// recording them, because the stage was stopped or the agent was killed between the request
// and its response.
func recordCreated(ctx context.Context, w *work) error {
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	known := keys(inventory)
	for _, stage := range w.run.Deployment.ForwardStages() {
		announced, err := creating(stage)
		if err != nil {
			return err
		}
		unknown := slices.DeleteFunc(announced, func(ref deploy.ObjectRef) bool { return known[ref.Key()] })
		created, err := w.cluster.Owned(ctx, w.run.Application.ID, w.PipedID, unknown)
		if err != nil {
			return err
		}
		for i := range created {
			created[i].DeploymentID, created[i].CreatedBy = w.run.Deployment.ID, w.run.Deployment.ID
			created[i].Variant = string(variantOf(stage))
		}
		if err := w.Store.PutInventory(ctx, created...); err != nil {
			return err
		}
	}
	return nil
}

// rollBack restores the set and removes the variants and the created objects. The variants
// have no traffic by then, so they are removed even if the primary could not be restored.
func rollBack(ctx context.Context, w *work) error {
	if err := w.restoreRouting(ctx); err != nil {
		return err
	}
	err := w.restoreObjects(ctx, w.set.Objects)
	switch {
	case err == nil:
		return errors.Join(removeAllVariants(ctx, w), removeCreated(ctx, w))
	case ctx.Err() != nil:
		return err
	}
	w.log.Errorf("The last success could not be restored: %v", err)
	return errors.Join(err, removeAllVariants(ctx, w))
}

// restoreRouting restores the routes if the deployment has shared traffic: the primary then
// gets all of it. Unless trafficFirst returns true, it restores the other objects before
// the routes.
func (w *work) restoreRouting(ctx context.Context) error {
	shared, found, _, err := w.currentTraffic(ctx)
	if err != nil || !found {
		return err
	}
	routes, err := shared.Routing.Routes(w.set.Objects)
	if err != nil || len(routes) == len(w.set.Objects) {
		return nil // the last success had no routes, or nothing else
	}
	trafficFirst, why, err := w.trafficFirst(ctx)
	if err != nil {
		return err
	}
	if trafficFirst {
		w.log.Infof("The traffic goes back first: %s", why)
	} else {
		w.log.Infof("The primary goes back before the traffic does: %s", why)
		if err := w.restoreObjects(ctx, without(w.set.Objects, routes)); err != nil {
			return err
		}
	}
	if err := w.applyObjects(ctx, routes); err != nil {
		return err
	}
	w.log.Successf("The routes are as in the last success: all traffic goes to the primary")
	return nil
}

// trafficFirst decides whether the routes are restored before the primary, and why: if the
// deployment has not changed the primary, or if the pods of a variant fail.
func (w *work) trafficFirst(ctx context.Context) (first bool, why string, err error) {
	rollouts, err := w.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: w.run.Deployment.ID, Cluster: w.cluster.Name()})
	if err != nil {
		return false, "", err
	}
	changed, failed := "", ""
	for _, s := range w.run.Deployment.ForwardStages() {
		for _, r := range rollouts {
			switch {
			case r.StageID != s.ID:
			case variantOf(s) == kubernetes.Primary && r.Phase != deploy.RolloutNoRollout:
				changed = r.Workload.String()
			case variantOf(s) != kubernetes.Primary && (r.Phase == deploy.RolloutFailed || r.Phase == deploy.RolloutTimedOut):
				failed = r.Workload.String()
			}
		}
	}
	switch {
	case changed == "":
		return true, "this deployment has not changed the primary", nil
	case failed != "":
		return true, "the pods of " + failed + " fail", nil
	}
	return false, "this deployment has changed " + changed, nil
}

// without returns the objects that are not among others.
func without(objects, others []manifest.Object) []manifest.Object {
	out := refKeys(objectRefs(others))
	return slices.DeleteFunc(slices.Clone(objects), func(o manifest.Object) bool { return out[manifest.Ref(o.Unstructured).Key()] })
}

// removeCreated deletes the objects that exist only because of the failed deployment. The
// objects that it only changed are in the set, which is restored.
func removeCreated(ctx context.Context, w *work) error {
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	created := createdBy(w.run.Deployment.ID, ofPrimary(inventory), w.items)
	if len(created) == 0 {
		return nil
	}
	return w.delete(ctx, created)
}

// createdBy returns the items of the inventory that the deployment created, without the
// items in stay.
func createdBy(deployment string, inventory, stay []deploy.InventoryItem) []deploy.InventoryItem {
	stays := keys(stay)
	return slices.DeleteFunc(slices.Clone(inventory), func(i deploy.InventoryItem) bool {
		return i.CreatedBy != deployment || stays[i.Object.Key()]
	})
}

// objectRefs returns the references of objects, in their order.
func objectRefs(objects []manifest.Object) []deploy.ObjectRef {
	refs := make([]deploy.ObjectRef, len(objects))
	for i, o := range objects {
		refs[i] = manifest.Ref(o.Unstructured)
	}
	return refs
}

// itemRefs returns the references of the items' objects, in their order.
func itemRefs(items []deploy.InventoryItem) []deploy.ObjectRef {
	refs := make([]deploy.ObjectRef, len(items))
	for i, item := range items {
		refs[i] = item.Object
	}
	return refs
}

// keys returns the keys of the items' objects.
func keys(items []deploy.InventoryItem) map[string]bool { return refKeys(itemRefs(items)) }

// refKeys returns the keys of the references as a set.
func refKeys(refs []deploy.ObjectRef) map[string]bool {
	out := make(map[string]bool, len(refs))
	for _, ref := range refs {
		out[ref.Key()] = true
	}
	return out
}
