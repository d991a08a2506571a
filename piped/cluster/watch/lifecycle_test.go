package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

// life is a Lifecycle that records its calls, without repetitions of the previous call.
type life struct {
	mu   sync.Mutex
	seen []string
	fail map[string]int // how many calls of a method fail
}

func (l *life) Create(_ context.Context, obj metav1.Object) error { return l.call("create", obj) }
func (l *life) Update(_ context.Context, obj metav1.Object) error { return l.call("update", obj) }
func (l *life) Remove(_ context.Context, obj metav1.Object) error { return l.call("remove", obj) }

func (l *life) call(method string, obj metav1.Object) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	value, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "data", "value")
	said := fmt.Sprintf("%s %s=%s", method, obj.GetName(), value)
	l.fail[method]--
	if l.fail[method] >= 0 {
		l.seen = append(l.seen, said+" fails")
		return errors.New("not yet")
	}
	if n := len(l.seen); method != "update" || n == 0 || l.seen[n-1] != said {
		l.seen = append(l.seen, said)
	}
	return nil
}

// await waits for a call, and returns all calls since the last await.
func (l *life) await(t *testing.T, last string) []string {
	t.Helper()
	var seen []string
	clustertest.Eventually(t, last, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := len(l.seen); n == 0 || l.seen[n-1] != last {
			return false
		}
		seen, l.seen = l.seen, nil
		return true
	})
	return seen
}

func newLife() *life { return &life{fail: map[string]int{}} }

// live runs life cycles on the environment's ConfigMaps, as an agent does after its
// start, until stop is called.
func (l *env) live(t *testing.T, lives map[string]*life) (stop func()) {
	t.Helper()
	l.Controller = New(l.cluster)
	w, err := l.Watch(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err != nil {
		t.Fatal(err)
	}
	for name, one := range lives {
		if err := w.HandleLifecycle(name, one); err != nil {
			t.Fatal(err)
		}
	}
	return l.run(t)
}

// change changes only the value of a ConfigMap.
func (l *env) change(t *testing.T, name, value string) {
	t.Helper()
	_, err := l.cluster.Typed().CoreV1().ConfigMaps(l.ns).Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"value":"`+value+`"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// finalizers returns the finalizers of a ConfigMap, "gone" if it does not exist.
func (l *env) finalizers(t *testing.T, name string) []string {
	t.Helper()
	found, err := l.cluster.Typed().CoreV1().ConfigMaps(l.ns).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return []string{"gone"}
	}
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found.Finalizers)
	return found.Finalizers
}

func (l *env) awaitGone(t *testing.T, name string) {
	t.Helper()
	clustertest.Eventually(t, name+" is gone", func() bool { return slices.Equal(l.finalizers(t, name), []string{"gone"}) })
}

func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestLifecycle follows one object from its creation to its deletion, while each method
// fails at first.
func TestLifecycle(t *testing.T) {
	l, one := newEnv(t), newLife()
	one.fail = map[string]int{"create": 2, "update": 1, "remove": 2}
	l.live(t, map[string]*life{"one": one})
	l.put(t, "a", "1")
	same(t, "created", []string{"create a=1 fails", "create a=1 fails", "create a=1", "update a=1 fails", "update a=1"}, one.await(t, "update a=1"))
	same(t, "held by", []string{"lifecycle.pipecd.dev/one"}, l.finalizers(t, "a"))
	l.change(t, "a", "2")
	same(t, "changed", []string{"update a=2"}, one.await(t, "update a=2"))
	l.remove(t, "a")
	same(t, "removed", []string{"remove a=2 fails", "remove a=2 fails", "remove a=2"}, one.await(t, "remove a=2"))
	l.awaitGone(t, "a")
	l.put(t, "a", "3")
	same(t, "another one of the name", []string{"create a=3", "update a=3"}, one.await(t, "update a=3"))
}

// TestLifecyclesHoldAnObjectTogether: each life cycle has its own memory. One that fails
// keeps the object, and does not affect the others.
func TestLifecyclesHoldAnObjectTogether(t *testing.T) {
	l, one, two := newEnv(t), newLife(), newLife()
	stop := l.live(t, map[string]*life{"one": one, "two": two})
	l.put(t, "a", "1")
	one.await(t, "update a=1")
	two.await(t, "update a=1")
	same(t, "held by", []string{"lifecycle.pipecd.dev/one", "lifecycle.pipecd.dev/two"}, l.finalizers(t, "a"))
	two.mu.Lock() // the last change of an annotation may still update it
	two.fail["remove"] = 1 << 30
	two.mu.Unlock()
	l.remove(t, "a")
	one.await(t, "remove a=1")
	two.await(t, "remove a=1 fails")
	clustertest.Eventually(t, "only the second one holds it", func() bool {
		return slices.Equal(l.finalizers(t, "a"), []string{"lifecycle.pipecd.dev/two"})
	})
	stop()
	two.fail["remove"] = 0
	l.live(t, map[string]*life{"one": one, "two": two})
	two.await(t, "remove a=1")
	l.awaitGone(t, "a")
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.seen) > 0 {
		t.Errorf("the first life cycle released the object, and then saw %q", one.seen)
	}
}

// TestLifecycleGoesOnAfterARestart: after a restart, an existing object is not created
// again, and an object deleted meanwhile is removed.
func TestLifecycleGoesOnAfterARestart(t *testing.T) {
	l, one := newEnv(t), newLife()
	stop := l.live(t, map[string]*life{"one": one})
	l.put(t, "a", "1")
	one.await(t, "update a=1")
	stop()
	l.change(t, "a", "2")
	stop = l.live(t, map[string]*life{"one": one})
	same(t, "after a restart", []string{"update a=2"}, one.await(t, "update a=2"))
	stop()
	l.remove(t, "a")
	same(t, "held while no controller runs", []string{"lifecycle.pipecd.dev/one"}, l.finalizers(t, "a"))
	l.live(t, map[string]*life{"one": one})
	same(t, "deleted meanwhile", []string{"remove a=2"}, one.await(t, "remove a=2"))
	l.awaitGone(t, "a")
}

// TestLifecycleDecidesOnTheNewestState: a lagging cache must not repeat a call that may
// happen only once.
func TestLifecycleDecidesOnTheNewestState(t *testing.T) {
	l, one := newEnv(t), newLife()
	stop := l.live(t, map[string]*life{"one": one})
	l.put(t, "a", "1")
	one.await(t, "update a=1")
	stop()
	w, err := l.Watch(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err != nil {
		t.Fatal(err)
	}
	// The cache of the stopped controller no longer changes.
	h := &lifecycle{Lifecycle: one, watch: w, mark: "lifecycle.pipecd.dev/other"}
	key := types.NamespacedName{Namespace: l.ns, Name: "a"}
	l.change(t, "a", "2")
	if err := h.reconcile(t.Context(), key); err != nil || len(one.seen) > 0 {
		t.Errorf("for an outdated state: %v, calls %q", err, one.seen)
	}
	same(t, "held by", []string{"lifecycle.pipecd.dev/one"}, l.finalizers(t, "a"))
	obj := w.Get(key).(metav1.Object)
	if err := h.patch(t.Context(), obj, map[string]any{"finalizers": []string{h.mark}, "resourceVersion": obj.GetResourceVersion()}); !deploy.IsKind(err, deploy.Conflict) {
		t.Errorf("a change of an outdated state: %v", err)
	}
	if err := h.release(t.Context(), obj); err != nil {
		t.Errorf("release what is not held: %v", err)
	}
	l.put(t, "a", "3") // without any finalizer
	l.remove(t, "a")
	if err := errors.Join(h.reconcile(t.Context(), key), h.release(t.Context(), obj), h.patch(t.Context(), obj, map[string]any{})); err != nil || len(one.seen) > 0 {
		t.Errorf("for a deleted object: %v, calls %q", err, one.seen)
	}
	l.put(t, "a", "4")
	if err := errors.Join(h.reconcile(t.Context(), key), h.release(t.Context(), obj)); err != nil || len(one.seen) > 0 {
		t.Errorf("for another object with the same name: %v, calls %q", err, one.seen)
	}
}
