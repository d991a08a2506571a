package cluster

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"
)

// clientSideManagers own what kubectl (and PipeCD through it) wrote without
// server-side apply. "before-first-apply" is how the API server names everyone
// who wrote before ownership was tracked.
func clientSideManagers() sets.Set[string] {
	return sets.New("kubectl-client-side-apply", "before-first-apply", "kubectl", "kubectl-create", "kubectl-replace")
}

// hasClientSide reports whether kubectl owns fields of a live object.
func hasClientSide(live metav1.Object) bool {
	managers := clientSideManagers()
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return managers.Has(e.Manager) && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
	})
}

// adopt makes the fields that kubectl wrote to a live object the agent's own, so
// that the apply that follows removes those which Git does not have, the
// last-applied annotation among them. It is for the first contact with an
// object: later, what a person changes with kubectl stays theirs.
func adopt(ctx context.Context, client dynamic.ResourceInterface, live metav1.Object) error {
	if !hasClientSide(live) {
		return nil
	}
	// The patch holds the resource version it was made from: a conflict makes
	// the caller read the object again.
	carrier := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ManagedFields: live.GetManagedFields(), ResourceVersion: live.GetResourceVersion(),
	}}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(carrier, clientSideManagers(), FieldManager)
	if err != nil {
		return fmt.Errorf("read its managed fields: %w", err)
	}
	if patch == nil {
		return nil
	}
	_, err = client.Patch(ctx, live.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	return err
}
