package apply

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/manifest"
)

// clientSideManagers returns the field managers of kubectl, which PipeCD used, without
// server-side apply. The API server attributes writes from before it tracked ownership to
// "before-first-apply".
func clientSideManagers() sets.Set[string] {
	return sets.New("kubectl-client-side-apply", "before-first-apply", "kubectl", "kubectl-create", "kubectl-replace")
}

// inherited reports whether the agent takes over the fields of an entry with its first apply:
// those that clientSideManagers wrote without server-side apply, and those that Argo CD or Flux
// applied in either way.
func inherited(e metav1.ManagedFieldsEntry) bool {
	return e.Subresource == "" && (clientSideManagers().Has(e.Manager) && e.Operation == metav1.ManagedFieldsOperationUpdate || manifest.IsToolManager(e.Manager))
}

// hasInherited reports whether a live object has entries that are inherited.
func hasInherited(live metav1.Object) bool {
	return slices.ContainsFunc(live.GetManagedFields(), inherited)
}

// adopt makes the agent the owner of the inherited fields of a live object, so that the following
// apply removes those that are not in Git, such as the last-applied annotation and the labels by
// which another tool knows its objects. It must be called only before the first apply of an
// object: fields that a user changes with kubectl later remain the user's. The error is a
// conflict when live is out of date.
func adopt(ctx context.Context, client dynamic.ResourceInterface, live metav1.Object) error {
	if !hasInherited(live) {
		return nil
	}
	fields, managers := clientSide(live.GetManagedFields())
	// The patch contains the resource version, which makes it a compare-and-swap.
	carrier := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: fields, ResourceVersion: live.GetResourceVersion()}}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(carrier, managers, cluster.FieldManager)
	if err != nil {
		return fmt.Errorf("read its managed fields: %w", err)
	}
	if patch == nil {
		return nil
	}
	_, err = client.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: cluster.FieldManager})
	return err
}

// clientSide returns a copy of managed fields in which each inherited entry looks like one of
// client-side apply, and the names of their managers. An entry of server-side apply gets a name
// of its own, because its manager may also have one of client-side apply.
func clientSide(fields []metav1.ManagedFieldsEntry) (out []metav1.ManagedFieldsEntry, managers sets.Set[string]) {
	managers = sets.New[string]()
	out = slices.Clone(fields)
	for i, e := range out {
		if !inherited(e) {
			continue
		}
		if e.Operation == metav1.ManagedFieldsOperationApply {
			out[i].Manager, out[i].Operation = e.Manager+" (applied)", metav1.ManagedFieldsOperationUpdate
		}
		managers.Insert(out[i].Manager)
	}
	return out, managers
}
