package apply

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// RunningCommits returns the commit annotations of the live objects among objs, sorted and
// without duplicates. It includes objects that another agent applied, or this one for another
// application. The objects get their namespaces as in Resolve. RunningCommits skips hooks,
// missing objects and unknown kinds. The error is of kind Unavailable when the cluster does
// not answer before ctx ends or refuses the agent's credentials, and Invalid when the agent
// may not read an object.
func (c *Client) RunningCommits(ctx context.Context, objs []manifest.Object, namespace string) ([]string, error) {
	commits := make([]string, len(objs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrency)
	for i, obj := range objs {
		if obj.Hook.Phase != manifest.HookNone {
			continue // a live hook may be from a failed deployment
		}
		g.Go(func() (err error) {
			commits[i], err = c.runningCommit(ctx, obj, namespace)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.Sort(commits)
	return slices.DeleteFunc(slices.Compact(commits), func(commit string) bool { return commit == "" }), nil
}

// runningCommit returns the commit annotation of the live object; "" if it has none, does not
// exist, or was not applied by an agent.
func (c *Client) runningCommit(ctx context.Context, obj manifest.Object, namespace string) (string, error) {
	var served cluster.ServedKind
	err := c.Retry(ctx, nil, func(ctx context.Context) (err error) {
		served, err = c.Lookup(ctx, obj.GroupVersionKind())
		return err
	})
	if errors.Is(err, cluster.ErrUnknownKind) {
		return "", nil
	}
	ref := manifest.Ref(cluster.InNamespace(obj.Clone(), served.Namespaced, namespace).Unstructured)
	var live *metav1.PartialObjectMetadata
	if err == nil {
		live, err = c.find(ctx, ref)
	}
	switch {
	case apierrors.IsForbidden(err):
		return "", deploy.Errorf(deploy.Invalid, "look for a live %s: %w", ref, c.Classify(err))
	case err != nil:
		// The message omits the object, because the cause is the same for all objects.
		return "", deploy.Errorf(deploy.Unavailable, "%w", c.Classify(err))
	case live == nil || live.Annotations[manifest.AnnotationManagedBy] != manifest.ManagedBy:
		return "", nil
	}
	return live.Annotations[manifest.AnnotationCommitHash], nil
}
