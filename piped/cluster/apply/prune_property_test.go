package apply

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// history is one random application history as a prune sees it, with the true state of
// each object.
type history struct {
	request PruneRequest
	truth   map[string]fate // by UID
	// deletable is how many of the inventory's objects may be deleted, regardless of the
	// limit.
	deletable int
}

// fate is the true state of one object of the inventory.
type fate struct {
	wanted    bool // Git still declares it, under any API version or group
	foreign   bool // it is in another cluster, or not known to exist
	protected bool // its kind is deleted only when named, and it is not named
}

// newHistory returns a random history. Each applied object stays, is removed, is
// recreated under its name, changes its version or group, is renamed or moved to another
// namespace, or is in another cluster.
func newHistory(r *rand.Rand) history {
	h := history{truth: map[string]fate{}}
	kinds := []deploy.ObjectRef{
		{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}, {Version: "v1", Kind: "Namespace"},
		{Version: "v1", Kind: "PersistentVolumeClaim"}, {Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	}
	protected := []string{"Namespace", "PersistentVolumeClaim", "CustomResourceDefinition", "PersistentVolume"}
	for _, kind := range protected {
		if r.IntN(4) == 0 {
			h.request.Kinds = append(h.request.Kinds, kind)
		}
	}
	applied := func(ref deploy.ObjectRef, uid string) {
		h.request.Applied = append(h.request.Applied, deploy.InventoryItem{ApplicationID: "app", Cluster: "here", Object: ref, UID: uid})
	}
	going := 2 + r.IntN(12) // of 14: the share of objects that are removed
	for i := range r.IntN(60) {
		ref := kinds[r.IntN(len(kinds))]
		ref.Namespace, ref.Name = fmt.Sprintf("ns-%d", r.IntN(3)), fmt.Sprintf("o-%d", i)
		item := deploy.InventoryItem{ApplicationID: "app", Cluster: "here", Object: ref, UID: fmt.Sprintf("uid-%d", i)}
		f := fate{protected: slices.Contains(protected, ref.Kind) && !slices.Contains(h.request.Kinds, ref.Kind)}
		fresh, to := "new-"+item.UID, ref
		switch choice := r.IntN(14); {
		case choice == 0: // recreated under its name: the record is of the deleted object
			f.wanted = true
			applied(ref, fresh)
		case choice == 1: // another version
			to.Version, f.wanted = "v2", true
			applied(to, item.UID)
		case choice == 2: // another group, the same object
			to.Group, to.Version, f.wanted = "networking.k8s.io", "v1", true
			applied(to, item.UID)
		case choice == 3:
			item.Cluster, f.foreign = "there", true
		case choice == 4:
			item.UID, f.foreign = "", true
		case choice == 5: // renamed
			to.Name += "-renamed"
			applied(to, fresh)
		case choice == 6: // moved
			to.Namespace += "-moved"
			applied(to, fresh)
		case choice < going:
		default:
			f.wanted = true
			applied(ref, item.UID)
		}
		h.request.Inventory = append(h.request.Inventory, item)
		if item.UID != "" {
			h.truth[item.UID] = f
		}
		if !f.wanted && !f.foreign && !f.protected {
			h.deletable++
			if r.IntN(3) == 0 {
				h.request.Permitted = append(h.request.Permitted, item.Object)
			}
		}
	}
	switch r.IntN(10) {
	case 0: // an empty or a failed render applies nothing
		h.request.Applied = nil
	case 1: // an additional new object
		applied(deploy.ObjectRef{Version: "v1", Kind: "Service", Namespace: "ns-0", Name: "new"}, "uid-new")
	}
	r.Shuffle(len(h.request.Inventory), func(i, j int) {
		inv := h.request.Inventory
		inv[i], inv[j] = inv[j], inv[i]
	})
	return h
}

// wrong describes the error in a plan, or returns "" for a correct plan.
func (h history) wrong(deletes, held []deploy.InventoryItem, err error) string {
	var many *TooMany
	unpermitted := h.deletable - len(h.request.Permitted)
	limit := max(10, len(h.request.Inventory)/5)
	switch {
	case len(h.request.Applied) == 0 && len(deletes)+len(held) > 0:
		return "deletes although nothing was applied"
	case len(h.request.Applied) == 0:
		return ""
	case errors.As(err, &many) != (unpermitted > limit):
		return fmt.Sprintf("%d unpermitted deletions with a limit of %d: %v", unpermitted, limit, err)
	case err != nil && len(deletes) > 0:
		return "deletes what it refuses"
	case err == nil && len(deletes) != h.deletable:
		return fmt.Sprintf("%d deletes, want %d", len(deletes), h.deletable)
	}
	for _, item := range deletes {
		if f, known := h.truth[item.UID]; !known || f != (fate{}) {
			return fmt.Sprintf("deletes %s (%s), which is %+v", item.Object, item.UID, f)
		}
	}
	for _, item := range held {
		if f := h.truth[item.UID]; !f.protected || f.wanted || f.foreign {
			return fmt.Sprintf("holds %s, which is %+v", item.Object, f)
		}
	}
	return ""
}

// TestPruneDeletesNothingWrong: checks the plans for 10,000 random inventories and
// renders against the known state of each object.
func TestPruneDeletesNothingWrong(t *testing.T) {
	var plans, refused, deleted int
	for seed := range uint64(10_000) {
		h := newHistory(rand.New(rand.NewPCG(seed, 1)))
		deletes, held, err := PlanPrune(h.request)
		if wrong := h.wrong(deletes, held, err); wrong != "" {
			t.Fatalf("seed %d: %s\n%+v", seed, wrong, h.request)
		}
		var desired []deploy.ObjectRef
		for _, item := range h.request.Applied {
			desired = append(desired, item.Object)
		}
		before := CheckPrune(h.request, desired)
		if len(desired) > 0 && err == nil && before != nil {
			t.Fatalf("seed %d: refused before and not after: %v", seed, before)
		}
		plans, deleted = plans+1, deleted+len(deletes)
		if err != nil {
			refused++
		}
	}
	if refused < plans/50 || deleted < plans {
		t.Errorf("%d plans with %d deletes, %d refused: too few to prove anything", plans, deleted, refused)
	}
}
