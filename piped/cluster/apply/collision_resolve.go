package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// resolveCollisions handles the refusal of t's dry run. If collisions caused it, it repeats
// the dry run without the colliding live items, returns the planned object, and sets
// t.collisions: the write removes these items. Otherwise it returns the refusal. It also
// returns the refusal if another manager applied a colliding item; t.collisions then holds
// only such items, for explainCollisions.
func (r *applyRun) resolveCollisions(ctx context.Context, t *target, refusal error) (planned *unstructured.Unstructured, err error) {
	if !apierrors.IsInvalid(refusal) {
		return nil, refusal
	}
	live := t.liveObject()
	if live == nil {
		if live, err = r.cluster.readObject(ctx, t.ref); err != nil || live == nil {
			return nil, refusal // without the live object, collisions cannot be found
		}
	}
	found := collisionsOf(t.desired, live, refusal)
	if len(found) == 0 {
		return nil, refusal
	}
	if kept := appliedByOthers(found); len(kept) > 0 {
		t.collisions = kept
		return nil, refusal
	}
	err = r.cluster.Retry(ctx, r.wait, func(ctx context.Context) (err error) {
		if planned, err = r.cluster.dryRunWithout(ctx, t, found); err == nil {
			planned, err = r.dryRunUpdate(ctx, t, planned)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	t.collisions = found
	return planned, nil
}

// dryRunUpdate dry-runs an update of the live object to planned, and returns the API server's
// answer. Without the permission to update it returns planned.
func (r *applyRun) dryRunUpdate(ctx context.Context, t *target, planned *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	trial := planned.DeepCopy()
	trial.SetManagedFields(nil)
	answer, err := r.cluster.ResourceClient(t.resource, t.ref.Namespace).Update(ctx, trial,
		metav1.UpdateOptions{FieldManager: cluster.FieldManager, DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsForbidden(err) { // the write itself is a patch, which may be permitted
		return planned, nil
	}
	return answer, err
}

// dryRunWithout returns the result of applying t without the colliding live items, by a dry
// run. The managed fields of the result still contain these items.
func (c *Client) dryRunWithout(ctx context.Context, t *target, collisions []collision) (*unstructured.Unstructured, error) {
	planned, err := c.serverSideApply(ctx, t, apart(t.desired, collisions), metav1.DryRunAll)
	if err != nil {
		return nil, err
	}
	return without(planned, collisions), nil
}

// explainCollisions adds t.collisions, the colliding items that other managers applied, to a
// refusal. It returns nil for nil.
func (t *target) explainCollisions(err error) error {
	if err == nil || len(t.collisions) == 0 {
		return err
	}
	var items []string
	for _, c := range t.collisions {
		items = append(items, fmt.Sprintf("%s applied %s, which has %s", c.applied, placeOf(c.item), c.cause()))
	}
	return deploy.Errorf(deploy.KindOf(err), "%w; %s: have it removed there, or change Git", err, strings.Join(items, "; "))
}

// takeOwnership makes the agent the owner of the colliding live items, so that the following
// apply removes them in the write that adds the items in Git. It changes only managed fields:
// if the agent crashes after it, the next apply completes the change. It skips items that
// another manager has applied since the dry run. The error is a conflict if the object has
// changed since it was read here.
func (r *applyRun) takeOwnership(ctx context.Context, t *target) error {
	client := r.cluster.ResourceClient(t.resource, t.ref.Namespace)
	live, err := client.Get(ctx, t.ref.Name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil // the apply that follows creates it
		}
		return err
	}
	var items []fieldpath.Path
	for _, item := range itemsOf(live) {
		planned := slices.ContainsFunc(t.collisions, func(c collision) bool { return c.item.Equals(item.path) })
		if planned && item.applied == "" {
			items = append(items, item.path)
		}
	}
	fields, err := withOwnership(live.GetManagedFields(), t.desired.GetAPIVersion(), items)
	if err != nil || fields == nil {
		return err
	}
	// The patch contains the resource version, which makes it a compare-and-swap.
	patch, err := json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/managedFields", "value": fields},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": live.GetResourceVersion()},
	})
	if err != nil {
		return fmt.Errorf("write its managed fields: %w", err)
	}
	_, err = client.Patch(ctx, t.ref.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: cluster.FieldManager})
	return err
}

// withOwnership returns a copy of fields in which the agent's apply is the only owner of the
// items and of the fields below them. It returns nil if no other manager owns any of them.
func withOwnership(fields []metav1.ManagedFieldsEntry, apiVersion string, items []fieldpath.Path) ([]metav1.ManagedFieldsEntry, error) {
	all := fieldpath.NewSet(items...)
	taken := fieldpath.NewSet()
	var out []metav1.ManagedFieldsEntry
	for _, e := range fields {
		if isOurs(e) {
			out = append(out, e)
			continue
		}
		set, err := setOf(e)
		if err != nil {
			return nil, err
		}
		rest := set.RecursiveDifference(all)
		moved := set.Difference(rest)
		taken = taken.Union(moved)
		switch {
		case moved.Empty():
			out = append(out, e)
		case !rest.Empty():
			if e.FieldsV1, err = fieldsOf(rest); err != nil {
				return nil, err
			}
			out = append(out, e)
		}
	}
	if taken.Empty() {
		return nil, nil
	}
	at := slices.IndexFunc(out, isOurs)
	if at < 0 {
		at = len(out)
		out = append(out, metav1.ManagedFieldsEntry{
			Manager: cluster.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: apiVersion, FieldsType: "FieldsV1",
		})
	}
	ours, err := setOf(out[at])
	if err != nil {
		return nil, err
	}
	out[at].FieldsV1, err = fieldsOf(ours.Union(taken).Union(all))
	return out, err
}

// fieldsOf returns a set of fields in the form of managedFields.
func fieldsOf(set *fieldpath.Set) (*metav1.FieldsV1, error) {
	raw, err := set.ToJSON()
	if err != nil {
		return nil, fmt.Errorf("write its managed fields: %w", err)
	}
	fields := &metav1.FieldsV1{}
	fields.SetRawBytes(raw)
	return fields, nil
}

// logRemoved logs the colliding items that an apply has removed.
func (r *applyRun) logRemoved(t *target) {
	for _, c := range t.collisions {
		r.req.Log.Infof("removed %s of %s, which %s added: it has %s", placeOf(c.item), t.ref, strings.Join(c.owners, ", "), c.cause())
	}
}
