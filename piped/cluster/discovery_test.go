package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/deploy"
)

func configMapKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}

func widgetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
}

func widgets() *metav1.APIResourceList {
	return &metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget", Namespaced: true}}}
}

func TestDiscoveryAsksOnceForKnownKinds(t *testing.T) {
	kinds := builtIns()
	d := newDiscovery(kinds, time.Now)
	for range 3 {
		got, err := d.lookup(context.Background(), configMapKind())
		if err != nil {
			t.Fatal(err)
		}
		want := ServedKind{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	if kinds.calls != 1 {
		t.Errorf("asked the cluster %d times, want 1", kinds.calls)
	}
}

func TestDiscoveryAsksAgainForAMissingKindButNotTooOften(t *testing.T) {
	now := time.Unix(0, 0)
	kinds := builtIns()
	d := newDiscovery(kinds, func() time.Time { return now })
	lookup := func(wantKnown bool, wantCalls int) {
		t.Helper()
		_, err := d.lookup(context.Background(), widgetKind())
		if known := err == nil; known != wantKnown || !known && !errors.Is(err, ErrUnknownKind) {
			t.Fatalf("lookup: %v, want known %v", err, wantKnown)
		}
		if kinds.calls != wantCalls {
			t.Fatalf("asked the cluster %d times, want %d", kinds.calls, wantCalls)
		}
	}
	lookup(false, 1)
	kinds.lists = append(kinds.lists, widgets())
	lookup(false, 1) // asked just now
	now = now.Add(refreshEvery)
	lookup(true, 2)

	kinds.lists = kinds.lists[:len(kinds.lists)-1]
	lookup(true, 2) // what is known is not asked for
	d = newDiscovery(kinds, func() time.Time { return now })
	lookup(false, 3)
	kinds.lists = append(kinds.lists, widgets())
	d.invalidate()
	lookup(true, 4) // asked at once after invalidate
}

func TestDiscoveryKeepsGroupsThatStopAnswering(t *testing.T) {
	now := time.Unix(0, 0)
	kinds := builtIns()
	kinds.failed, kinds.lists = nil, append(kinds.lists, widgets())
	d := newDiscovery(kinds, func() time.Time { return now })
	if _, err := d.lookup(context.Background(), widgetKind()); err != nil {
		t.Fatal(err)
	}
	kinds.lists = kinds.lists[:len(kinds.lists)-1]
	kinds.failed = map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("down")}
	now = now.Add(time.Hour)
	if _, err := d.lookup(context.Background(), schema.GroupVersionKind{Version: "v1", Kind: "Nothing"}); !errors.Is(err, ErrUnknownKind) {
		t.Fatalf("a kind that is not served: %v", err)
	}
	if _, err := d.lookup(context.Background(), widgetKind()); err != nil {
		t.Errorf("a kind known before its server went down: %v", err)
	}
	_, err := d.lookup(context.Background(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"})
	if deploy.KindOf(err) != deploy.Unavailable {
		t.Errorf("an unknown kind of a group that is down: %v, want unavailable", err)
	}
}

func TestDiscoveryFindsAnotherVersion(t *testing.T) {
	kinds := builtIns()
	kinds.lists = append(kinds.lists, widgets())
	got, err := newDiscovery(kinds, time.Now).lookupKind(context.Background(), schema.GroupVersionKind{Group: "example.com", Version: "v1beta1", Kind: "Widget"})
	if err != nil || got.Version != "v1" {
		t.Errorf("got %v, %v; want the version that is served", got, err)
	}
}

func TestDiscoveryWaitsNoLongerThanItsContext(t *testing.T) {
	d := newDiscovery(builtIns(), time.Now)
	d.fetching <- struct{}{} // another caller asks and gets no response
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := d.lookup(ctx, configMapKind()); !errors.Is(err, context.Canceled) {
		t.Errorf("lookup: %v, want canceled", err)
	}
}

// changing is a discoverer whose kinds change during its first response.
type changing struct {
	*served
	discovery *discovery
}

func (c *changing) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := c.served.ServerGroupsAndResourcesWithContext(ctx)
	if c.calls == 1 {
		c.discovery.invalidate()
		c.lists = append(c.lists, &metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing"}}})
	}
	return groups, lists, err
}

// TestAnAnswerFromBeforeAChangeIsNotTheLast: a change while the cluster answers must
// cause another request at once.
func TestAnAnswerFromBeforeAChangeIsNotTheLast(t *testing.T) {
	c := &changing{served: builtIns()}
	d := newDiscovery(c, time.Now)
	c.discovery = d
	if err := d.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	thing := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	if served, err := d.knownKind(thing); !errors.Is(err, ErrUnknownKind) {
		t.Errorf("known before it was asked for: %+v, %v", served, err)
	}
	served, err := d.lookup(t.Context(), thing)
	if err != nil || served.Resource != "things" || c.calls != 2 {
		t.Errorf("served as %+v, %v, after %d requests", served, err, c.calls)
	}
}

// TestOfSeveralVersionsTheMostStableIsTaken: if the requested version is no longer
// served, the most stable served version is used.
func TestOfSeveralVersionsTheMostStableIsTaken(t *testing.T) {
	s := builtIns()
	for _, version := range []string{"v1alpha1", "v2", "v1", "v2beta1"} {
		s.lists = append(s.lists, &metav1.APIResourceList{GroupVersion: "example.com/" + version, APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing"}}})
	}
	d := newDiscovery(s, time.Now)
	for asked, want := range map[string]string{"v1": "v1", "v1alpha1": "v1alpha1", "v3": "v2", "v1beta1": "v2"} {
		served, err := d.lookupKind(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: asked, Kind: "Thing"})
		if err != nil || served.Version != want {
			t.Errorf("asked for %s: %+v, %v, want %s", asked, served, err, want)
		}
	}
}
