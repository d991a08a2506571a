package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// limitPrune ends a stage that would delete too much before it has written
// anything, so that nothing is left half done.
func limitPrune(ctx context.Context, w *work) error {
	if !w.set.Spec.Prune {
		return nil
	}
	inventory, err := w.inventory(ctx)
	if err != nil {
		return err
	}
	var desired []deploy.ObjectRef
	for _, o := range w.set.Objects {
		desired = append(desired, manifest.Ref(o.Unstructured))
	}
	return w.refusePrune(ctx, cluster.CheckPrune(w.pruneRequest(inventory), desired), w.run.First())
}

// pruneRequest is about those items of the inventory that tenancy lets the
// application touch, and that are of no canary and no baseline: other stages remove
// these.
func (w *work) pruneRequest(inventory []deploy.InventoryItem) cluster.PruneRequest {
	inventory = w.permitted(ofPrimary(inventory), func(string) {})
	return cluster.PruneRequest{Inventory: inventory, Kinds: w.set.Spec.PruneKinds, Permitted: w.run.Deployment.Trigger.PermitPrune}
}

// refusePrune ends the stage for a prune beyond the limit, and stores what it
// would have deleted: that is what a person may permit.
func (w *work) refusePrune(ctx context.Context, err error, noRollback bool) error {
	var many *cluster.TooMany
	if !errors.As(err, &many) {
		return err
	}
	text, encodeErr := json.Marshal(refsOf(many.Deletes))
	if encodeErr == nil {
		encodeErr = w.run.SaveMetadata(ctx, map[string]string{deploy.MetaPruneRefused: string(text)})
	}
	if encodeErr != nil {
		return fmt.Errorf("record what the stage would delete: %w", encodeErr)
	}
	return &stageError{reason: err.Error(), noRollback: noRollback}
}

// prune deletes what the application applied earlier and no longer declares, if
// it asks for that. Every rollout has ended by then: what replaces a renamed or
// moved object runs. What stays, stays in the inventory and is said.
func prune(ctx context.Context, w *work) error {
	if err := w.sayElsewhere(ctx); err != nil {
		return err
	}
	request := w.pruneRequest(w.before)
	request.Applied = w.items
	w.sayForbidden()
	if !w.set.Spec.Prune {
		if left, held := cluster.Leftovers(request); len(left)+len(held) > 0 {
			w.log.Infof("No longer in Git, and left alone because prune is off: %s", list(append(left, held...)))
		}
		return nil
	}
	deletes, held, err := cluster.PlanPrune(request)
	for _, item := range held {
		w.log.Infof("%s is no longer in Git; its kind is deleted only if spec.pruneKinds names it", item.Object)
	}
	if err != nil {
		return w.refusePrune(ctx, err, false)
	}
	if deletes, err = w.holdUsed(ctx, deletes); err != nil || len(deletes) == 0 {
		return err
	}
	return w.delete(ctx, deletes)
}

// sayElsewhere names what the application has on clusters it was moved away
// from.
func (w *work) sayElsewhere(ctx context.Context) error {
	all, err := w.Store.Inventory(ctx, w.run.Application.ID)
	if err != nil {
		return err
	}
	byCluster := map[string][]deploy.InventoryItem{}
	var clusters []string
	for _, item := range all {
		if item.Cluster == w.cluster.Name() {
			continue
		}
		if byCluster[item.Cluster] == nil {
			clusters = append(clusters, item.Cluster)
		}
		byCluster[item.Cluster] = append(byCluster[item.Cluster], item)
	}
	for _, name := range clusters {
		w.log.Infof("The application was moved: what it has on platform provider %s is left there; delete it by hand if it is not needed: %s", name, list(byCluster[name]))
	}
	return nil
}

// holdUsed takes those out of deletes that a kept revision of a workload needs
// to start pods: they are tried again by each later sync. When that cannot be
// found out, everything that may be one stays.
func (w *work) holdUsed(ctx context.Context, deletes []deploy.InventoryItem) ([]deploy.InventoryItem, error) {
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
		w.log.Infof("Which ConfigMaps and Secrets earlier revisions use cannot be found out, so those that may be used stay: %v", err)
	}
	return slices.DeleteFunc(deletes, func(item deploy.InventoryItem) bool {
		by := used[item.Object.Key()]
		if by != "" {
			w.log.Infof("%s is no longer in Git; it stays while %s uses it", item.Object, by)
		}
		return by != "" || err != nil && cluster.Generated(item.Object)
	}), nil
}

// delete deletes objects and takes those that have ended out of the inventory;
// the others are tried again by the next prune.
func (w *work) delete(ctx context.Context, items []deploy.InventoryItem) error {
	ended, err := w.cluster.Delete(ctx, w.PipedID, items, w.log)
	forgetErr := w.Store.DeleteInventory(context.WithoutCancel(ctx), w.run.Application.ID, w.cluster.Name(), refsOf(ended)...)
	return errors.Join(err, forgetErr)
}

func refsOf(items []deploy.InventoryItem) []deploy.ObjectRef {
	refs := make([]deploy.ObjectRef, len(items))
	for i, item := range items {
		refs[i] = item.Object
	}
	return refs
}

// list names objects for a person.
func list(items []deploy.InventoryItem) string {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = item.Object.String()
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
