package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// CleanCanary runs K8S_CANARY_CLEAN: it deletes all that the application has of a
// canary, of earlier deployments too.
func (e *Executor) CleanCanary() Stage { return e.clean(kubernetes.Canary) }

// CleanBaseline runs K8S_BASELINE_CLEAN, which does that for the baseline.
func (e *Executor) CleanBaseline() Stage { return e.clean(kubernetes.Baseline) }

func (e *Executor) clean(v kubernetes.Variant) Stage {
	return e.stage(admit, openCluster, func(ctx context.Context, w *work) error {
		shared, found, _, err := w.sharing(ctx)
		if err != nil {
			return err
		}
		if share := shared.Shares.Of(v); found && share > 0 {
			return &stageError{reason: fmt.Sprintf("%d%% of the traffic still goes to the %s: route it away with %s before the %s is removed", share, v, kubernetes.StageTrafficRouting, v)}
		}
		return w.removeVariants(ctx, v)
	})
}

// removeVariants deletes what the inventory has of variants, once no request is on
// its way to them: their workloads, and when the pods are gone what these used. What
// is part of the stage's set stays. What cannot be deleted stays in the inventory and is named in the error.
func (w *work) removeVariants(ctx context.Context, variants ...kubernetes.Variant) error {
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	wanted := keys(w.items)
	for _, o := range w.set.Objects {
		wanted[manifest.Ref(o.Unstructured).Key()] = true
	}
	items := slices.DeleteFunc(ofVariants(inventory, variants...), func(i deploy.InventoryItem) bool { return wanted[i.Object.Key()] })
	items = w.permitted(items, func(why string) { w.log.Infof("Of a variant, and left alone: %s", why) })
	if len(items) == 0 {
		if len(variants) == 1 { // a stage of its own, of which people expect more
			w.log.Infof("There is nothing of %s to remove", join(variants))
		}
		return nil
	}
	if err := w.drain(ctx); err != nil {
		return err
	}
	w.log.Infof("Removing what is there of %s: %s", join(variants), list(items))
	var workloads, used []deploy.InventoryItem
	for _, i := range items {
		if i.Object.Group == "apps" {
			workloads = append(workloads, i)
		} else {
			used = append(used, i)
		}
	}
	if err := w.removeWithPods(ctx, workloads); err != nil {
		return err
	}
	return w.delete(ctx, used)
}

// removeWithPods deletes workloads, and fails unless they and their pods are gone.
func (w *work) removeWithPods(ctx context.Context, items []deploy.InventoryItem) error {
	ended, err := w.cluster.DeleteWithPods(ctx, w.PipedID, items, w.log)
	forgetErr := w.Store.DeleteInventory(context.WithoutCancel(ctx), w.run.Application.ID, w.cluster.Name(), refsOf(ended)...)
	if err := errors.Join(err, forgetErr); err != nil {
		return err
	}
	over := keys(ended)
	if left := slices.DeleteFunc(slices.Clone(items), func(i deploy.InventoryItem) bool { return over[i.Object.Key()] }); len(left) > 0 {
		return deploy.Errorf(deploy.Unavailable, "still being deleted: %s; see what finalizers hold them or their pods, and sync again", list(left))
	}
	return nil
}

// removeLeftovers removes, at the end of a quick sync, the variants that an earlier
// deployment has left: nothing that follows would. What cannot be removed is no reason
// to take back what was deployed well; the next quick sync tries again.
func removeLeftovers(ctx context.Context, w *work) error {
	if w.run.Deployment.Strategy != deploy.StrategyQuickSync {
		return nil
	}
	err := w.removeVariants(ctx, kubernetes.Canary, kubernetes.Baseline)
	if err == nil || ctx.Err() != nil {
		return err
	}
	w.log.Errorf("What is left of the canary and the baseline is not all removed, which the next quick sync tries again: %v", err)
	return nil
}

// join names variants for a person.
func join(variants []kubernetes.Variant) string {
	text := "the " + string(variants[0])
	for _, v := range variants[1:] {
		text += " and the " + string(v)
	}
	return text
}
