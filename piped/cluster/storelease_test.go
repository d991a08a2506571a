package cluster_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

// leaseEnv is a cluster in which Leases of one piped ID are held.
type leaseEnv struct {
	t       *testing.T
	cluster *cluster.Cluster // the agent's
	free    *cluster.Cluster // the test's own, which has no Lease
	pipedID string
	now     func() time.Time
	log     lockedLog
}

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newLeaseEnv(t *testing.T) *leaseEnv { return newLeaseEnvAt(t, time.Now) }

// newLeaseEnvAt returns an environment whose agent uses now as its clock.
func newLeaseEnvAt(t *testing.T, now func() time.Time) *leaseEnv {
	t.Helper()
	return newLeaseEnvOf(t, cluster.ClusterConfig{Now: now})
}

// newLeaseEnvOf returns an environment whose agent reaches the cluster through cfg.
func newLeaseEnvOf(t *testing.T, cfg cluster.ClusterConfig) *leaseEnv {
	t.Helper()
	connect := func(cfg cluster.ClusterConfig) *cluster.Cluster {
		cfg.Name, cfg.KubeConfigPath = "prod", clustertest.Shared(t).Kubeconfig()
		access, err := cluster.NewCluster(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(access.Close)
		return access
	}
	e := &leaseEnv{t: t, cluster: connect(cfg), free: connect(cluster.ClusterConfig{}), pipedID: strings.ReplaceAll(strings.ToLower(t.Name()), "/", "."), now: cfg.Now}
	t.Cleanup(func() {
		if err := e.leases().Delete(context.Background(), cluster.LeaseName(e.pipedID), metav1.DeleteOptions{}); err != nil {
			t.Logf("the Lease stays: %v", err)
		}
	})
	return e
}

func (e *leaseEnv) leases() interface {
	Create(context.Context, *coordinationv1.Lease, metav1.CreateOptions) (*coordinationv1.Lease, error)
	Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
} {
	return e.free.Typed().CoordinationV1().Leases(cluster.LeaseNamespace)
}

// held sets the Lease to one that a store renewed some time ago.
func (e *leaseEnv) held(store string, ago time.Duration) {
	e.t.Helper()
	at, seconds := metav1.NewMicroTime(time.Now().Add(-ago)), int32(60)
	_, err := e.leases().Create(e.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: cluster.LeaseName(e.pipedID), Annotations: map[string]string{"pipecd.dev/host": "node-7"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &store, RenewTime: &at, LeaseDurationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
}

// run runs the Lease of a store until stop is called.
func (e *leaseEnv) run(store string, c *cluster.Cluster) (l *cluster.StoreLease, stop func()) {
	l = cluster.NewStoreLease(cluster.StoreLeaseConfig{
		Cluster: c, PipedID: e.pipedID, StoreID: store, Host: "node-1", RenewEvery: 50 * time.Millisecond, RetryEvery: 50 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(&e.log, nil)), Now: e.now,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { l.Run(ctx); close(ended) }()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	e.t.Cleanup(stop)
	return l, stop
}

func (e *leaseEnv) holder() (holder string, renewed time.Time) {
	e.t.Helper()
	lease, err := e.leases().Get(context.Background(), cluster.LeaseName(e.pipedID), metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity, lease.Spec.RenewTime.Time
}

// TestLeaseOfAnotherStore: while another store's Lease is valid, there is an error that
// names its host and store. Once the Lease has expired, this store acquires it.
func TestLeaseOfAnotherStore(t *testing.T) {
	e := newLeaseEnv(t)
	e.held("their-store", 40*time.Second)
	l, _ := e.run("our-store", e.cluster)
	err := l.Problem(t.Context())
	if !deploy.IsKind(err, deploy.Unavailable) {
		t.Fatalf("another store holds the Lease: %v", err)
	}
	for _, text := range []string{`cluster "prod"`, "host node-7", "store their-store", "our-store", "default/" + cluster.LeaseName(e.pipedID)} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not say %q: %v", text, err)
		}
	}
	// Only now it may expire soon: it lasts 45 s instead of 60 s.
	_, err = e.free.Typed().CoordinationV1().Leases(cluster.LeaseNamespace).Patch(t.Context(), cluster.LeaseName(e.pipedID), types.MergePatchType,
		[]byte(`{"spec":{"leaseDurationSeconds":45}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the error is gone when the Lease has expired", func() bool { return l.Known() == nil })
	if holder, _ := e.holder(); holder != "our-store" {
		t.Errorf("the Lease is held by %s", holder)
	}
}

// TestLeaseWithAnotherClock: an agent with a wrong clock must not take a valid Lease, and
// must not write one that others consider expired or valid for too long.
func TestLeaseWithAnotherClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": 5 * time.Minute, "behind": -5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			e := newLeaseEnvAt(t, func() time.Time { return time.Now().Add(off) })
			e.held("their-store", time.Second)
			l, stop := e.run("our-store", e.cluster)
			if err := l.Problem(t.Context()); !deploy.IsKind(err, deploy.Unavailable) {
				t.Errorf("another store holds the Lease: %v", err)
			}
			stop()
			if err := e.leases().Delete(t.Context(), cluster.LeaseName(e.pipedID), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			l, _ = e.run("our-store", e.cluster)
			if err := l.Problem(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, renewed := e.holder(); time.Since(renewed).Abs() > 2*time.Minute {
				t.Errorf("renewed %s ago", time.Since(renewed))
			}
		})
	}
}

// TestLeaseOfTheSameStore: the same store resumes at once, renews, and releases the Lease
// when its agent stops.
func TestLeaseOfTheSameStore(t *testing.T) {
	e := newLeaseEnv(t)
	e.held("our-store", time.Second)
	l, stop := e.run("our-store", e.cluster)
	if err := l.Problem(t.Context()); err != nil {
		t.Fatalf("the store's own Lease: %v", err)
	}
	_, first := e.holder()
	clustertest.Eventually(t, "the Lease is renewed", func() bool {
		_, renewed := e.holder()
		return renewed.After(first)
	})
	stop()
	if holder, _ := e.holder(); holder != "" {
		t.Errorf("after the agent has stopped the Lease is held by %q", holder)
	}
}

// TestLeaseWithoutRights: an account that may not write Leases gets one warning and
// manages the cluster.
func TestLeaseWithoutRights(t *testing.T) {
	e := newLeaseEnv(t)
	unprivileged, err := e.cluster.As("system:serviceaccount:default:" + "lease-" + "nobody")
	if err != nil {
		t.Fatal(err)
	}
	l, stop := e.run("our-store", unprivileged)
	if err := l.Problem(t.Context()); err != nil {
		t.Fatalf("without rights: %v", err)
	}
	time.Sleep(300 * time.Millisecond) // several attempts
	stop()
	if n := strings.Count(e.log.String(), "cannot write Lease"); n != 1 || !strings.Contains(e.log.String(), "add to a Role in namespace default") {
		t.Errorf("%d warnings: %s", n, e.log.String())
	}
}

// TestLeaseName: if an ID cannot be part of a name, the name contains its digest.
func TestLeaseName(t *testing.T) {
	if got := cluster.LeaseName("prod-1"); got != "piped-prod-1" {
		t.Errorf("prod-1: %s", got)
	}
	names := map[string]bool{}
	for _, id := range []string{"prod-1", "Prod-1", "prod 1", "prod/1", strings.Repeat("x", 300)} {
		names[cluster.LeaseName(id)] = true
	}
	if len(names) != 5 {
		t.Errorf("the names of five IDs: %v", names)
	}
}
