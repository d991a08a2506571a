package kubernetes

import (
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
)

// Expectation is the state that a cluster should have after a successful deployment of an
// application.
type Expectation struct {
	Commit       string
	Objects      []manifest.Object // the complete set: resolved, not stamped
	VariantKey   string            // key of the variant annotation
	VariantValue string            // its value on the objects
	Checks       []kubernetes.HealthCheck
	Ignore       config.DriftDetection // of the configuration that was applied
	Redactor     *secret.Redactor      // redacts the secrets in the objects from messages about them
}

// Expected returns the state that a cluster should have after the successful deployment d.
// set is the applied set of d, inventory the application's inventory in that cluster. The
// objects contain the traffic shares at the end of d, unless a later deployment has
// restored the routes.
func Expected(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (Expectation, error) {
	stored, err := decodeSet(set)
	if err != nil {
		return Expectation{}, err
	}
	e := Expectation{
		Commit: set.Commit, Objects: stored.objects(), VariantKey: stored.Spec.VariantKey, VariantValue: stored.Spec.PrimaryValue,
		Checks: stored.Spec.HealthChecks, Ignore: stored.Spec.Drift, Redactor: secret.NewRedactor(stored.Secrets),
	}
	shared, found, err := lastTrafficState(d)
	if err != nil || !found {
		return e, err
	}
	routes, err := shared.Routing.Routes(e.Objects)
	if err != nil || restoredSince(routes, d, inventory) {
		return e, nil // no object routes the traffic any more
	}
	if e.Objects, err = shared.Routing.Apply(e.Objects, shared.Shares); err != nil {
		return e, fmt.Errorf("share the traffic as deployment %s did: %w", d.ID, err)
	}
	return e, nil
}

// restoredSince reports whether a deployment after d has written one of the routes. That
// deployment failed, and its rollback gave all traffic to the primary, as in Git.
func restoredSince(routes []manifest.Object, d deploy.Deployment, inventory []deploy.InventoryItem) bool {
	routing := refKeys(objectRefs(routes))
	return slices.ContainsFunc(inventory, func(item deploy.InventoryItem) bool {
		return item.DeploymentID != d.ID && item.UpdatedAt.After(d.CompletedAt) && routing[item.Object.Key()]
	})
}
