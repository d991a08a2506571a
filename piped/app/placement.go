package app

import (
	"context"
	"time"

	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// placeTimeout is how long a plan waits for a cluster to say which kinds have
// namespaces.
const placeTimeout = 3 * time.Second

// placed returns what an application's source brings out with the namespace of
// spec.input.namespace, as a deployment applies it. Those of a cluster that does not
// answer stay as they are rendered.
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
