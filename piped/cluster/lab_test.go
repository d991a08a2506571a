package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// lab is one application on a real cluster, in a namespace of its own, with its
// inventory and a record of every request.
type lab struct {
	*Cluster
	ns       string
	app      string
	requests *requests
	log      *testLog
	mode     config.PropagationMode

	mu        sync.Mutex
	inventory map[string]deploy.InventoryItem
}

func newLab(t *testing.T) *lab {
	t.Helper()
	shared := clustertest.Shared(t)
	l := &lab{ns: shared.Namespace(t), app: "app-1", requests: &requests{}, log: newTestLog(), inventory: map[string]deploy.InventoryItem{}}
	var err error
	l.Cluster, err = NewCluster(ClusterConfig{
		Name: "test", KubeConfigPath: shared.Kubeconfig(), WrapTransport: l.requests.wrap, RetryFor: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// request returns a request to apply the manifests, which is recorded in the
// lab's inventory as it goes on.
func (l *lab) request(t *testing.T, manifests string) ApplyRequest {
	t.Helper()
	objs, err := l.Resolve(context.Background(), parse(t, "app.yaml", manifests), l.ns, nil)
	if err != nil {
		t.Fatal(err)
	}
	return ApplyRequest{
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

// journal is a Journal of functions, each of which may be nil.
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

// journalOf returns the journal of a request of the lab.
func journalOf(r *ApplyRequest) *journal { return r.Journal.(*journal) }

func (l *lab) items() []deploy.InventoryItem {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []deploy.InventoryItem
	for _, item := range l.inventory {
		out = append(out, item)
	}
	return out
}

// apply applies the manifests and fails the test when that fails.
func (l *lab) apply(t *testing.T, manifests string, change ...func(*ApplyRequest)) ApplyResult {
	t.Helper()
	result, err := l.tryApply(t, manifests, change...)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func (l *lab) tryApply(t *testing.T, manifests string, change ...func(*ApplyRequest)) (ApplyResult, error) {
	t.Helper()
	req := l.request(t, manifests)
	for _, f := range change {
		f(&req)
	}
	l.requests.take()
	l.log.take()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := l.Apply(ctx, req)
	if err == nil { // what was not written may be recorded otherwise
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
func (l *lab) logged() []string {
	lines := l.log.take()
	for i, line := range lines {
		lines[i] = l.anonymous(line)
	}
	slices.Sort(lines)
	return lines
}

func (l *lab) anonymous(text string) string { return strings.ReplaceAll(text, l.ns, "NS") }

// writes returns the requests that changed something since the last apply began.
func (l *lab) writes() []string {
	var out []string
	for _, r := range l.requests.take() {
		if !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "dryRun") {
			out = append(out, l.anonymous(r))
		}
	}
	slices.Sort(out)
	return out
}

func (l *lab) get(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	obj := parse(t, "get.yaml", "apiVersion: "+apiVersions()[kind]+"\nkind: "+kind+"\nmetadata: {name: "+name+"}\n")[0]
	resource, err := l.Resource(context.Background(), obj.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	u, err := l.objectsOf(resource, l.ns).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// touch changes an object as somebody else, with a client of its own.
func (l *lab) touch(configMap string) error {
	cfg := rest.CopyConfig(l.config)
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

// requests records the requests that pass through it, and can fail some.
type requests struct {
	mu   sync.Mutex
	seen []string
	fail func(r *http.Request) error // set before the requests begin
	// answer, set before the requests begin, takes the place of the cluster where
	// it returns something.
	answer func(r *http.Request) *http.Response
	// conflicts are those that the cluster refused because the object had changed.
	conflicts []string
}

func (r *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return &recorder{requests: r, next: next}
}

func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.seen
	r.seen = nil
	return out
}

func (r *requests) record(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, requestLine(req))
}

func (r *requests) refused(req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conflicts = append(r.conflicts, requestLine(req))
}

func requestLine(req *http.Request) string {
	line := req.Method + " " + req.URL.Path
	if req.URL.Query().Has("dryRun") {
		line += " dryRun"
	}
	if kind := req.Header.Get("Content-Type"); req.Method == http.MethodPatch && !strings.Contains(kind, "apply-patch") {
		line += " " + kind
	}
	return line
}

type recorder struct {
	requests *requests
	next     http.RoundTripper
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.requests.record(req)
	if fail := r.requests.fail; fail != nil {
		if err := fail(req); err != nil {
			return nil, err
		}
	}
	if answer := r.requests.answer; answer != nil {
		if resp := answer(req); resp != nil {
			return resp, nil
		}
	}
	resp, err := r.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusConflict {
		r.requests.refused(req)
	}
	return resp, err
}

// refusal returns an answer of an API server that refuses a request.
func refusal(r *http.Request, s metav1.Status, header ...string) *http.Response {
	s.TypeMeta, s.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
	body, err := json.Marshal(s)
	if err != nil {
		panic("test: " + err.Error()) // a Status is always JSON
	}
	resp := &http.Response{
		StatusCode: int(s.Code), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
	for i := 0; i+1 < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp
}

// WrappedRoundTripper lets client-go find the connections to close.
func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

// refuseConnections fails the first n requests of a method as a server that is
// down would.
func refuseConnections(method string, n int) func(*http.Request) error {
	var left atomic.Int32
	left.Store(int32(n))
	return func(r *http.Request) error {
		if r.Method != method || left.Add(-1) < 0 {
			return nil
		}
		return fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	}
}

// images returns what the containers of u run.
func images(u *unstructured.Unstructured) []string {
	var out []string
	for _, c := range manifest.Containers(u) {
		out = append(out, c.Image)
	}
	return out
}
