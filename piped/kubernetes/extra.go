package kubernetes

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// ExtraRequest names objects that an application has in the cluster and no longer in
// Git.
type ExtraRequest struct {
	ApplicationID string
	PipedID       string
	Objects       []deploy.ObjectRef
	Conceal       Concealer // as in CompareRequest
	Diff          bool
}

// DescribeExtra reads the objects and returns the drift that each of them is, in their
// order: nil for one that is gone or about to be, that is not marked as the
// application's, that a controller made, or that asks not to be compared. The error is
// that one of them cannot be read; it is classed.
func (c *Cluster) DescribeExtra(ctx context.Context, req ExtraRequest) ([]*deploy.ObjectDrift, error) {
	brief := *c
	brief.retryFor = min(c.retryFor, compareRetryFor)
	out := make([]*deploy.ObjectDrift, len(req.Objects))
	g, ctx := errgroup.WithContext(withWarnings(ctx, func(string) {}))
	g.SetLimit(concurrency)
	for i, ref := range req.Objects {
		g.Go(func() (err error) {
			out[i], err = brief.describeExtra(ctx, req, ref)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}

func (c *Cluster) describeExtra(ctx context.Context, req ExtraRequest, ref deploy.ObjectRef) (*deploy.ObjectDrift, error) {
	live, err := c.readExtra(ctx, ref, req.Diff)
	switch {
	case errors.Is(err, errUnknownKind), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		err = c.Classify(err)
		return nil, deploy.Errorf(deploy.KindOf(err), "read %s, which is no longer in Git: %w", ref, err)
	case live.GetDeletionTimestamp() != nil, metav1.GetControllerOf(live) != nil,
		live.GetAnnotations()[manifest.AnnotationIgnoreDrift] == "true",
		live.GetLabels()[manifest.LabelApplication] != req.ApplicationID,
		live.GetAnnotations()[manifest.AnnotationApplication] != req.ApplicationID,
		live.GetAnnotations()[manifest.AnnotationPiped] != req.PipedID:
		return nil, nil
	}
	drift := &deploy.ObjectDrift{Object: ref, Cluster: c.name, Kind: deploy.DriftExtra}
	if whole, ok := live.(*unstructured.Unstructured); ok {
		drift.Diff = describer{conceal: req.Conceal}.diff(nil, whole, nil)
	}
	return drift, nil
}

// readExtra reads an object whole, or its metadata.
func (c *Cluster) readExtra(ctx context.Context, ref deploy.ObjectRef, whole bool) (live metav1.Object, err error) {
	err = c.retry(ctx, nil, func(ctx context.Context) error {
		resource, err := c.discovery.lookupKind(ctx, gvkOf(ref))
		if err != nil {
			return err
		}
		if whole {
			live, err = c.objectsOf(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		} else {
			live, err = c.metadataOf(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		}
		return err
	})
	return live, err
}
