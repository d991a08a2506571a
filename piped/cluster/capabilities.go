package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	apidiscovery "k8s.io/client-go/discovery"

	"github.com/c785c783/piped/piped/deploy"
)

// Capabilities reads the version of the API server and the API versions and kinds that it
// serves. The error is of kind Unavailable if the extension server of an API group does not
// answer: with an incomplete list, charts would omit objects that they rendered before.
func (c *Cluster) Capabilities(ctx context.Context) (deploy.Capabilities, error) {
	client, err := apidiscovery.NewDiscoveryClientForConfigAndClient(c.config, c.http)
	if err != nil {
		return deploy.Capabilities{}, fmt.Errorf("ask %s what it serves: %w", c, err)
	}
	version, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return deploy.Capabilities{}, c.Classify(err)
	}
	_, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	var partial *apidiscovery.ErrGroupDiscoveryFailed
	if errors.As(err, &partial) {
		return deploy.Capabilities{}, deploy.Errorf(deploy.Unavailable, "ask %s what it serves: %w", c, err)
	}
	if err != nil {
		return deploy.Capabilities{}, c.Classify(err)
	}
	served := map[string]bool{}
	for gvk := range readKinds(lists) {
		served[gvk.GroupVersion().String()] = true
		served[gvk.GroupVersion().String()+"/"+gvk.Kind] = true
	}
	return deploy.Capabilities{KubeVersion: version.GitVersion, APIVersions: slices.Sorted(maps.Keys(served))}, nil
}
