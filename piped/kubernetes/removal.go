package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// Removal is what deleting all that an application has in a cluster comes to, as
// the cluster is now.
type Removal struct {
	// Levels are the objects to delete, in the order of deletion: the reverse of the
	// order of applying. What is in one level goes at the same time.
	Levels [][]deploy.InventoryItem
	// Kept are objects that are there and stay, by name.
	Kept []KeptObject
	// Gone are items whose objects do not exist any more.
	Gone []deploy.InventoryItem
}

// KeptObject is an object that a removal leaves, and why.
type KeptObject struct {
	Item   deploy.InventoryItem
	Reason string
	// Over: it is not the application's any more, so that the application can
	// forget it.
	Over bool
}

// Deletes returns the objects to delete in the order of deletion.
func (r Removal) Deletes() []deploy.InventoryItem { return slices.Concat(r.Levels...) }

// PlanRemoval finds out what of the inventory's items, which are of this cluster,
// Delete would delete. Objects of config.PrunableKinds are kept unless kinds names
// their kind. It writes nothing. The error is Unavailable when the cluster does not
// answer.
func (c *Cluster) PlanRemoval(ctx context.Context, pipedID string, items []deploy.InventoryItem, kinds []string) (Removal, error) {
	lives := make([]*metav1.PartialObjectMetadata, len(items))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(concurrency)
	for i, item := range items {
		g.Go(func() (err error) {
			if lives[i], err = c.find(ctx, item.Object); err != nil {
				return fmt.Errorf("read %s: %w", item.Object, c.Classify(err))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Removal{}, err
	}
	var r Removal
	var deletes []deploy.InventoryItem
	for i, item := range items {
		if lives[i] == nil {
			r.Gone = append(r.Gone, item)
			continue
		}
		reason, over := standing(lives[i], pipedID, item)
		if kind := item.Object.Kind; reason == "" && slices.Contains(config.PrunableKinds(), kind) && !slices.Contains(kinds, kind) {
			reason = "its kind is deleted only if spec.pruneKinds named it; delete it by hand if it is not needed"
		}
		if reason == "" {
			deletes = append(deletes, item)
		} else {
			r.Kept = append(r.Kept, KeptObject{item, reason, over})
		}
	}
	slices.SortFunc(deletes, byObject)
	slices.SortFunc(r.Kept, func(a, b KeptObject) int { return byObject(a.Item, b.Item) })
	r.Levels = byLevel(deletes, func(i deploy.InventoryItem) schema.GroupKind { return groupKind(i.Object) })
	slices.Reverse(r.Levels)
	return r, nil
}

func byObject(a, b deploy.InventoryItem) int { return strings.Compare(a.Object.Key(), b.Object.Key()) }
