package kubernetes

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
)

// Expectation is what a cluster should hold of an application after a deployment that
// succeeded.
type Expectation struct {
	Commit       string
	Objects      []manifest.Object // the complete set: resolved, not stamped
	VariantKey   string            // of the variant annotation
	VariantValue string            // what it says on the objects
	Checks       []kubernetes.HealthCheck
	Ignore       config.DriftDetection // of the configuration that was applied
	Redactor     *secret.Redactor      // takes the secrets in the objects out of messages about them
}

// Expected returns what a cluster should hold by the applied set of d, which
// succeeded: the shares of the traffic are those that d ended with, unless a later
// deployment has put back what routes it. Inventory is what is recorded of the
// application's objects in that cluster.
func Expected(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (Expectation, error) {
	var stored storedSet
	if err := json.Unmarshal(set.Objects, &stored); err != nil {
		return Expectation{}, fmt.Errorf("decode the applied set of commit %s: %w", deploy.ShortHash(set.Commit), err)
	}
	e := Expectation{
		Commit: set.Commit, VariantKey: stored.Spec.VariantKey, VariantValue: stored.Spec.PrimaryValue,
		Checks: stored.Spec.HealthChecks, Ignore: stored.Spec.Drift, Redactor: secret.NewRedactor(stored.Secrets),
	}
	for _, u := range stored.Objects {
		e.Objects = append(e.Objects, manifest.Object{Unstructured: u, Origin: manifest.Origin{File: "commit " + deploy.ShortHash(set.Commit)}})
	}
	shared, found, err := lastOverlay(d)
	if err != nil || !found {
		return e, err
	}
	routes, err := shared.Routing.Routes(e.Objects)
	if err != nil || putBackSince(routes, d, inventory) {
		return e, nil // nothing routes it any more
	}
	if e.Objects, err = shared.Routing.Apply(e.Objects, shared.Shares); err != nil {
		return e, fmt.Errorf("share the traffic as deployment %s has left it: %w", d.ID, err)
	}
	return e, nil
}

// putBackSince reports whether a deployment that came after d has written what routes
// the traffic: it failed, and its rollback gave all of it to the primary, as in Git.
func putBackSince(routes []manifest.Object, d deploy.Deployment, inventory []deploy.InventoryItem) bool {
	return slices.ContainsFunc(inventory, func(item deploy.InventoryItem) bool {
		return item.DeploymentID != d.ID && item.UpdatedAt.After(d.CompletedAt) && slices.ContainsFunc(routes, func(o manifest.Object) bool {
			return manifest.Ref(o.Unstructured).Key() == item.Object.Key()
		})
	})
}
