package live

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestWhatAMemberCallsAChange: a write of the status is no change. A scaling is one, so
// that the object is compared. The comparison finds no difference if replicas is not one
// of our fields.
func TestWhatAMemberCallsAChange(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	object := func(version string, generation int64, scaledAt, statusAt time.Time) *metav1.PartialObjectMetadata {
		o := metadataOfMember(1)
		o.ResourceVersion, o.Generation = version, generation
		o.ManagedFields = append(o.ManagedFields,
			applytest.Written("hpa", metav1.ManagedFieldsOperationUpdate, "scale", `{"f:spec":{"f:replicas":{}}}`, scaledAt),
			applytest.Written("controller", metav1.ManagedFieldsOperationUpdate, "status", `{"f:status":{}}`, statusAt))
		return o
	}
	cases := map[string]struct {
		after         *metav1.PartialObjectMetadata
		changed, mark bool // whether the observed version, and the mark, differ
	}{
		"its status was written": {object("11", 3, at, at.Add(time.Second)), false, false},
		"it was scaled":          {object("11", 4, at.Add(time.Second), at), true, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, err := reduceMember(object("10", 3, at, at), nil)
			if err != nil {
				t.Fatal(err)
			}
			after, err := reduceMember(c.after, before)
			if err != nil {
				t.Fatal(err)
			}
			older, newer := before.(*cachedMember), after.(*cachedMember)
			if older.seen == newer.seen == c.changed || older.mark == newer.mark == c.mark {
				t.Errorf("seen %s, then %s (want changed %t); mark %s, then %s (want changed %t)",
					older.seen, newer.seen, c.changed, older.mark, newer.mark, c.mark)
			}
		})
	}
}

func TestInSync(t *testing.T) {
	item := deploy.InventoryItem{UID: "u", OwnedHash: "o", Mark: "g:1"}
	member := Member{UID: "u", OwnedHash: "o", Mark: "g:1"}
	cases := map[string]struct {
		item   func(*deploy.InventoryItem)
		member func(*Member)
		want   bool
	}{
		"as it was applied":             {want: true},
		"its status was written":        {member: func(m *Member) { m.ResourceVersion = "12" }, want: true},
		"written since":                 {member: func(m *Member) { m.Mark = "g:2" }},
		"created anew":                  {member: func(m *Member) { m.UID = "v" }},
		"a field was taken":             {member: func(m *Member) { m.OwnedHash = "p" }},
		"all fields were taken":         {member: func(m *Member) { m.OwnedHash = "" }},
		"it is being deleted":           {member: func(m *Member) { m.Deleting = true }},
		"of an earlier version":         {item: func(i *deploy.InventoryItem) { i.Mark = "" }, want: true},
		"of an earlier one, and taken":  {item: func(i *deploy.InventoryItem) { i.Mark = "" }, member: func(m *Member) { m.OwnedHash = "p" }},
		"of an earlier one, and anew":   {item: func(i *deploy.InventoryItem) { i.Mark = "" }, member: func(m *Member) { m.UID = "v" }},
		"never applied":                 {item: func(i *deploy.InventoryItem) { i.OwnedHash = "" }, member: func(m *Member) { m.OwnedHash = "" }},
		"recorded without what it is":   {item: func(i *deploy.InventoryItem) { i.UID = "" }, member: func(m *Member) { m.UID = "" }},
		"its mark fell back to a lower": {member: func(m *Member) { m.Mark = "g:0" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			i, m := item, member
			if c.item != nil {
				c.item(&i)
			}
			if c.member != nil {
				c.member(&m)
			}
			if got := InSync(i, m); got != c.want {
				t.Errorf("in sync %t, want %t", got, c.want)
			}
		})
	}
}
