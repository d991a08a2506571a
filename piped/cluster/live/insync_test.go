package live

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// members runs Members of a cluster until the test ends. The returned function returns
// how often each application was woken.
func (l *env) members(t *testing.T, c *cluster.Cluster) (*Members, func() map[string]int) {
	t.Helper()
	woken := newWoken()
	controller := watch.New(c)
	m := NewMembers(c, controller, woken.wake)
	clustertest.Run(t, controller.Run)
	return m, woken.take
}

func refsOf(items []deploy.InventoryItem) []deploy.ObjectRef {
	var refs []deploy.ObjectRef
	for _, item := range items {
		refs = append(refs, item.Object)
	}
	return refs
}

// ready waits until all objects are watched.
func ready(t *testing.T, m *Members, refs []deploy.ObjectRef) {
	t.Helper()
	m.Follow(refs)
	clustertest.Eventually(t, "what is asked for is followed", func() bool {
		for _, ref := range refs {
			if _, err := m.Ready(ref); err != nil {
				return false
			}
		}
		return true
	})
}

// wantInSync waits until every item is in sync by its metadata.
func (l *env) wantInSync(t *testing.T, m *Members, items []deploy.InventoryItem) {
	t.Helper()
	late := map[string]Member{}
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		clear(late)
		for _, item := range items {
			if live, ok := m.Get(item.Object); !ok || !InSync(item, live) {
				late[item.Object.String()] = live
			}
		}
		if len(late) == 0 {
			return
		}
	}
	for _, item := range items {
		if live, ok := late[item.Object.String()]; ok {
			t.Errorf("not in sync: %s\nrecorded %+v\nlive %+v", item.Object, item, live)
		}
	}
}

// TestWhatIsAppliedIsInSyncByItsMetadataAlone: for every kind, the record of an apply
// must equal the metadata from the watches, without a request for any object. A later
// read of the object must give the recorded values.
func TestWhatIsAppliedIsInSyncByItsMetadataAlone(t *testing.T) {
	l := newEnv(t)
	manifests := applytest.EveryKind(t, l.Cluster, l.ns, l.items)
	items := l.apply(t, manifests).Items
	kinds := map[string]bool{}
	for _, item := range items {
		kinds[item.Object.Kind] = true
		if item.Mark == "" || item.ValuesDigest == "" || item.OwnedHash == "" {
			t.Errorf("incomplete record %+v", item)
		}
	}
	if len(kinds) < 20 {
		t.Errorf("only %d kinds", len(kinds))
	}
	m, _ := l.members(t, l.Cluster)
	l.requests.Take()
	ready(t, m, refsOf(items))
	l.wantInSync(t, m, items)
	for _, r := range l.requests.Take() {
		if !strings.HasPrefix(r, "GET /api") || strings.Count(r, "/") > 4 {
			t.Errorf("request for an object: %s", r)
		}
	}
	if got := len(m.Of(l.app)); got < len(items) {
		t.Errorf("%d members of %d objects", got, len(items))
	}

	l.wantSameValues(t, items)
	again := l.apply(t, manifests)
	if again.Written != 0 {
		t.Errorf("a second apply has written %d objects", again.Written)
	}
	if diff := cmp.Diff(items, again.Items); diff != "" {
		t.Errorf("a second apply records another state (-first +second):\n%s", diff)
	}
}

// wantSameValues reads objects one by one and as lists, and those of built-in kinds as
// protobuf.
func (l *env) wantSameValues(t *testing.T, items []deploy.InventoryItem) {
	t.Helper()
	for _, item := range items {
		resource, err := l.Resource(t.Context(), manifest.GVK(item.Object))
		if err != nil {
			t.Fatal(err)
		}
		client := l.ResourceClient(resource, item.Object.Namespace)
		live, err := client.Get(t.Context(), item.Object.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := apply.ValuesDigest(live); got != item.ValuesDigest || apply.Mark(live) != item.Mark {
			t.Errorf("%s: digest %s and mark %s when read, %s and %s when applied", item.Object, got, apply.Mark(live), item.ValuesDigest, item.Mark)
		}
		list, err := client.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + item.Object.Name})
		if err != nil || len(list.Items) != 1 || apply.ValuesDigest(&list.Items[0]) != item.ValuesDigest {
			t.Errorf("%s: another digest when listed (%v)", item.Object, err)
		}
		typed, err := l.readTyped(t, item.Object)
		if err != nil {
			t.Fatal(err)
		}
		if typed != nil && apply.ValuesDigest(typed) != item.ValuesDigest {
			t.Errorf("%s: another digest when read as protobuf", item.Object)
		}
	}
}

// readTyped reads objects of some kinds as protobuf, nil of the others.
func (l *env) readTyped(t *testing.T, ref deploy.ObjectRef) (*unstructured.Unstructured, error) {
	t.Helper()
	ctx, get := t.Context(), metav1.GetOptions{}
	var obj runtime.Object
	var err error
	switch ref.Kind {
	case "Deployment":
		obj, err = l.Typed().AppsV1().Deployments(ref.Namespace).Get(ctx, ref.Name, get)
	case "ConfigMap":
		obj, err = l.Typed().CoreV1().ConfigMaps(ref.Namespace).Get(ctx, ref.Name, get)
	case "Service":
		obj, err = l.Typed().CoreV1().Services(ref.Namespace).Get(ctx, ref.Name, get)
	case "Secret":
		obj, err = l.Typed().CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, get)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return &unstructured.Unstructured{Object: content}, err
}

// TestWhatIsTakenOverIsInSync: the record of the first apply to what kubectl created
// is that of the object after it.
func TestWhatIsTakenOverIsInSync(t *testing.T) {
	l := newEnv(t)
	client := clustertest.Shared(t).Client(t).CoreV1().ConfigMaps(l.ns)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "red", "old": "yes"}}
	if _, err := client.Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"}); err != nil {
		t.Fatal(err)
	}
	items := l.apply(t, applytest.Web, func(r *apply.Request) { r.Adopt = true }).Items
	m, _ := l.members(t, l.Cluster)
	ready(t, m, refsOf(items))
	l.wantInSync(t, m, items)
	l.wantSameValues(t, items)

	changed := l.apply(t, strings.ReplaceAll(strings.ReplaceAll(applytest.Web, "blue", "green"), "web:1", "web:2")).Items
	l.wantInSync(t, m, changed)
	l.wantSameValues(t, changed)
	for i, item := range changed {
		same := item.Object.Kind == "Service"
		// Of two applies within a second a ConfigMap's mark may be the same.
		if item.Object.Kind == "Deployment" && item.Mark == items[i].Mark || (item.ValuesDigest == items[i].ValuesDigest) != same {
			t.Errorf("%s: recorded %+v, then %+v", item.Object, items[i], item)
		}
	}
}
