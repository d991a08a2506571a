package app

import (
	"context"
	"time"

	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// placeTimeout is how long a plan waits for the discovery of namespaced kinds.
const placeTimeout = 3 * time.Second

// placed returns the objects of an application's source with the namespace of
// spec.input.namespace, as a deployment applies them. If the cluster does not answer, they
// stay as rendered.
func (c *clusters) placed(ctx context.Context, provider string, src *source.Source) []manifest.Object {
	spec, ok := src.Config.Platform.(*kubeconfig.Spec)
	if !ok || spec.Input.Namespace == "" {
		return src.Objects
	}
	cluster, release, err := c.Hold(provider)
	if err != nil {
		return src.Objects
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, placeTimeout)
	defer cancel()
	objects, err := cluster.Place(ctx, src.Objects, spec.Input.Namespace)
	if err != nil {
		return src.Objects
	}
	return objects
}

// withPlaced returns a copy of src whose objects are placed; nil stays nil.
func (c *clusters) withPlaced(ctx context.Context, provider string, src *source.Source) *source.Source {
	if src == nil {
		return nil
	}
	out := *src
	out.Objects = c.placed(ctx, provider, src)
	return &out
}
