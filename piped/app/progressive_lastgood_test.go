package app

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// lastGood is the state of an application after its last success: on the cluster and in
// the agent's store.
type lastGood struct {
	*clustertest.LastGood
	records keptRecords
	id      string // of the application
	ns      string
}

// takeLastGood records that state. The application's last deployment has succeeded, and
// its namespace contains no other objects.
func takeLastGood(t *testing.T, cluster *clustertest.Cluster, st *store.Store, app progressiveApp) *lastGood {
	t.Helper()
	g := &lastGood{
		LastGood: clustertest.TakeLastGood(t, cluster.Kubeconfig(), app.namespace),
		records:  keptRecords{st, dynamicClient(t, cluster)}, id: appID(app.dir), ns: app.namespace,
	}
	g.records.mustMatch(t, g.id, g.ns)
	return g
}

// mustStand fails the test unless the cluster equals the last good commit: every object
// is unchanged, with its replicas, weights and selectors. All objects of the kept set
// exist, and no other objects of the application, no variants and no records of variants.
func (g *lastGood) mustStand(t *testing.T) {
	t.Helper()
	g.Assert(t)
	g.records.mustMatch(t, g.id, g.ns)
}

// keptRecords compares the manifests that an agent stored for an application's last
// success with the cluster and with the inventory.
type keptRecords struct {
	store   *store.Store
	cluster dynamic.Interface
}

func (r keptRecords) mustMatch(t *testing.T, app, namespace string) {
	t.Helper()
	if problems := r.check(t.Context(), app, namespace); len(problems) > 0 {
		t.Errorf("application %s differs from its last success:\n%s", app, strings.Join(problems, "\n"))
	}
}

// check returns the differences of the cluster and the inventory from the kept set.
func (r keptRecords) check(ctx context.Context, app, namespace string) (problems []string) {
	a, err := r.store.Application(ctx, app)
	if err != nil {
		return []string{err.Error()}
	}
	kept, err := r.store.AppliedSet(ctx, a.LastSuccessful.DeploymentID)
	if err != nil {
		return []string{err.Error()}
	}
	var set struct{ Objects []unstructured.Unstructured }
	if err := json.Unmarshal(kept.Objects, &set); err != nil {
		return []string{err.Error()}
	}
	var declared, recorded []string
	for _, o := range set.Objects {
		live, err := r.cluster.Resource(resourceOf(o)).Namespace(namespace).Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		declared = append(declared, fmt.Sprintf("primary %s %s %s", o.GetKind(), o.GetName(), live.GetUID()))
		problems = append(problems, lacks(o.GetKind()+" "+o.GetName(), o.Object, live.Object)...)
	}
	items, err := r.store.Inventory(ctx, app)
	if err != nil {
		return append(problems, err.Error())
	}
	for _, i := range items {
		recorded = append(recorded, fmt.Sprintf("%s %s %s %s", i.Variant, i.Object.Kind, i.Object.Name, i.UID))
	}
	slices.Sort(declared)
	slices.Sort(recorded)
	if diff := cmp.Diff(declared, recorded); diff != "" {
		problems = append(problems, "the inventory (-declared +recorded):\n"+diff)
	}
	return problems
}

// lacks returns where live differs from want. Fields of mappings that want does not have
// are defaults of other components.
func lacks(at string, want, live any) (problems []string) {
	switch want := want.(type) {
	case map[string]any:
		have, _ := live.(map[string]any)
		for key, value := range want {
			if at, found := path.Join(at, key), have[key]; found == nil && !empty(value) {
				problems = append(problems, at+" is missing")
			} else {
				problems = append(problems, lacks(at, value, found)...)
			}
		}
	case []any:
		have, _ := live.([]any)
		if len(have) != len(want) {
			return []string{fmt.Sprintf("%s has %d items, want %d: %v", at, len(have), len(want), have)}
		}
		for i := range want {
			problems = append(problems, lacks(fmt.Sprintf("%s/%d", at, i), want[i], have[i])...)
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(live) && !empty(want) {
			problems = append(problems, fmt.Sprintf("%s is %v, want %v", at, live, want))
		}
	}
	return problems
}

// empty reports whether a value is equivalent to a missing one.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	}
	return false
}

// resourceOf returns the resource of an object of the tests' kinds.
func resourceOf(o unstructured.Unstructured) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return plural
}

// dynamicClient returns a new client, whose connections end with the test.
func dynamicClient(t *testing.T, cluster *clustertest.Cluster) dynamic.Interface {
	t.Helper()
	cfg := cluster.RESTConfig(t)
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) })
	return client
}

// TestLastGoodSeesEveryDifference: the check must find changed, missing and left-over
// objects.
func TestLastGoodSeesEveryDifference(t *testing.T) {
	t.Parallel()
	p := newProgressive(t, canaryPipeline, httpRouteOfWeb, "")
	g, web := p.lastGood(), appID("web")
	edit := func(kind schema.GroupVersionResource, patch string) {
		t.Helper()
		if _, err := g.records.cluster.Resource(kind).Namespace(p.namespace).Patch(t.Context(), "web", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	edit(deploymentResource, `[{"op": "replace", "path": "/spec/replicas", "value": 3}]`)
	edit(serviceResource, `[{"op": "replace", "path": "/spec/selector/pipecd.dev~1variant", "value": "canary"}]`)
	edit(httpRouteResource, `[{"op": "add", "path": "/spec/rules/0/backendRefs/-", "value": {"name": "web-canary", "port": 80}}]`)
	if err := p.cluster.Client(t).CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	left := deploy.InventoryItem{
		ApplicationID: web, Cluster: "local", Variant: "canary", UID: "u",
		Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: p.namespace, Name: "web-canary"},
	}
	if err := p.store.PutInventory(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	mustContain(t, strings.Join(g.records.check(t.Context(), web, p.namespace), "\n"), "Deployment web/spec/replicas is 3, want 2",
		"Service web/spec/selector/pipecd.dev/variant is canary, want primary", "HTTPRoute web/spec/rules/0/backendRefs has 2 items, want 1",
		`configmaps "web" not found`, "canary Deployment web-canary u")
}
