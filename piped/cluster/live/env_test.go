package live

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/deploytest"
	"github.com/c785c783/piped/piped/manifest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// env is one application on a real cluster, in its own namespace, with its inventory and
// a record of every request.
type env struct {
	*cluster.Cluster
	ns       string
	app      string
	requests *clustertest.Recorder

	mu        sync.Mutex
	inventory map[string]deploy.InventoryItem
}

func newEnv(t *testing.T) *env {
	t.Helper()
	shared := clustertest.Shared(t)
	l := &env{ns: shared.Namespace(t), app: "app-1", requests: &clustertest.Recorder{}, inventory: map[string]deploy.InventoryItem{}}
	var err error
	l.Cluster, err = cluster.NewCluster(cluster.ClusterConfig{
		Name: "test", KubeConfigPath: shared.Kubeconfig(), WrapTransport: l.requests.Wrap, RetryFor: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// apply applies the manifests with a changed request, and records the inventory.
func (l *env) apply(t *testing.T, manifests string, change ...func(*apply.Request)) apply.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	objects, err := l.Resolve(ctx, parse(t, manifests), l.ns, nil)
	if err != nil {
		t.Fatal(err)
	}
	req := apply.Request{
		ApplicationID: l.app, PipedID: "piped-1", DeploymentID: "deployment-1", Commit: "commit-1",
		VariantKey: "pipecd.dev/variant", VariantValue: "primary", Variant: "primary",
		Objects: objects, Inventory: l.items(), Log: &deploytest.Log{},
	}
	for _, f := range change {
		f(&req)
	}
	l.requests.Take()
	result, err := apply.New(l.Cluster).Apply(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range result.Items {
		l.record(item)
	}
	return result
}

func (l *env) record(item deploy.InventoryItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inventory[item.Object.Key()] = item
}

func (l *env) items() []deploy.InventoryItem {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []deploy.InventoryItem
	for _, item := range l.inventory {
		out = append(out, item)
	}
	return out
}

// anonymous replaces the namespace's name in a text.
func (l *env) anonymous(text string) string { return strings.ReplaceAll(text, l.ns, "NS") }

// parse reads manifests written in a test.
func parse(t testing.TB, text string) []manifest.Object {
	t.Helper()
	objects, err := manifest.Parse("app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
