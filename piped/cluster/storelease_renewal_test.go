package cluster

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestLeaseThatIsRenewed: a Lease of another store that was observed to be renewed is
// valid for its duration, whatever time the renewals contain.
func TestLeaseThatIsRenewed(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cluster, err := NewCluster(ClusterConfig{Name: "test", MasterURL: "http://127.0.0.1:1", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	l := NewStoreLease(StoreLeaseConfig{Cluster: cluster, PipedID: "p", StoreID: "ours", Now: func() time.Time { return now }})
	theirs, seconds := "theirs", int32(60)
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &theirs, LeaseDurationSeconds: &seconds}}
	for _, step := range []struct {
		after   time.Duration // since the previous step
		renewed time.Duration // before now; negative: as in the previous step
		held    bool
	}{
		{0, time.Second, true},                // it was renewed a second ago
		{15 * time.Second, time.Hour, true},   // renewed by a clock that is an hour behind
		{15 * time.Second, time.Hour, true},   // and again
		{59 * time.Second, -1, true},          // not renewed any more
		{2 * time.Second, -1, false},          // the duration is over
		{time.Second, 30 * time.Second, true}, // renewed again, by another clock
		{61 * time.Second, -1, false},         // not renewed any more
	} {
		now = now.Add(step.after)
		if step.renewed >= 0 {
			at := metav1.NewMicroTime(now.Add(-step.renewed))
			lease.Spec.RenewTime = &at
		}
		if got := l.heldByAnother(lease); (got != nil) != step.held {
			t.Errorf("at %s: %v, want held %v", now.Format(time.TimeOnly), got, step.held)
		}
	}
}
