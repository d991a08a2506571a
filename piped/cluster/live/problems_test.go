package live

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// TestProblemsOfMembers: a kind that cannot be watched is reported once the problem has
// lasted for some time.
func TestProblemsOfMembers(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	long, lately := now.Add(-time.Minute), now.Add(-time.Second)
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "dev", MasterURL: "https://dev", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	m := &Members{cluster: c, kinds: map[schema.GroupKind]*memberKind{}}
	for kind, k := range map[string]*memberKind{
		"Forbidden": {since: long, problem: deploy.Errorf(deploy.Invalid, "give the rights")},
		"Lately":    {since: lately, problem: deploy.Errorf(deploy.Invalid, "give the rights")},
		"Unserved":  {since: long, problem: deploy.Errorf(deploy.NotFound, "no such kind")},
		"Apart":     {since: long, byNamespace: true, namespaces: map[string]bool{"a": true, "b": true}},
		"Nowhere":   {since: long, byNamespace: true},
	} {
		k.gvk = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind}
		m.kinds[k.gvk.GroupKind()] = k
	}
	want := []deploy.WatchProblem{
		{Kind: "Apart.example.com", Error: "objects of kind Apart are not followed in cluster \"dev\" (https://dev): not read yet", Since: long},
		{Kind: "Forbidden.example.com", Error: "give the rights", Since: long},
	}
	if diff := cmp.Diff(want, m.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
