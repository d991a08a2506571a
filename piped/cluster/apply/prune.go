package apply

import (
	"fmt"
	"slices"
	"strings"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// PruneRequest is the input of a prune plan.
type PruneRequest struct {
	// Inventory is the application's inventory before the apply.
	Inventory []deploy.InventoryItem
	// Applied is the inventory after the apply: complete and with UIDs.
	Applied []deploy.InventoryItem
	// Kinds are the kinds of config.PrunableKinds that may be deleted (spec.pruneKinds).
	Kinds []string
	// Permitted are objects whose deletion a user has permitted: they do not count towards
	// the limit.
	Permitted []deploy.ObjectRef
}

// TooMany is the error of a prune that would delete more objects than the limit.
type TooMany struct {
	Deletes []deploy.InventoryItem // all objects to delete, permitted ones included
	Of      int                    // number of objects in the inventory
	Limit   int
}

// Error lists the objects and explains how to permit their deletion.
func (e *TooMany) Error() string {
	return fmt.Sprintf("prune would delete %d of %d objects, more than the limit of %d, so nothing is deleted; check that Git still holds what it should; "+
		"if these are to go, permit it: pipectl application sync --app-id=%s --confirm-prune. Objects: %s",
		len(e.Deletes), e.Of, e.Limit, e.Deletes[0].ApplicationID, names(e.Deletes))
}

// PlanPrune returns the objects of the inventory that Git no longer contains: those to
// delete, and those held because config.PrunableKinds protects their kind. It plans no
// deletion if nothing was applied, of items without a UID, of objects in another cluster, and
// of objects that were applied in another API group. The error is of kind Invalid, a *TooMany,
// if more than 10 objects and more than a fifth of the inventory would be deleted, not
// counting PruneRequest.Permitted.
func PlanPrune(r PruneRequest) (deletes, held []deploy.InventoryItem, err error) {
	deletes, held = Leftovers(r)
	if err := r.check(deletes); err != nil {
		return nil, held, err
	}
	return deletes, held, nil
}

// CheckPrune returns, before the apply, the error that PlanPrune would return after it.
// Desired are the objects to be applied; r.Applied is ignored. Objects that only change their
// API group are not counted, because their UIDs identify them only after the apply.
func CheckPrune(r PruneRequest, desired []deploy.ObjectRef) error {
	kept := map[deploy.ObjectRef]bool{}
	r.Applied = nil
	for _, ref := range desired {
		kept[groupless(ref)] = true
		item := deploy.InventoryItem{Object: ref}
		if len(r.Inventory) > 0 {
			item.Cluster = r.Inventory[0].Cluster
		}
		r.Applied = append(r.Applied, item)
	}
	deletes, _ := Leftovers(r)
	return r.check(slices.DeleteFunc(deletes, func(i deploy.InventoryItem) bool { return kept[groupless(i.Object)] }))
}

// groupless returns ref without group and version.
func groupless(ref deploy.ObjectRef) deploy.ObjectRef {
	return deploy.ObjectRef{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// Leftovers is PlanPrune without the limit.
func Leftovers(r PruneRequest) (deletes, held []deploy.InventoryItem) {
	if len(r.Applied) == 0 {
		return nil, nil
	}
	keys, uids := map[string]bool{}, map[string]bool{}
	for _, item := range r.Applied {
		keys[item.Object.Key()] = true
		uids[item.UID] = true
	}
	for _, item := range r.Inventory {
		switch {
		case keys[item.Object.Key()] || uids[item.UID] || item.UID == "" || item.Cluster != r.Applied[0].Cluster:
		case slices.Contains(config.PrunableKinds(), item.Object.Kind) && !slices.Contains(r.Kinds, item.Object.Kind):
			held = append(held, item)
		default:
			deletes = append(deletes, item)
		}
	}
	return deletes, held
}

// check returns a *TooMany error if the objects to delete exceed the limit.
func (r PruneRequest) check(deletes []deploy.InventoryItem) error {
	permitted := map[string]bool{}
	for _, ref := range r.Permitted {
		permitted[ref.Key()] = true
	}
	counted := 0
	for _, item := range deletes {
		if !permitted[item.Object.Key()] {
			counted++
		}
	}
	if limit := max(10, len(r.Inventory)/5); counted > limit {
		return deploy.Errorf(deploy.Invalid, "%w", &TooMany{Deletes: deletes, Of: len(r.Inventory), Limit: limit})
	}
	return nil
}

// names returns the objects of items, sorted, for a message.
func names(items []deploy.InventoryItem) string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = fmt.Sprint(item.Object)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
