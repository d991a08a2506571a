package apply

import (
	"fmt"
	"slices"
	"strings"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// PruneRequest is what a prune is planned from.
type PruneRequest struct {
	// Inventory is what the application had applied before.
	Inventory []deploy.InventoryItem
	// Applied is what it has applied now, complete and with the objects' UIDs.
	Applied []deploy.InventoryItem
	// Kinds are those of config.PrunableKinds that may be deleted all the same.
	Kinds []string
	// Permitted are objects whose deletion a person permitted: they do not count
	// against the limit on how much one prune deletes.
	Permitted []deploy.ObjectRef
}

// TooMany is the error of a prune that would delete more than the limit.
type TooMany struct {
	Deletes []deploy.InventoryItem // all of them
	Of      int                    // objects in the inventory
	Limit   int
}

// Error lists what would be deleted, and says how to permit it.
func (e *TooMany) Error() string {
	return fmt.Sprintf("prune would delete %d of %d objects, more than the limit of %d, so nothing is deleted; check that Git still holds what it should; "+
		"if these are to go, permit it: pipectl application sync --app-id=%s --confirm-prune. Objects: %s",
		len(e.Deletes), e.Of, e.Limit, e.Deletes[0].ApplicationID, names(e.Deletes))
}

// PlanPrune decides which objects of the inventory are deleted because Git does
// not have them any more, and which of those are held because their kind is
// protected. It deletes nothing when nothing was applied, never an object of
// another cluster or one that was applied under another API group, and refuses
// (Invalid, a *TooMany) to delete more than 10 objects or a fifth of the
// inventory, whichever is more, without counting those permitted.
func PlanPrune(r PruneRequest) (deletes, held []deploy.InventoryItem, err error) {
	deletes, held = Leftovers(r)
	if err := r.check(deletes); err != nil {
		return nil, held, err
	}
	return deletes, held, nil
}

// CheckPrune refuses, before anything is written, what PlanPrune will refuse
// after. Desired is what is about to be applied. An object that only changes its
// API group is not known as itself before it has been applied: it is not counted
// here.
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

func groupless(ref deploy.ObjectRef) deploy.ObjectRef {
	return deploy.ObjectRef{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// Leftovers returns what PlanPrune would delete and hold if there were no limit.
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

// check refuses to delete more than the limit.
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

// names lists items for a message.
func names(items []deploy.InventoryItem) string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = fmt.Sprint(item.Object)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
