package apply

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

func TestPlanPrune(t *testing.T) {
	item := func(kind, name string) deploy.InventoryItem {
		return deploy.InventoryItem{ApplicationID: "app", Object: deploy.ObjectRef{Kind: kind, Namespace: "shop", Name: name}, UID: kind + name}
	}
	many := func(n int) (items []deploy.InventoryItem) {
		for i := range n {
			items = append(items, item("ConfigMap", fmt.Sprintf("c%02d", i)))
		}
		return items
	}
	elsewhere := item("ConfigMap", "far")
	elsewhere.Cluster = "other"
	moved := item("Ingress", "web")
	moved.Object.Group, moved.Object.Version = "extensions", "v1beta1"
	movedTo := item("Ingress", "web")
	movedTo.Object.Group, movedTo.Object.Version = "networking.k8s.io", "v1"
	newVersion := item("ConfigMap", "a")
	newVersion.Object.Version, newVersion.UID = "v2", "recreated"
	neverSeen := item("ConfigMap", "ghost")
	neverSeen.UID = ""

	refs := func(items []deploy.InventoryItem) (out []deploy.ObjectRef) {
		for _, i := range items {
			out = append(out, i.Object)
		}
		return out
	}
	cases := map[string]struct {
		request PruneRequest
		deletes []deploy.InventoryItem
		held    []deploy.InventoryItem
		refused string
	}{
		"what Git does not have is deleted": {
			request: PruneRequest{Inventory: []deploy.InventoryItem{item("ConfigMap", "a"), item("ConfigMap", "b")}, Applied: []deploy.InventoryItem{item("ConfigMap", "a")}},
			deletes: []deploy.InventoryItem{item("ConfigMap", "b")},
		},
		"nothing applied deletes nothing": {
			request: PruneRequest{Inventory: many(3)},
		},
		"protected kinds are held": {
			request: PruneRequest{
				Inventory: []deploy.InventoryItem{item("Namespace", "n"), item("PersistentVolumeClaim", "data"), item("Secret", "s")},
				Applied:   many(1),
			},
			deletes: []deploy.InventoryItem{item("Secret", "s")},
			held:    []deploy.InventoryItem{item("Namespace", "n"), item("PersistentVolumeClaim", "data")},
		},
		"protected kinds go when named": {
			request: PruneRequest{
				Inventory: []deploy.InventoryItem{item("Namespace", "n"), item("PersistentVolumeClaim", "data")},
				Applied:   many(1), Kinds: []string{"PersistentVolumeClaim"},
			},
			deletes: []deploy.InventoryItem{item("PersistentVolumeClaim", "data")},
			held:    []deploy.InventoryItem{item("Namespace", "n")},
		},
		"the same object under another group stays": {
			request: PruneRequest{Inventory: []deploy.InventoryItem{moved}, Applied: []deploy.InventoryItem{movedTo}},
		},
		"another version or UID under the same name stays": {
			request: PruneRequest{Inventory: []deploy.InventoryItem{item("ConfigMap", "a")}, Applied: []deploy.InventoryItem{newVersion}},
		},
		"an object that was never seen stays": {
			request: PruneRequest{Inventory: []deploy.InventoryItem{neverSeen}, Applied: many(1)},
		},
		"ten of eleven are not too many": {
			request: PruneRequest{Inventory: many(11), Applied: many(1)},
			deletes: many(11)[1:],
		},
		"eleven of twelve are too many": {
			request: PruneRequest{Inventory: many(12), Applied: many(1)},
			refused: "prune would delete 11 of 12 objects, more than the limit of 10, so nothing is deleted; check that Git still holds what it should; " +
				"if these are to go, permit it: pipectl application sync --app-id=app --confirm-prune. Objects: " +
				"ConfigMap shop/c01, ConfigMap shop/c02, ConfigMap shop/c03, ConfigMap shop/c04, ConfigMap shop/c05, ConfigMap shop/c06, ConfigMap shop/c07, ConfigMap shop/c08, ConfigMap shop/c09, ConfigMap shop/c10, ConfigMap shop/c11",
		},
		"a fifth of a hundred is not too many": {
			request: PruneRequest{Inventory: many(100), Applied: many(80)},
			deletes: many(100)[80:],
		},
		"what was permitted does not count": {
			request: PruneRequest{Inventory: many(12), Applied: many(1), Permitted: refs(many(12)[1:])},
			deletes: many(12)[1:],
		},
		"the limit is for what is beyond it": {
			request: PruneRequest{Inventory: many(32), Applied: many(1), Permitted: refs(many(22))},
			deletes: many(32)[1:],
		},
		"others than those permitted are too many": {
			request: PruneRequest{Inventory: many(15), Applied: many(1), Permitted: refs(many(4))},
			refused: "prune would delete 14 of 15 objects, more than the limit of 10, so nothing is deleted; check that Git still holds what it should; " +
				"if these are to go, permit it: pipectl application sync --app-id=app --confirm-prune. Objects: " + names(many(15)[1:]),
		},
		"another cluster's objects stay": {
			request: PruneRequest{Inventory: []deploy.InventoryItem{elsewhere}, Applied: many(1)},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			deletes, held, err := PlanPrune(c.request)
			if c.refused != "" {
				if fmt.Sprint(err) != c.refused || deploy.KindOf(err) != deploy.Invalid {
					t.Errorf("error (%v):\n%v\nwant (invalid):\n%s", deploy.KindOf(err), err, c.refused)
				}
			} else if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(c.deletes, deletes); diff != "" {
				t.Errorf("deletes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.held, held); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
}
