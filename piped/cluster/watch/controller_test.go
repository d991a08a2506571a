package watch

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// env is a controller on a real cluster that counts the watches it
// opens. Its ConfigMaps carry the label lab=<namespace>.
type env struct {
	*Controller
	ns string

	mu      sync.Mutex
	watched []string // paths of watch requests
}

func newEnv(t *testing.T) *env {
	t.Helper()
	shared := clustertest.Shared(t)
	l := &env{ns: shared.Namespace(t)}
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig(), WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return &watchCounter{env: l, next: next}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l.Controller = New(c)
	return l
}

type watchCounter struct {
	env  *env
	next http.RoundTripper
}

func (c *watchCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") != "" {
		c.env.mu.Lock()
		c.env.watched = append(c.env.watched, r.URL.Path)
		c.env.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

// WrappedRoundTripper lets the client find the transport to close.
func (c *watchCounter) WrappedRoundTripper() http.RoundTripper { return c.next }

// run runs the controller; the returned function stops it and waits.
func (l *env) run(t *testing.T) (stop func()) {
	t.Helper()
	return clustertest.Run(t, l.Run)
}

func (l *env) selector() string { return "lab=" + l.ns }

func (l *env) put(t *testing.T, name, value string) {
	t.Helper()
	client := l.cluster.Typed().CoreV1().ConfigMaps(l.ns)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"lab": l.ns}}, Data: map[string]string{"value": value}}
	_, err := client.Update(t.Context(), object, metav1.UpdateOptions{})
	if deploy.IsKind(l.cluster.Classify(err), deploy.NotFound) {
		_, err = client.Create(t.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (l *env) remove(t *testing.T, name string) {
	t.Helper()
	if err := l.cluster.Typed().CoreV1().ConfigMaps(l.ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// calls records the values that a handler saw, "-" for a deleted object.
type calls struct {
	mu   sync.Mutex
	seen []string
}

func (c *calls) record(w *Watch, key types.NamespacedName) {
	value := "-"
	if u, ok := w.Get(key).(*unstructured.Unstructured); ok {
		value, _, _ = unstructured.NestedString(u.Object, "data", "value")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, key.Name+"="+value)
}

func (c *calls) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

func TestOnlyTheHandlerThatFailedRunsAgain(t *testing.T) {
	l := newEnv(t)
	w, err := l.Watch(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err != nil {
		t.Fatal(err)
	}
	var good, bad calls
	failures := 3
	if err := errors.Join(
		w.Handle("good", func(_ context.Context, key types.NamespacedName) error { good.record(w, key); return nil }),
		w.Handle("bad", func(_ context.Context, key types.NamespacedName) error {
			bad.record(w, key)
			if failures--; failures >= 0 {
				return errors.New("not yet")
			}
			return nil
		}),
		w.Handle("good", func(context.Context, types.NamespacedName) error {
			return errors.New("a second of one name never runs")
		}),
	); err != nil {
		t.Fatal(err)
	}
	l.run(t)
	l.put(t, "a", "1")
	clustertest.Eventually(t, "the failing handler has succeeded", func() bool { return len(bad.list()) == 4 && len(good.list()) == 1 })
	l.put(t, "a", "2")
	clustertest.Eventually(t, "both saw the change", func() bool { return len(bad.list()) == 5 && len(good.list()) == 2 })
	l.remove(t, "a")
	clustertest.Eventually(t, "both saw the end", func() bool { return len(bad.list()) == 6 && len(good.list()) == 3 })
	if diff := cmp.Diff([]string{"a=1", "a=2", "a=-"}, good.list()); diff != "" {
		t.Errorf("good (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"a=1", "a=1", "a=1", "a=1", "a=2", "a=-"}, bad.list()); diff != "" {
		t.Errorf("bad (-want +got):\n%s", diff)
	}
}

func TestASlowHandlerDelaysNoOther(t *testing.T) {
	l := newEnv(t)
	w, err := l.Watch(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err != nil {
		t.Fatal(err)
	}
	begun, release := make(chan struct{}, 2), make(chan struct{})
	var slow, quick calls
	if err := errors.Join(
		w.Handle("slow", func(_ context.Context, key types.NamespacedName) error {
			begun <- struct{}{}
			<-release
			slow.record(w, key)
			return nil
		}),
		w.Handle("quick", func(_ context.Context, key types.NamespacedName) error { quick.record(w, key); return nil }),
	); err != nil {
		t.Fatal(err)
	}
	l.run(t)
	for _, value := range []string{"1", "2", "3"} {
		l.put(t, "a", value)
		clustertest.Eventually(t, "quick saw "+value, func() bool { return slices.Contains(quick.list(), "a="+value) })
		clustertest.Eventually(t, "slow is busy", func() bool { return len(begun) == 1 })
	}
	close(release)
	// All changes while the handler was busy result in one more call, with the last
	// state.
	clustertest.Eventually(t, "slow caught up", func() bool { return len(slow.list()) == 2 })
	if diff := cmp.Diff([]string{"a=3", "a=3"}, slow.list()); diff != "" {
		t.Errorf("slow (-want +got):\n%s", diff)
	}
}

func TestWatchesStartOnFirstUseAndAreShared(t *testing.T) {
	l := newEnv(t)
	before, err := l.Watch(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	opened := len(l.watched)
	l.mu.Unlock()
	if opened != 0 {
		t.Errorf("%d watches before Run", opened)
	}
	l.put(t, "a", "1")
	l.run(t)
	if err := before.Filled(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := l.Watch(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err != nil || again != before {
		t.Fatalf("the same resource has another watch: %v", err)
	}
	var late calls
	if err := again.Handle("late", func(_ context.Context, key types.NamespacedName) error { late.record(again, key); return nil }); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "a handler added later sees what is there", func() bool { return slices.Equal(late.list(), []string{"a=1"}) })

	l.mu.Lock()
	first := slices.Clone(l.watched)
	l.mu.Unlock()
	if diff := cmp.Diff([]string{"/api/v1/configmaps"}, first); diff != "" {
		t.Errorf("watch requests (-want +got):\n%s", diff)
	}
	other, err := l.Watch(Resource{GroupVersionResource: secrets, Metadata: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Filled(t.Context()); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the second resource is watched", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return slices.Contains(l.watched, "/api/v1/secrets")
	})
}

func TestWatchTransformsAndIndexes(t *testing.T) {
	l := newEnv(t)
	l.put(t, "a", "1")
	l.put(t, "b", "2")
	type kept struct {
		metav1.ObjectMeta
		value string
	}
	w, err := l.Watch(Resource{
		GroupVersionResource: configMaps, Selector: l.selector(),
		Transform: func(obj, _ any) (any, error) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return obj, nil
			}
			value, _, err := unstructured.NestedString(u.Object, "data", "value")
			return &kept{ObjectMeta: MetaOf(u), value: value}, err
		},
		Indexes: cache.Indexers{"value": func(obj any) ([]string, error) {
			k, ok := obj.(*kept)
			if !ok {
				return nil, nil
			}
			return []string{k.value}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := l.run(t)
	if err := w.Filled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if k, ok := w.Get(types.NamespacedName{Namespace: l.ns, Name: "a"}).(*kept); !ok || k.value != "1" {
		t.Errorf("kept %+v", k)
	}
	found, err := w.ByIndex("value", "2")
	if err != nil || len(found) != 1 || found[0].(*kept).Name != "b" {
		t.Errorf("found %v, %v", found, err)
	}
	if gone := w.Get(types.NamespacedName{Namespace: l.ns, Name: "none"}); gone != nil {
		t.Errorf("found %v, which does not exist", gone)
	}
	stop()
	l.put(t, "a", "3")
	if k, ok := w.Get(types.NamespacedName{Namespace: l.ns, Name: "a"}).(*kept); !ok || k.value != "1" {
		t.Errorf("a stopped controller still watches: %+v", k)
	}
}

// TestRunEndsAfterTheHandlersThatRun: a stop cancels the running handlers, waits for
// them, and calls no handler again, whatever is queued and whatever they return.
func TestRunEndsAfterTheHandlersThatRun(t *testing.T) {
	l := newEnv(t)
	w, err := l.Watch(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err != nil {
		t.Fatal(err)
	}
	var seen calls
	ended := make(chan struct{})
	if err := w.Handle("slow", func(ctx context.Context, key types.NamespacedName) error {
		seen.record(w, key)
		<-ctx.Done()
		defer close(ended) // a second call would panic
		return errors.New("stopped in the middle")
	}); err != nil {
		t.Fatal(err)
	}
	l.put(t, "a", "1")
	l.put(t, "b", "1")
	stop := l.run(t)
	clustertest.Eventually(t, "the handler runs", func() bool { return len(seen.list()) == 1 })
	stop()
	select {
	case <-ended:
	default:
		t.Error("Run has returned before the handler")
	}
	if n := len(seen.list()); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

func TestUnreachableClusterIsUnavailable(t *testing.T) {
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", MasterURL: "https://127.0.0.1:1", RetryFor: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := &env{Controller: New(c)}
	w, err := l.Watch(Resource{GroupVersionResource: configMaps})
	if err != nil {
		t.Fatal(err)
	}
	stop := l.run(t)
	clustertest.Eventually(t, "the reason is known", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := w.Filled(ctx)
		return deploy.IsKind(err, deploy.Unavailable) && strings.Contains(err.Error(), "watch configmaps of cluster \"test\"") && strings.Contains(err.Error(), "connection refused")
	})
	began := time.Now()
	stop()
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("stopped after %s", took)
	}
}

// TestAnEndedWatchIsStartedAnew: a component that used an ended watch may watch the
// resource again.
func TestAnEndedWatchIsStartedAnew(t *testing.T) {
	l := newEnv(t)
	resource := Resource{GroupVersionResource: configMaps, Selector: l.selector(), Namespace: l.ns}
	first, err := l.Watch(resource)
	if err != nil {
		t.Fatal(err)
	}
	var seen calls
	if err := first.Handle("first", func(_ context.Context, key types.NamespacedName) error { seen.record(first, key); return nil }); err != nil {
		t.Fatal(err)
	}
	l.run(t)
	l.put(t, "a", "1")
	clustertest.Eventually(t, "it is seen", func() bool { return len(seen.list()) == 1 })
	first.End()
	second, err := l.Watch(resource)
	if err != nil || second == first {
		t.Fatalf("the same watch again, %v", err)
	}
	l.put(t, "a", "2")
	clustertest.Eventually(t, "the second follows", func() bool {
		var now calls
		now.record(second, types.NamespacedName{Namespace: l.ns, Name: "a"})
		return now.list()[0] == "a=2"
	})
	if diff := cmp.Diff([]string{"a=1"}, seen.list()); diff != "" {
		t.Errorf("the first handler (-want +got):\n%s", diff)
	}
	if kinds, _ := l.Watched(); kinds != 1 {
		t.Errorf("%d kinds are watched", kinds)
	}
}

// TestNothingIsLeftOfAnEndedController: handlers that are added when Run is about to end,
// or has ended, must leave no goroutine.
func TestNothingIsLeftOfAnEndedController(t *testing.T) {
	l := newEnv(t)
	w, err := l.Watch(Resource{GroupVersionResource: configMaps, Namespace: l.ns, Metadata: true})
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	nothing := func(context.Context, types.NamespacedName) error { return nil }
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := w.Handle("before Run", nothing); err != nil {
		t.Fatal(err)
	}
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	later, err := l.Watch(Resource{GroupVersionResource: secrets, Namespace: l.ns, Metadata: true})
	if err != nil {
		t.Fatal(err)
	}
	_ = later.Handle("after Run", nothing) // an error if its informer has ended already
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
