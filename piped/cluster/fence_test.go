package cluster_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

// fenceEnv is a cluster in which the test controls the conditions for writes.
type fenceEnv struct {
	*leaseEnv
	namespace string
	ahead     atomic.Int64          // nanoseconds by which the agent's clock is ahead
	noLeases  atomic.Bool           // requests for Leases fail
	refusal   atomic.Pointer[error] // of ClusterConfig.Permit
}

// leaseless is a transport that fails requests for Leases while its flag is set.
type leaseless struct {
	next http.RoundTripper
	down *atomic.Bool
}

func (l leaseless) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.down.Load() && strings.Contains(r.URL.Path, "/leases") {
		return nil, errors.New("the network is down for Leases")
	}
	return l.next.RoundTrip(r)
}

func (l leaseless) WrappedRoundTripper() http.RoundTripper { return l.next }

func newFenceEnv(t *testing.T) *fenceEnv {
	t.Helper()
	e := &fenceEnv{namespace: clustertest.Shared(t).Namespace(t)}
	now := func() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }
	e.leaseEnv = newLeaseEnvOf(t, cluster.ClusterConfig{
		Now: now,
		Permit: func(context.Context) error {
			if err := e.refusal.Load(); err != nil {
				return *err
			}
			return nil
		},
		WrapTransport: func(next http.RoundTripper) http.RoundTripper { return leaseless{next, &e.noLeases} },
	})
	return e
}

// write creates a ConfigMap, or tries to in a dry run.
func (e *fenceEnv) write(name string, dryRun ...string) error {
	_, err := e.cluster.Typed().CoreV1().ConfigMaps(e.namespace).Create(e.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{DryRun: dryRun})
	return err
}

// mustHold fails the test unless a write is refused with an error of kind Unavailable
// that contains the texts, and nothing was written. Dry runs are not refused.
func (e *fenceEnv) mustHold(texts ...string) {
	e.t.Helper()
	err := e.write("held")
	if !deploy.IsKind(err, deploy.Unavailable) {
		e.t.Fatalf("a write: %v", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			e.t.Errorf("the error does not say %q: %v", text, err)
		}
	}
	if _, err := e.cluster.Typed().CoreV1().ConfigMaps(e.namespace).Get(e.t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		e.t.Errorf("the refused write was executed: %v", err)
	}
	if err := e.write("dry", metav1.DryRunAll); err != nil {
		e.t.Errorf("a dry run: %v", err)
	}
}

// eventually fails unless ok becomes true.
func (e *fenceEnv) eventually(what string, ok func() bool) {
	e.t.Helper()
	for end := time.Now().Add(10 * time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			e.t.Fatal("not yet: " + what)
		}
	}
}

// TestWritesOfAnotherStoresCluster: while another store holds the Lease, no client may
// send a write. A running deletion waits, reports why, and continues when this store has
// the Lease.
func TestWritesOfAnotherStoresCluster(t *testing.T) {
	e := newFenceEnv(t)
	if err := e.write("victim"); err != nil {
		t.Fatal(err)
	}
	e.held("their-store", time.Second)
	l, _ := e.run("our-store", e.cluster)
	if err := l.Problem(t.Context()); err == nil {
		t.Fatal("another store holds the Lease")
	}
	e.mustHold(`cluster "prod"`, "host node-7", "store their-store")
	other, err := e.cluster.As("system:admin")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Typed().CoreV1().ConfigMaps(e.namespace).Delete(t.Context(), "victim", metav1.DeleteOptions{}); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("a write in another name: %v", err)
	}
	var said atomic.Pointer[string]
	done := make(chan error, 1)
	go func() {
		done <- e.cluster.RetryWrite(t.Context(), func(err error) { text := err.Error(); said.Store(&text) }, func(context.Context) error { return e.write("waited") })
	}()
	e.eventually("the write waits", func() bool { return said.Load() != nil })
	if !strings.Contains(*said.Load(), "host node-7 with store their-store") {
		t.Errorf("the write says %q", *said.Load())
	}
	if err := e.leases().Delete(t.Context(), cluster.LeaseName(e.pipedID), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the write that waited: %v", err)
	}
	if l.Known() != nil {
		t.Error("the write came before the Lease")
	}
}

// TestWritesEndBeforeTheLease: an agent that cannot renew its Lease stops writing well
// before another store may take over the cluster, and continues after the next renewal.
func TestWritesEndBeforeTheLease(t *testing.T) {
	e := newFenceEnv(t)
	e.noLeases.Store(true)
	e.run("our-store", e.cluster)
	e.mustHold("could not be renewed yet", "host node-1", "store our-store")
	failures := func() int { return strings.Count(e.log.String(), "cannot renew Lease") }
	e.eventually("the first attempt fails", func() bool { return failures() == 1 })
	e.noLeases.Store(false)
	e.eventually("the Lease is held", func() bool { return e.write("first") == nil })

	e.noLeases.Store(true)
	e.eventually("a renewal fails", func() bool { return failures() == 2 })
	if err := e.write("soon"); err != nil {
		t.Errorf("a write soon after a renewal: %v", err)
	}
	e.ahead.Add(int64(31 * time.Second))
	e.mustHold("could not be renewed for ", "the network is down for Leases", "another store")
	e.noLeases.Store(false)
	e.eventually("the Lease is renewed", func() bool { return e.write("second") == nil })
}

// TestWritesThatAreNotPermitted: no write may be sent while ClusterConfig.Permit refuses
// it.
func TestWritesThatAreNotPermitted(t *testing.T) {
	e := newFenceEnv(t)
	refusal := error(deploy.Errorf(deploy.Unavailable, "the database is another agent's"))
	e.refusal.Store(&refusal)
	e.mustHold("the database is another agent's")
	e.refusal.Store(nil)
	if err := e.write("free"); err != nil {
		t.Error(err)
	}
}
