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

// Rollback runs ROLLBACK: it applies the set of the last success again, waits for
// its rollouts, and deletes the variants and what the failed deployment created.
// After a first deployment only the variants are deleted, and what routes traffic to
// them is as in Git: there is nothing to go back to, and what of the application
// itself is there stays to be looked at.
func (e *Executor) Rollback() Stage {
	back := e.stage(openCluster, recordCreated, restore, sayNoHooks, leaveForbidden, goBack)
	first := e.stage(openCluster, recordCreated, routeAsGit, removeRest)
	return func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
		if run.Deployment.RunningCommit == "" {
			return first(ctx, run)
		}
		return back(ctx, run)
	}
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
	for _, stage := range w.run.Deployment.ForwardStages() {
		announced, err := announcedBy(stage)
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

// goBack puts the set back, traffic and primary in the order that serves best, and
// removes the rest. Variants without traffic are removed even if the primary has not
// come back: they are of no use.
func goBack(ctx context.Context, w *work) error {
	if err := w.goBackInTurn(ctx); err != nil {
		return err
	}
	if err := putBack(ctx, w); err != nil {
		if ctx.Err() != nil {
			return err
		}
		w.log.Errorf("The last success has not come back: %v", err)
		return errors.Join(err, w.removeVariants(ctx, kubernetes.Canary, kubernetes.Baseline))
	}
	return removeRest(ctx, w)
}

// goBackInTurn puts back what routes traffic, and before that all the rest if that
// comes first. When it returns nil, all traffic goes to the primary.
func (w *work) goBackInTurn(ctx context.Context) error {
	shared, found, _, err := w.sharing(ctx)
	if err != nil || !found {
		return err
	}
	all := w.set.Objects
	routes, err := shared.Routing.Routes(all)
	if err != nil || len(routes) == len(all) {
		return nil // there were none then, or nothing else
	}
	before, why, err := w.trafficFirst(ctx)
	if err != nil {
		return err
	}
	defer func() { w.set.Objects = all }()
	if before {
		w.log.Infof("The traffic goes back first: %s", why)
	} else {
		w.log.Infof("The primary goes back before the traffic does: %s", why)
		w.set.Objects = without(all, routes)
		if err := putBack(ctx, w); err != nil {
			return err
		}
	}
	w.set.Objects = routes
	if err := apply(ctx, w); err != nil {
		return err
	}
	w.log.Successf("What routes the traffic is as it was: all of it goes to the primary")
	return nil
}

// trafficFirst decides whether the traffic goes back before the primary does, and
// why.
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
	return slices.DeleteFunc(slices.Clone(objects), func(o manifest.Object) bool {
		return slices.ContainsFunc(others, func(other manifest.Object) bool {
			return manifest.Ref(other.Unstructured) == manifest.Ref(o.Unstructured)
		})
	})
}

// removeRest deletes the variants, and the objects that exist only because of the
// failed deployment. What fails keeps nothing else from being deleted.
func removeRest(ctx context.Context, w *work) error {
	err := w.removeVariants(ctx, kubernetes.Canary, kubernetes.Baseline)
	if w.run.Deployment.RunningCommit == "" {
		return err
	}
	return errors.Join(err, removeCreated(ctx, w))
}

// removeCreated deletes the objects that exist only because of the failed
// deployment. Objects it merely changed are in the set and were put back.
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
