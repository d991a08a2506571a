package live

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// woken counts calls of wake by application.
type woken struct {
	mu    sync.Mutex
	times map[string]int
}

func newWoken() *woken { return &woken{times: map[string]int{}} }

func (w *woken) wake(applicationID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times[applicationID]++
}

// take returns how often applications were woken since the last call.
func (w *woken) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	times := maps.Clone(w.times)
	clear(w.times)
	return times
}

// throughLink returns a cluster that is reached through the link and uses its clock.
func throughLink(t *testing.T, through *clustertest.Link) *cluster.Cluster {
	t.Helper()
	c, err := cluster.NewCluster(cluster.ClusterConfig{
		Name: "test", KubeConfigPath: clustertest.Shared(t).Kubeconfig(), RetryFor: 5 * time.Second, Now: through.Now, WrapTransport: through.Wrap,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// things defines the kind Thing in an API group of its own.
func (l *env) things() string {
	return strings.ReplaceAll(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.NS.example.com}
spec:
  group: NS.example.com
  names: {kind: Thing, plural: things, singular: thing}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, "NS", l.ns)
}

func (l *env) thing(name string) string {
	return strings.ReplaceAll("\n---\napiVersion: NS.example.com/v1\nkind: Thing\nmetadata: {name: "+name+"}\nspec: {size: 1}\n", "NS", l.ns)
}

func (l *env) thingRef(name string) deploy.ObjectRef {
	return deploy.ObjectRef{Group: l.ns + ".example.com", Version: "v1", Kind: "Thing", Namespace: l.ns, Name: name}
}

// patch changes an object by another field manager.
func (l *env) patch(t *testing.T, ref deploy.ObjectRef, patch string, subresources ...string) {
	t.Helper()
	resource, err := l.Resource(t.Context(), manifest.GVK(ref))
	if err == nil {
		_, err = l.ResourceClient(resource, ref.Namespace).Patch(t.Context(), ref.Name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{FieldManager: "somebody"}, subresources...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMembersReportObjectChanges: checks which applications a change wakes, and how
// the member changes.
func TestMembersReportObjectChanges(t *testing.T) {
	l := newEnv(t)
	items := l.apply(t, l.things()+l.thing("a")+l.thing("b")).Items
	t.Cleanup(func() { applytest.Delete(t, l.Cluster, items[0].Object) })
	a, b := l.thingRef("a"), l.thingRef("b")
	m, take := l.members(t, l.Cluster)
	ready(t, m, []deploy.ObjectRef{a})
	member := func() Member {
		t.Helper()
		got, ok := m.Get(a)
		if !ok {
			t.Fatal("the member is gone")
		}
		return got
	}
	l.patch(t, b, `{"metadata":{"labels":{"pipecd.dev/application":"other"}}}`)
	clustertest.Eventually(t, "the label of b is in the cache", func() bool { return len(m.Of(l.ns)) == 0 && len(m.Of("other")) == 1 })
	base := member()
	if base.Application != l.app || base.Piped != "piped-1" || base.Variant != "primary" || base.Owned || base.Ignored || base.Deleting || base.Object != a {
		t.Errorf("got: %+v", base)
	}
	// untilOther waits until b is woken and returns the applications woken since.
	untilOther := func() map[string]int {
		t.Helper()
		all := map[string]int{}
		clustertest.Eventually(t, "the application of b is woken", func() bool {
			for id, times := range take() {
				all[id] += times
			}
			return all["other"] > 0
		})
		delete(all, "other")
		return all
	}
	n := 0
	// woke runs do and returns the applications that it wakes. The change of b comes
	// after it.
	woke := func(do func()) map[string]int {
		t.Helper()
		take()
		do()
		n++
		l.patch(t, b, fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, n))
		return untilOther()
	}
	untilOther()    // the label of b: the caches show it before any application is woken
	woke(func() {}) // discard what else the label woke
	label := func(value string) func() {
		return func() { l.patch(t, a, `{"metadata":{"labels":{"pipecd.dev/application":`+value+`}}}`) }
	}
	steps := []struct {
		what  string
		do    func()
		woken map[string]int
		check func() bool
	}{
		{"its status is written", func() { l.patch(t, a, `{"status":{"ready":true}}`, "status") }, map[string]int{}, func() bool { return member() == base }},
		{"an annotation of another", func() { l.patch(t, a, `{"metadata":{"annotations":{"x":"y"}}}`) }, map[string]int{l.app: 1},
			func() bool { return member().Mark == base.Mark && member().ResourceVersion != base.ResourceVersion }},
		{"a field of another", func() { l.patch(t, a, `{"spec":{"color":"red"}}`) }, map[string]int{l.app: 1},
			func() bool { return member().Mark != base.Mark && member().OwnedHash == base.OwnedHash }},
		{"a field of ours", func() { l.patch(t, a, `{"spec":{"size":2}}`) }, map[string]int{l.app: 1},
			func() bool { return member().OwnedHash != base.OwnedHash }},
		{"it is to be ignored", func() { l.patch(t, a, `{"metadata":{"annotations":{"pipecd.dev/ignore-drift-detection":"true"}}}`) },
			map[string]int{l.app: 1}, func() bool { return member().Ignored }},
		{"it gets an owner", func() {
			l.patch(t, a, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y","controller":true}]}}`)
		}, map[string]int{l.app: 1}, func() bool { return member().Owned }},
		{"it loses its owner", func() { l.patch(t, a, `{"metadata":{"ownerReferences":null}}`) }, map[string]int{l.app: 1}, func() bool { return !member().Owned }},
		{"it changes hands", label(`"third"`), map[string]int{l.app: 1, "third": 1},
			func() bool { return len(m.Of("third")) == 1 && member().Application == "third" && member().Piped == "" }},
		{"it loses its label", label("null"), map[string]int{"third": 1}, func() bool { _, ok := m.Get(a); return !ok && len(m.Of("third")) == 0 }},
		{"it gets its label", label(`"` + l.app + `"`), map[string]int{l.app: 1}, func() bool { return member().UID == base.UID }},
		{"it gets a finalizer", func() { l.patch(t, a, `{"metadata":{"finalizers":["example.com/hold"]}}`) }, map[string]int{l.app: 1}, func() bool { return !member().Deleting }},
		{"it is being deleted", func() { applytest.Delete(t, l.Cluster, a) }, map[string]int{l.app: 1}, func() bool { return member().Deleting }},
		{"it is gone", func() { l.patch(t, a, `{"metadata":{"finalizers":null}}`) }, map[string]int{l.app: 1}, func() bool { _, ok := m.Get(a); return !ok }},
	}
	for _, s := range steps {
		if diff := cmp.Diff(s.woken, woke(s.do)); diff != "" {
			t.Errorf("%s: woken (-want +got):\n%s", s.what, diff)
		}
		if !s.check() {
			live, _ := m.Get(a)
			t.Errorf("%s: got %+v, was %+v", s.what, live, base)
		}
	}
}

// TestKindsComeAndGo: a kind is watched from its definition until its removal, and again
// after it is defined again.
func TestKindsComeAndGo(t *testing.T) {
	l := newEnv(t)
	m, take := l.members(t, l.Cluster)
	thing := l.thingRef("a")
	if since, err := m.Ready(thing); !since.IsZero() || !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("before the kind was requested: %v, %v", since, err)
	}
	m.Follow([]deploy.ObjectRef{thing})
	notServed := func() bool {
		since, err := m.Ready(thing)
		return deploy.IsKind(err, deploy.NotFound) && !since.IsZero() && strings.Contains(err.Error(), "serves no kind Thing")
	}
	clustertest.Eventually(t, "the kind is not known", notServed)
	for range 2 {
		take()
		items := l.apply(t, l.things()+l.thing("a")).Items
		clustertest.Eventually(t, "the kind is followed", func() bool {
			_, err := m.Ready(thing)
			_, found := m.Get(thing)
			return err == nil && found
		})
		woken := map[string]int{}
		clustertest.Eventually(t, "everybody and the application are woken", func() bool {
			for id, times := range take() {
				woken[id] += times
			}
			return woken[""] > 0 && woken[l.app] > 0
		})
		applytest.Delete(t, l.Cluster, items[0].Object)
		clustertest.Eventually(t, "the kind is no more", notServed)
		if got, found := m.Get(thing); found {
			t.Errorf("left: %+v", got)
		}
		clustertest.Eventually(t, "all applications are woken", func() bool { return take()[""] > 0 })
		l.mu.Lock()
		clear(l.inventory)
		l.mu.Unlock()
		clustertest.Eventually(t, "the definition is gone", func() bool {
			_, err := l.Dynamic().Resource(definitionsResource).Get(t.Context(), items[0].Object.Name, metav1.GetOptions{})
			return err != nil
		})
	}
}

// TestMembersWithRightsInNamespacesOnly: an agent that may not watch a kind in the whole
// cluster watches it in the permitted namespaces, and reports the others.
func TestMembersWithRightsInNamespacesOnly(t *testing.T) {
	l, other := newEnv(t), newEnv(t)
	rights := `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: rights}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: rights}
subjects: [{kind: User, name: ` + l.ns + `, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
`
	l.apply(t, rights)
	as, err := l.As(l.ns)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := l.members(t, as)
	here := deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: l.ns, Name: "settings"}
	there, nowhere := here, deploy.ObjectRef{Version: "v1", Kind: "Namespace", Name: l.ns}
	there.Namespace = other.ns
	ready(t, m, []deploy.ObjectRef{here})
	if got, ok := m.Get(here); !ok || got.Application != l.app {
		t.Errorf("got %+v", got)
	}
	m.Follow([]deploy.ObjectRef{there, nowhere})
	forbidden := func(ref deploy.ObjectRef) func() bool {
		return func() bool {
			since, err := m.Ready(ref)
			return deploy.IsKind(err, deploy.Invalid) && !since.IsZero() && strings.Contains(err.Error(), "give the agent's account the rights get, list and watch on")
		}
	}
	clustertest.Eventually(t, "another namespace may not be watched", forbidden(there))
	clustertest.Eventually(t, "a kind without namespaces may not be watched", forbidden(nowhere))
	if _, err := m.Ready(here); err != nil {
		t.Errorf("in a permitted namespace: %v", err)
	}
	other.apply(t, rights)
	ready(t, m, []deploy.ObjectRef{there})
	if got := m.Of(l.app); len(got) != 2 {
		t.Errorf("watched: %+v", got)
	}
}

// TestChangesDuringAnOutageAreReportedAfterwards: the cluster is unreachable for a
// while. Whether the watch resumes or must list again, no change may be lost or invented,
// and the age of the returned state must be reported.
func TestChangesDuringAnOutageAreReportedAfterwards(t *testing.T) {
	for name, expired := range map[string]bool{"the watch goes on": false, "all is read again": true} {
		t.Run(name, func(t *testing.T) {
			l, through := newEnv(t), &clustertest.Link{}
			items := l.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata: {name: same}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: changed}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: deleted}
`).Items
			m, take := l.members(t, throughLink(t, through))
			ready(t, m, refsOf(items))
			before := map[string]Member{}
			for _, item := range items {
				before[item.Object.Name], _ = m.Get(item.Object)
			}
			ref := func(name string) deploy.ObjectRef { return before[name].Object }
			clustertest.Eventually(t, "no application is woken any more", func() bool { woken := take(); return len(woken) == 0 })

			began := time.Now()
			through.Set(func() { through.Down, through.Stopped = true, began })
			through.Cut()
			l.patch(t, ref("changed"), `{"data":{"a":"b"}}`)
			applytest.Delete(t, l.Cluster, ref("deleted"))
			clustertest.Eventually(t, "the failure is known", func() bool {
				_, err := m.kinds[manifest.GroupKind(ref("same"))].watches[""].State()
				return err != nil && !errors.Is(err, watch.ErrDisconnected)
			})
			known := time.Now()
			through.Set(func() { through.Ahead = 9 * time.Second })
			if _, err := m.Ready(ref("same")); err != nil {
				t.Errorf("a short failure is returned: %v", err)
			}
			through.Set(func() { through.Stopped, through.Ahead = time.Time{}, 11*time.Second })
			m.requestSync()
			since, err := m.Ready(ref("same"))
			if !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "cannot be reached") || since.Before(began) || since.After(known) {
				t.Errorf("since %s, %v", since, err)
			}
			clustertest.Eventually(t, "all applications are woken", func() bool { return take()[""] > 0 })
			if got, ok := m.Get(ref("deleted")); !ok || got != before["deleted"] {
				t.Errorf("a change during the outage is reported: %+v", got)
			}

			through.Set(func() {
				through.Down = false
				var once sync.Once
				if expired {
					through.Answer = func(r *http.Request) (resp *http.Response) {
						if r.URL.Query().Has("watch") && strings.HasSuffix(r.URL.Path, "/configmaps") {
							once.Do(func() {
								resp = clustertest.Refusal(r, metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
							})
						}
						return resp
					}
				}
			})
			woken := map[string]int{}
			clustertest.Eventually(t, "the members are known again", func() bool {
				for id, n := range take() {
					woken[id] += n
				}
				_, err := m.Ready(ref("same"))
				_, there := m.Get(ref("deleted"))
				return err == nil && !there && woken[""] > 0 && woken[l.app] >= 2
			})
			if got, _ := m.Get(ref("same")); got != before["same"] {
				t.Errorf("the unchanged object: %+v, was %+v", got, before["same"])
			}
			if got, _ := m.Get(ref("changed")); got.Mark == before["changed"].Mark {
				t.Errorf("the changed object: %+v", got)
			}
		})
	}
}

// TestAWatchThatIsOverIsNotReliedOn: a watch has ended although no request fails. Changes
// since then are unknown, and this must be reported.
func TestAWatchThatIsOverIsNotReliedOn(t *testing.T) {
	l, through := newEnv(t), &clustertest.Link{}
	ref := l.apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").Items[0].Object
	m, _ := l.members(t, throughLink(t, through))
	ready(t, m, []deploy.ObjectRef{ref})
	again := make(chan struct{})
	through.Set(func() {
		through.Stopped = time.Now()
		through.Answer = func(r *http.Request) *http.Response {
			if r.URL.Query().Has("watch") {
				select {
				case <-again:
				case <-r.Context().Done():
				}
			}
			return nil
		}
	})
	through.Cut()
	clustertest.Eventually(t, "the end is known", func() bool {
		_, err := m.kinds[manifest.GroupKind(ref)].watches[""].State()
		return errors.Is(err, watch.ErrDisconnected)
	})
	through.Set(func() { through.Ahead = 9 * time.Second })
	if _, err := m.Ready(ref); err != nil {
		t.Errorf("a short interruption is reported: %v", err)
	}
	through.Set(func() { through.Stopped, through.Ahead = time.Time{}, 11*time.Second })
	if _, err := m.Ready(ref); !deploy.IsKind(err, deploy.Unavailable) || !errors.Is(err, watch.ErrDisconnected) {
		t.Errorf("after a while: %v", err)
	}
	close(again)
	clustertest.Eventually(t, "it is followed again", func() bool { _, err := m.Ready(ref); return err == nil })
}

// TestAGroupWhoseServerIsAwayHidesOnlyItsKinds: while an API group's server, or the whole
// cluster, does not answer, nothing may be reported about the existence of its kinds.
func TestAGroupWhoseServerIsAwayHidesOnlyItsKinds(t *testing.T) {
	c := applytest.Unreachable(t)
	controller := watch.New(c)
	woken := newWoken()
	m := NewMembers(c, controller, woken.wake)
	clustertest.Run(t, controller.Run)
	settings := deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "settings"}
	metric := deploy.ObjectRef{Group: "metrics.example.com", Version: "v1", Kind: "Metric", Namespace: "shop", Name: "m"}
	unknown := deploy.ObjectRef{Group: "none.example.com", Version: "v1", Kind: "Nothing", Namespace: "shop", Name: "n"}
	m.Follow([]deploy.ObjectRef{settings, metric, unknown})
	for ref, want := range map[deploy.ObjectRef]struct {
		kind deploy.Kind
		text string
	}{
		settings: {deploy.Unavailable, "connection refused"},
		metric:   {deploy.Unavailable, "metrics.example.com does not answer"},
		unknown:  {deploy.NotFound, "serves no kind Nothing"},
	} {
		clustertest.Eventually(t, "the reason why "+ref.Kind+" is not known is returned", func() bool {
			_, err := m.Ready(ref)
			return deploy.IsKind(err, want.kind) && strings.Contains(err.Error(), want.text)
		})
	}
	if times := woken.take(); len(times) != 0 {
		t.Errorf("woken %v, although no state was ever known", times)
	}
}

// TestKindsAreAskedForAgainWhileTheClusterCannotBeAsked: the served kinds become known
// once the cluster answers.
func TestKindsAreAskedForAgainWhileTheClusterCannotBeAsked(t *testing.T) {
	l, through := newEnv(t), &clustertest.Link{}
	items := l.apply(t, applytest.Web).Items
	c := throughLink(t, through)
	through.Set(func() { through.Down = true })
	m, _ := l.members(t, c)
	m.Follow(refsOf(items))
	clustertest.Eventually(t, "the reason is returned", func() bool {
		_, err := m.Ready(items[0].Object)
		return deploy.IsKind(err, deploy.Unavailable) && strings.Contains(err.Error(), "connection refused")
	})
	through.Set(func() { through.Down = false })
	ready(t, m, refsOf(items))
	l.wantInSync(t, m, items)
}
