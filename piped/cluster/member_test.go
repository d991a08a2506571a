package cluster

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhatAMemberCallsAChange: who writes the status has changed nothing; who scales
// an object has, so that it is looked at, and is found as it was if the replicas are
// no field of ours.
func TestWhatAMemberCallsAChange(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	object := func(version string, generation int64, scaledAt, statusAt time.Time) *metav1.PartialObjectMetadata {
		o := metadataOfMember(1)
		o.ResourceVersion, o.Generation = version, generation
		o.ManagedFields = append(o.ManagedFields,
			written("hpa", metav1.ManagedFieldsOperationUpdate, "scale", `{"f:spec":{"f:replicas":{}}}`, scaledAt),
			written("controller", metav1.ManagedFieldsOperationUpdate, "status", `{"f:status":{}}`, statusAt))
		return o
	}
	cases := map[string]struct {
		after         *metav1.PartialObjectMetadata
		changed, mark bool // whether the version that was seen, and the mark, is another
	}{
		"its status was written": {object("11", 3, at, at.Add(time.Second)), false, false},
		"it was scaled":          {object("11", 4, at.Add(time.Second), at), true, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, err := keepMember(object("10", 3, at, at), nil)
			if err != nil {
				t.Fatal(err)
			}
			after, err := keepMember(c.after, before)
			if err != nil {
				t.Fatal(err)
			}
			older, newer := before.(*keptMember), after.(*keptMember)
			if older.seen == newer.seen == c.changed || older.mark == newer.mark == c.mark {
				t.Errorf("seen %s, then %s (want changed %t); mark %s, then %s (want changed %t)",
					older.seen, newer.seen, c.changed, older.mark, newer.mark, c.mark)
			}
		})
	}
}
