package live

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
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
		Name: "test", KubeConfigPath: shared.Kubeconfig(), WrapTransport: l.requests.Wrap, RetryFor: 5 * time.Second,
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	objects, err := l.Resolve(ctx, parse(t, manifests), l.ns, nil)
	if err != nil {
		t.Fatal(err)
	}
	req := apply.Request{
		ApplicationID: l.app, PipedID: "piped-1", DeploymentID: "deployment-1", Commit: "commit-1",
		VariantKey: "pipecd.dev/variant", VariantValue: "primary", Variant: "primary",
		Objects: objects, Inventory: l.items(), Log: quiet{},
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

// everyKind returns objects of more kinds than most applications have. Cluster-scoped
// objects get unique names and are deleted when the test ends.
func (l *env) everyKind(t *testing.T) string {
	t.Helper()
	t.Cleanup(func() {
		for _, item := range l.items() {
			if item.Object.Namespace == "" {
				l.delete(t, item.Object)
			}
		}
	})
	return clustertest.EveryKind(l.ns)
}

// delete deletes an object of any kind.
func (l *env) delete(t *testing.T, ref deploy.ObjectRef) {
	t.Helper()
	resource, err := l.Resource(context.Background(), manifest.GVK(ref))
	if err == nil {
		err = l.ResourceClient(resource, ref.Namespace).Delete(context.Background(), ref.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Errorf("delete %s: %v", ref, err)
	}
}

// unreachable returns a cluster that answers only discovery requests.
func unreachable(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.NewCluster(cluster.ClusterConfig{
		Name: "test", MasterURL: "https://127.0.0.1:1", RetryFor: time.Nanosecond, WrapTransport: clustertest.DiscoveryOnly,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// parse reads manifests written in a test.
func parse(t testing.TB, text string) []manifest.Object {
	t.Helper()
	objects, err := manifest.Parse("app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// quiet discards a stage log.
type quiet struct{}

func (quiet) Infof(string, ...any)    {}
func (quiet) Successf(string, ...any) {}
func (quiet) Errorf(string, ...any)   {}

// written returns an entry of managed fields.
func written(manager string, op metav1.ManagedFieldsOperationType, subresource, fields string, at time.Time) metav1.ManagedFieldsEntry {
	f := &metav1.FieldsV1{}
	f.SetRawBytes([]byte(fields))
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: op, Subresource: subresource, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: f, Time: &metav1.Time{Time: at},
	}
}

// web is an application of three objects.
const web = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", resources: {requests: {cpu: 1000m}}}]}
`
