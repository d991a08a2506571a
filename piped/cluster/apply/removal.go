package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Removal is the plan to delete all objects of an application in a cluster.
type Removal struct {
	// Levels are the objects to delete, in the order of deletion: the reverse of the order
	// of applying. Objects of one level are deleted concurrently. Objects that could not be
	// read are included.
	Levels [][]deploy.InventoryItem
	// Kept are the live objects that are not deleted, sorted by key.
	Kept []KeptObject
	// Gone are the items whose objects no longer exist.
	Gone []deploy.InventoryItem
}

// KeptObject is an object that a removal does not delete.
type KeptObject struct {
	Item   deploy.InventoryItem
	Reason string // for users
	// Over reports that the object is no longer the application's, so that its inventory
	// item can be deleted.
	Over bool
}

// Deletes returns the objects to delete in the order of deletion.
func (r Removal) Deletes() []deploy.InventoryItem { return slices.Concat(r.Levels...) }

// PlanRemoval plans the deletion of all items, which must be of this cluster. It keeps the
// objects that Delete would skip, and those of config.PrunableKinds unless kinds contains
// their kind. It plans to delete objects that it cannot read, because the deletion reads them
// again. It writes nothing. The error is of kind Unavailable if the cluster answers no
// request.
func (c *Client) PlanRemoval(ctx context.Context, pipedID string, items []deploy.InventoryItem, kinds []string) (Removal, error) {
	lives, errs := make([]*metav1.PartialObjectMetadata, len(items)), make([]error, len(items))
	var g errgroup.Group
	g.SetLimit(concurrency)
	for i, item := range items {
		g.Go(func() error {
			var err error
			if lives[i], err = c.find(ctx, item.Object); err != nil {
				errs[i] = fmt.Errorf("read %s: %w", item.Object, c.Classify(err))
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	if len(items) > 0 && !slices.ContainsFunc(errs, answered) {
		return Removal{}, errs[0]
	}
	var r Removal
	var deletes []deploy.InventoryItem
	for i, item := range items {
		var reason string
		var over bool
		switch {
		case lives[i] != nil:
			reason, over = standing(lives[i], pipedID, item)
		case errs[i] == nil:
			r.Gone = append(r.Gone, item)
			continue
		}
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
	r.Levels = byLevel(deletes, func(i deploy.InventoryItem) schema.GroupKind { return manifest.GroupKind(i.Object) })
	slices.Reverse(r.Levels)
	return r, nil
}

// answered reports whether the cluster answered a read whose error, or nil, is err.
func answered(err error) bool {
	return !deploy.IsKind(err, deploy.Unavailable) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}

func byObject(a, b deploy.InventoryItem) int { return strings.Compare(a.Object.Key(), b.Object.Key()) }
