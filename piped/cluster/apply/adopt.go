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
)

// clientSideManagers returns the field managers of kubectl, which PipeCD used, without
// server-side apply. The API server attributes writes from before it tracked ownership to
// "before-first-apply".
func clientSideManagers() sets.Set[string] {
	return sets.New("kubectl-client-side-apply", "before-first-apply", "kubectl", "kubectl-create", "kubectl-replace")
}

// hasClientSide reports whether one of clientSideManagers owns fields of a live object.
func hasClientSide(live metav1.Object) bool {
	managers := clientSideManagers()
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return managers.Has(e.Manager) && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	})
}

// adopt makes the agent the owner of the fields that kubectl wrote to a live object, so that
// the following apply removes those that are not in Git, such as the last-applied annotation.
// It must be called only before the first apply of an object: fields that a user changes
// with kubectl later remain the user's. The error is a conflict when live is out of date.
func adopt(ctx context.Context, client dynamic.ResourceInterface, live metav1.Object) error {
	if !hasClientSide(live) {
		return nil
	}
	// The patch contains the resource version, which makes it a compare-and-swap.
	carrier := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ManagedFields: live.GetManagedFields(), ResourceVersion: live.GetResourceVersion(),
	}}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(carrier, clientSideManagers(), cluster.FieldManager)
	if err != nil {
		return fmt.Errorf("read its managed fields: %w", err)
	}
	if patch == nil {
		return nil
	}
	_, err = client.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: cluster.FieldManager})
	return err
}
