package workloads

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/rollout"
)

// controllerLease is the Lease by which the replicas of kube-controller-manager elect their
// leader.
var controllerLease = types.NamespacedName{Namespace: metav1.NamespaceSystem, Name: "kube-controller-manager"}

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// How long a read of the Lease is cached: leaseMissing if it does not exist or the agent may
// not read it, otherwise leaseFresh.
const (
	leaseFresh   = 900 * time.Millisecond
	leaseMissing = 5 * time.Minute
)

// lease reads and caches the Lease of a cluster's controllers for all waits on the cluster.
type lease struct {
	cluster *cluster.Cluster
	name    types.NamespacedName
	now     func() time.Time

	mu   sync.Mutex
	last rollout.Lease
	err  error     // the error of the last read
	good time.Time // last and err are cached until then
}

func newLease(c *cluster.Cluster) *lease {
	return &lease{cluster: c, name: controllerLease, now: time.Now}
}

// read returns the Lease, or the error of reading it, at most leaseFresh old. A Lease that
// does not exist or may not be read is returned as the zero Lease and cached for
// leaseMissing.
func (l *lease) read(ctx context.Context) (rollout.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now().Before(l.good) {
		return l.last, l.err
	}
	live, err := l.cluster.Dynamic().Resource(leases).Namespace(l.name.Namespace).Get(ctx, l.name.Name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return rollout.Lease{}, context.Cause(ctx) // of this caller; the other waits read for themselves
	}
	l.last, l.err, l.good = rollout.Lease{}, nil, time.Time{}
	fresh := leaseFresh
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		fresh = leaseMissing
	case err != nil:
		l.err = l.cluster.Classify(fmt.Errorf("read Lease %s: %w", l.name, err))
	default:
		seconds, _, _ := unstructured.NestedInt64(live.Object, "spec", "leaseDurationSeconds")
		l.last = rollout.Lease{
			Renewal: live.GetResourceVersion(), Lasts: time.Duration(seconds) * time.Second,
			Renewed: l.timeOf(live, "renewTime"), Acquired: l.timeOf(live, "acquireTime"),
		}
	}
	l.good = l.now().Add(fresh)
	return l.last, l.err
}

// timeOf returns a time in the spec of the Lease by the agent's clock, zero if it is missing
// or malformed.
func (l *lease) timeOf(live *unstructured.Unstructured, field string) time.Time {
	text, _, _ := unstructured.NestedString(live.Object, "spec", field)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return at.Add(-l.cluster.Skew())
}
