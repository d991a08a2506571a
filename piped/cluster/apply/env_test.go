package apply

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// env is one application on a real cluster, in its own namespace, with its inventory and
// a record of every request.
type env struct {
	*Client
	ns       string
	app      string
	requests *clustertest.Recorder
	log      *testLog
	mode     config.PropagationMode

	mu        sync.Mutex
	inventory map[string]deploy.InventoryItem
}

func newEnv(t *testing.T) *env {
	t.Helper()
	shared := clustertest.Shared(t)
	l := &env{ns: shared.Namespace(t), app: "app-1", requests: &clustertest.Recorder{}, log: newTestLog(), inventory: map[string]deploy.InventoryItem{}}
	access, err := cluster.NewCluster(cluster.ClusterConfig{
		Name: "test", KubeConfigPath: shared.Kubeconfig(), WrapTransport: l.requests.Wrap, RetryFor: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Client = New(access)
	t.Cleanup(l.Close)
	return l
}

// request returns a request to apply the manifests. Its progress is recorded in the env's
// inventory.
func (l *env) request(t *testing.T, manifests string) Request {
	t.Helper()
	objs, err := l.Resolve(context.Background(), parse(t, "app.yaml", manifests), l.ns, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Request{
		ApplicationID: l.app, PipedID: "piped-1", DeploymentID: "deployment-1", Commit: "commit-1",
		VariantKey: "pipecd.dev/variant", VariantValue: "primary", Variant: "primary",
		Objects: objs, Inventory: l.items(), Log: l.log, Propagation: l.mode,
		Journal: &journal{afterWrite: func(_ *unstructured.Unstructured, item deploy.InventoryItem) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.inventory[item.Object.Key()] = item
			return nil
		}},
	}
}

// journal is a Journal of functions. A nil function is not called.
type journal struct {
	NoJournal
	begin       func(intent Intent)
	beforeWrite func(obj manifest.Object, live, planned *unstructured.Unstructured) error
	afterWrite  func(result *unstructured.Unstructured, item deploy.InventoryItem) error
}

func (j *journal) Begin(_ context.Context, intent Intent) error {
	if j.begin != nil {
		j.begin(intent)
	}
	return nil
}

func (j *journal) BeforeWrite(_ context.Context, obj manifest.Object, live, planned *unstructured.Unstructured) error {
	if j.beforeWrite == nil {
		return nil
	}
	return j.beforeWrite(obj, live, planned)
}

func (j *journal) AfterWrite(_ context.Context, _ manifest.Object, result *unstructured.Unstructured, item deploy.InventoryItem) error {
	if j.afterWrite == nil {
		return nil
	}
	return j.afterWrite(result, item)
}

// journalOf returns the journal of a request to the env's cluster.
func journalOf(r *Request) *journal { return r.Journal.(*journal) }

func (l *env) items() []deploy.InventoryItem {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []deploy.InventoryItem
	for _, item := range l.inventory {
		out = append(out, item)
	}
	return out
}

// apply applies the manifests and fails the test when that fails.
func (l *env) apply(t *testing.T, manifests string, change ...func(*Request)) Result {
	t.Helper()
	result, err := l.tryApply(t, manifests, change...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (l *env) tryApply(t *testing.T, manifests string, change ...func(*Request)) (Result, error) {
	t.Helper()
	req := l.request(t, manifests)
	for _, f := range change {
		f(&req)
	}
	l.requests.Take()
	l.log.take()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	result, err := l.Apply(ctx, req)
	if err == nil { // what was not written may have another record
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, item := range result.Items {
			if _, known := l.inventory[item.Object.Key()]; known {
				l.inventory[item.Object.Key()] = item
			}
		}
	}
	return result, err
}

// logged returns the lines of the stage log, sorted, with the namespace's name
// replaced.
func (l *env) logged() []string {
	lines := l.log.take()
	for i, line := range lines {
		lines[i] = l.anonymous(line)
	}
	slices.Sort(lines)
	return lines
}

func (l *env) anonymous(text string) string { return strings.ReplaceAll(text, l.ns, "NS") }

// writes returns the requests since the last apply began that changed something.
func (l *env) writes() []string {
	var out []string
	for _, r := range l.requests.Take() {
		if !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "dryRun") {
			out = append(out, l.anonymous(r))
		}
	}
	slices.Sort(out)
	return out
}

func (l *env) get(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	obj := parse(t, "get.yaml", "apiVersion: "+apiVersions()[kind]+"\nkind: "+kind+"\nmetadata: {name: "+name+"}\n")[0]
	resource, err := l.Resource(context.Background(), obj.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	u, err := l.ResourceClient(resource, l.ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// touch changes an object as another user, with its own client.
func (l *env) touch(configMap string) error {
	cfg := l.RESTConfig()
	cfg.WrapTransport = nil
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().ConfigMaps(l.ns).Patch(context.Background(), configMap, types.MergePatchType,
		[]byte(`{"data":{"touched":"yes"}}`), metav1.PatchOptions{FieldManager: "somebody"})
	return err
}

func apiVersions() map[string]string {
	return map[string]string{"ConfigMap": "v1", "Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Service": "v1", "Secret": "v1", "Job": "batch/v1"}
}

// images returns the images of u's containers.
func images(u *unstructured.Unstructured) []string {
	var out []string
	for _, c := range manifest.Containers(u) {
		out = append(out, c.Image)
	}
	return out
}
