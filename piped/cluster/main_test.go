package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apidiscovery "k8s.io/client-go/discovery"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/manifest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// parse reads manifests written in a test.
func parse(t testing.TB, file, text string) []manifest.Object {
	t.Helper()
	objs, err := manifest.Parse(file, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objs
}

// served is a discoverer over a fixed list of kinds.
type served struct {
	lists  []*metav1.APIResourceList
	failed map[schema.GroupVersion]error
	err    error
	calls  int
}

func (s *served) ServerGroupsAndResourcesWithContext(context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	s.calls++
	if s.err != nil {
		return nil, nil, s.err
	}
	if s.failed != nil {
		return nil, s.lists, &apidiscovery.ErrGroupDiscoveryFailed{Groups: s.failed}
	}
	return nil, s.lists, nil
}

// builtIns are some kinds every cluster serves, and a group whose own server is
// down.
func builtIns() *served {
	return &served{
		lists: []*metav1.APIResourceList{
			{GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
				{Name: "pods", Kind: "Pod", Namespaced: true},
				{Name: "pods/eviction", Kind: "Eviction", Namespaced: true},
				{Name: "namespaces", Kind: "Namespace"},
			}},
			{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Kind: "Deployment", Namespaced: true}}},
			{GroupVersion: "rbac.authorization.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "clusterroles", Kind: "ClusterRole"}}},
			{GroupVersion: "apiextensions.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"}}},
		},
		failed: map[schema.GroupVersion]error{{Group: "metrics.example.com", Version: "v1"}: errors.New("service unavailable")},
	}
}

// offline returns a cluster that serves kinds but cannot be reached.
func offline(t testing.TB, kinds discoverer) *Cluster {
	t.Helper()
	c, err := NewCluster(ClusterConfig{Name: "test", MasterURL: "https://127.0.0.1:1", RetryFor: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if kinds != nil {
		c.discovery = newDiscovery(kinds, time.Now)
	}
	return c
}
