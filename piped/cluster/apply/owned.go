package apply

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Owned returns an item for each of refs that exists and is marked as the application's and
// the agent's. The items have only ApplicationID, Cluster, Object and UID. Owned reads the
// objects one after the other.
func (c *Client) Owned(ctx context.Context, applicationID, pipedID string, refs []deploy.ObjectRef) ([]deploy.InventoryItem, error) {
	var items []deploy.InventoryItem
	for _, ref := range refs {
		live, err := c.find(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", ref, c.Classify(err))
		}
		if live == nil || live.Annotations[manifest.AnnotationApplication] != applicationID || live.Annotations[manifest.AnnotationPiped] != pipedID {
			continue
		}
		items = append(items, deploy.InventoryItem{ApplicationID: applicationID, Cluster: c.Name(), Object: ref, UID: string(live.UID)})
	}
	return items, nil
}

// Workloads returns the live state of the workloads (IsWorkload) among the objects, by
// deploy.ObjectRef.Key, without those that do not exist.
func (c *Client) Workloads(ctx context.Context, objects []manifest.Object) (map[string]*unstructured.Unstructured, error) {
	found := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		ref := manifest.Ref(o.Unstructured)
		if !IsWorkload(manifest.GroupKind(ref)) {
			continue
		}
		err := c.Retry(ctx, nil, func(ctx context.Context) error {
			resource, err := c.FindKind(ctx, manifest.GVK(ref))
			if err != nil {
				return err
			}
			live, err := c.ResourceClient(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			if err == nil {
				found[ref.Key()] = live
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, c.explain(o, "read", err)
		}
	}
	return found, nil
}

// Existing returns, for each of refs, whether the object exists. It reads them concurrently.
func (c *Client) Existing(ctx context.Context, refs []deploy.ObjectRef) (map[deploy.ObjectRef]bool, error) {
	found := make([]bool, len(refs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrency)
	for i, ref := range refs {
		g.Go(func() error {
			live, err := c.find(ctx, ref)
			if err != nil {
				return fmt.Errorf("read %s: %w", ref, c.Classify(err))
			}
			found[i] = live != nil
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out := map[deploy.ObjectRef]bool{}
	for i, ref := range refs {
		out[ref] = found[i]
	}
	return out, nil
}

// find reads the metadata of an object. It returns nil without an error if the object does not
// exist or the cluster does not serve its kind. The error is unclassified.
func (c *Client) find(ctx context.Context, ref deploy.ObjectRef) (live *metav1.PartialObjectMetadata, err error) {
	err = c.Retry(ctx, nil, func(ctx context.Context) error {
		resource, err := c.FindKind(ctx, manifest.GVK(ref))
		if err != nil {
			return err
		}
		live, err = c.MetadataClient(resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return err
	})
	if errors.Is(err, cluster.ErrUnknownKind) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}
