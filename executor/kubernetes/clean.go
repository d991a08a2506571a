package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// CleanCanary runs K8S_CANARY_CLEAN: it deletes all canary objects of the application,
// including those of earlier deployments.
func (e *Executor) CleanCanary() Stage { return e.clean(kubernetes.Canary) }

// CleanBaseline runs K8S_BASELINE_CLEAN, which does the same for the baseline.
func (e *Executor) CleanBaseline() Stage { return e.clean(kubernetes.Baseline) }

func (e *Executor) clean(v kubernetes.Variant) Stage {
	return e.stage(
		admit, openCluster,
		func(ctx context.Context, w *work) error { return w.refuseTraffic(ctx, v) },
		func(ctx context.Context, w *work) error { return w.removeVariants(ctx, v) },
	)
}

// refuseTraffic fails the stage if the variant gets traffic.
func (w *work) refuseTraffic(ctx context.Context, v kubernetes.Variant) error {
	shared, found, _, err := w.currentTraffic(ctx)
	if err != nil {
		return err
	}
	if share := shared.Shares.Of(v); found && share > 0 {
		return &stageError{reason: fmt.Sprintf("%d%% of the traffic still goes to the %s: route it away with %s before the %s is removed", share, v, kubernetes.StageTrafficRouting, v)}
	}
	return nil
}

// removeAllVariants removes the canary and the baseline.
func removeAllVariants(ctx context.Context, w *work) error {
	return w.removeVariants(ctx, kubernetes.Canary, kubernetes.Baseline)
}

// removeVariants deletes the objects of variants in the inventory: first the workloads and
// then, when their pods are gone, the other objects. Before the deletion it waits for
// requests in progress (drain). Objects of the stage's set stay. An object that cannot be
// deleted stays in the inventory and is named in the error.
func (w *work) removeVariants(ctx context.Context, variants ...kubernetes.Variant) error {
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	wanted := refKeys(slices.Concat(itemRefs(w.items), objectRefs(w.set.Objects)))
	items := slices.DeleteFunc(ofVariants(inventory, variants...), func(i deploy.InventoryItem) bool { return wanted[i.Object.Key()] })
	items = w.permitted(items, func(why string) { w.log.Infof("Not removed, although it belongs to a variant: %s", why) })
	if len(items) == 0 {
		if len(variants) == 1 { // a clean stage, whose users expect a log line
			w.log.Infof("There is nothing of %s to remove", join(variants))
		}
		return nil
	}
	if err := w.drain(ctx); err != nil {
		return err
	}
	w.log.Infof("Removing %s: %s", join(variants), list(items))
	var workloads, used []deploy.InventoryItem
	for _, i := range items {
		if i.Object.Group == "apps" {
			workloads = append(workloads, i)
		} else {
			used = append(used, i)
		}
	}
	if err := w.deleteWithPods(ctx, workloads); err != nil {
		return err
	}
	return w.delete(ctx, used)
}

// deleteWithPods deletes workloads, and fails unless they and their pods are gone.
func (w *work) deleteWithPods(ctx context.Context, items []deploy.InventoryItem) error {
	gone, err := w.cluster.DeleteWithPods(ctx, w.PipedID, items, w.log)
	if err := errors.Join(err, w.forget(ctx, gone)); err != nil {
		return err
	}
	over := keys(gone)
	if left := slices.DeleteFunc(slices.Clone(items), func(i deploy.InventoryItem) bool { return over[i.Object.Key()] }); len(left) > 0 {
		return deploy.Errorf(deploy.Unavailable, "still being deleted: %s; check which finalizers hold them or their pods, and sync again", list(left))
	}
	return nil
}

// removeLeftovers removes, at the end of a quick sync, the variants that an earlier
// deployment left behind. A failure does not fail the deployment, which has succeeded; the
// next quick sync tries again.
func removeLeftovers(ctx context.Context, w *work) error {
	if w.run.Deployment.Strategy != deploy.StrategyQuickSync {
		return nil
	}
	err := removeAllVariants(ctx, w)
	if err == nil || ctx.Err() != nil {
		return err
	}
	w.log.Errorf("Not everything left of the canary and the baseline could be removed; the next quick sync tries again: %v", err)
	return nil
}

// join joins the names of variants for a message.
func join(variants []kubernetes.Variant) string {
	text := "the " + string(variants[0])
	for _, v := range variants[1:] {
		text += " and the " + string(v)
	}
	return text
}
