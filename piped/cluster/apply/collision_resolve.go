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

// resolveCollisions repeats the dry run of an object that was refused because of collisions,
// without the colliding live items. These are removed when the object is written. Items
// that another manager applied stay, and the error names them. Planned is as from
// dryRunOne.
func (r *applyRun) resolveCollisions(ctx context.Context, t *target, refusal error) (planned *unstructured.Unstructured, err error) {
	if !apierrors.IsInvalid(refusal) {
		return nil, refusal
	}
	live := t.liveObject()
	if live == nil {
		if live, err = r.cluster.readObject(ctx, t.ref); err != nil || live == nil {
			return nil, refusal // then it is not known what may be in the way
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

// dryRunUpdate checks by a dry run whether the API server accepts an update to planned.
func (r *applyRun) dryRunUpdate(ctx context.Context, t *target, planned *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	trial := planned.DeepCopy()
	trial.SetManagedFields(nil)
	answer, err := r.cluster.ResourceClient(t.resource, t.ref.Namespace).Update(ctx, trial,
		metav1.UpdateOptions{FieldManager: cluster.FieldManager, DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsForbidden(err) { // who may not update cannot try this
		return planned, nil
	}
	return answer, err
}

// dryRunWithout returns the result of applying an object without the colliding items, by a
// dry run. Its managed fields are those of the dry run.
func (c *Client) dryRunWithout(ctx context.Context, t *target, collisions []collision) (*unstructured.Unstructured, error) {
	planned, err := c.serverSideApply(ctx, t, apart(t.desired, collisions), metav1.DryRunAll)
	if err != nil {
		return nil, err
	}
	return without(planned, collisions), nil
}

// explainCollisions adds to a refusal the colliding items that other managers applied.
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
// apply removes them in the same write that adds those of Git. It changes only managed
// fields: if the agent is killed after it, the next apply completes the change. Items that
// another manager has applied meanwhile are left alone.
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
	// The patch holds the resource version it was made from: a conflict makes
	// the caller read the object again.
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

// withOwnership returns managed fields in which our applies are the only owner of the items
// and their fields, nil if they are already.
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
