package apply

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// TestForeignFrom: the earliest sign of a foreign write counts, since the cluster knows
// only the last write of a manager.
func TestForeignFrom(t *testing.T) {
	noon := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	wrote := func(manager string, op metav1.ManagedFieldsOperationType, minute int, fields string) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Time: &at, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	ours := wrote(cluster.FieldManager, metav1.ManagedFieldsOperationApply, 1, `{"f:data":{"f:a":{}}}`)
	edited := wrote("kubectl-edit", metav1.ManagedFieldsOperationUpdate, 5, `{"f:data":{"f:k":{}}}`)
	labelled := wrote("kubectl-label", metav1.ManagedFieldsOperationUpdate, 3, `{"f:metadata":{"f:labels":{"f:x":{}}}}`)
	for name, c := range map[string]struct {
		fields  []metav1.ManagedFieldsEntry
		drifted int // minute; 0: not known
		gone    bool
		want    int
	}{
		"the write of another manager":             {fields: []metav1.ManagedFieldsEntry{ours, labelled, edited}, want: 5},
		"a drift that was noticed before":          {fields: []metav1.ManagedFieldsEntry{ours, edited}, drifted: 4, want: 4},
		"a drift that was noticed later":           {fields: []metav1.ManagedFieldsEntry{ours, edited}, drifted: 6, want: 5},
		"a removed key, with a drift":              {fields: []metav1.ManagedFieldsEntry{ours, labelled}, drifted: 6, want: 6},
		"a removed key without a known drift":      {fields: []metav1.ManagedFieldsEntry{ours, labelled}, want: 1},
		"an object that is gone":                   {gone: true, want: 2},
		"an object that is gone, with known drift": {gone: true, drifted: 7, want: 7},
	} {
		ref := deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "settings"}
		target := &target{ref: ref, recorded: &deploy.InventoryItem{UpdatedAt: noon.Add(2 * time.Minute)}}
		if !c.gone {
			target.live = &metav1.ObjectMeta{ManagedFields: c.fields}
		}
		r := &applyRun{}
		if c.drifted > 0 {
			r.req.DriftedSince = map[string]time.Time{ref.Key(): noon.Add(time.Duration(c.drifted) * time.Minute)}
		}
		if got, want := r.foreignFrom(target), noon.Add(time.Duration(c.want)*time.Minute); !got.Equal(want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
