package live

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// ReadObject reads a live object; nil if it does not exist or has another UID. uid "" matches
// any. It retries nothing. created reports that another object created it: those are listed,
// because the agent needs no right to get them.
func ReadObject(ctx context.Context, c *cluster.Cluster, ref deploy.ObjectRef, uid string, created bool) (*unstructured.Unstructured, error) {
	var found *unstructured.Unstructured
	err := withTimeout(ctx, func(ctx context.Context) error {
		served, err := c.FindKind(ctx, manifest.GVK(ref))
		if err != nil {
			return err
		}
		client := c.ResourceClient(served, ref.Namespace)
		if !created {
			found, err = client.Get(ctx, ref.Name, metav1.GetOptions{})
			return err
		}
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: byObjectName(ref.Name)})
		if err == nil && len(list.Items) > 0 {
			found = &list.Items[0]
			found.SetGroupVersionKind(manifest.GVK(ref))
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, c.Classify(fmt.Errorf("read %s: %w", ref, err))
	case found != nil && uid != "" && string(found.GetUID()) != uid:
		return nil, nil
	}
	return found, nil
}

// byObjectName returns the field selector of the object with a name.
func byObjectName(name string) string { return fields.Set{"metadata.name": name}.String() }
