package kubernetes

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
	// Confirmed lifts the limit on how much one prune deletes.
	Confirmed bool
}

// PlanPrune decides which objects of the inventory are deleted because Git does
// not have them any more, and which of those are held because their kind is
// protected. It deletes nothing when nothing was applied, never an object that
// was applied under another API group, and refuses (Invalid, listing them) to
// delete more than 10 objects or a fifth of the inventory, whichever is more,
// unless that was confirmed.
func PlanPrune(r PruneRequest) (deletes, held []deploy.InventoryItem, err error) {
	if len(r.Applied) == 0 {
		return nil, nil, nil
	}
	keys, uids := map[string]bool{}, map[string]bool{}
	for _, item := range r.Applied {
		keys[item.Object.Key()] = true
		uids[item.UID] = true
	}
	for _, item := range r.Inventory {
		switch {
		case keys[item.Object.Key()] || uids[item.UID] || item.UID == "":
		case slices.Contains(config.PrunableKinds(), item.Object.Kind) && !slices.Contains(r.Kinds, item.Object.Kind):
			held = append(held, item)
		default:
			deletes = append(deletes, item)
		}
	}
	if limit := max(10, len(r.Inventory)/5); len(deletes) > limit && !r.Confirmed {
		return nil, held, deploy.Errorf(deploy.Invalid,
			"prune would delete %d of %d objects, more than the limit of %d; check that Git still holds what it should; if it does, delete them by hand or prune in smaller commits. Objects: %s",
			len(deletes), len(r.Inventory), limit, names(deletes))
	}
	return deletes, held, nil
}

// names lists items for a person.
func names(items []deploy.InventoryItem) string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = fmt.Sprint(item.Object)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
