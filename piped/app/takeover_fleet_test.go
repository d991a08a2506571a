package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/manifest"
)

// fleet is a set of many applications in one namespace, and the requests that change
// them.
type fleet struct {
	ns     string
	client dynamic.Interface
	names  []string

	mu        sync.Mutex
	writes    []string // changing requests of agents, without dry runs
	conflicts int      // how many of them ended in a conflict
}

func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	cluster := clustertest.Shared(t)
	client, err := dynamic.NewForConfig(cluster.RESTConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{ns: cluster.Namespace(t), client: client}
	for i := range n {
		f.names = append(f.names, fmt.Sprintf("app-%02d", i))
	}
	return f
}

// kubeconfig returns a kubeconfig whose requests the fleet records.
func (f *fleet) kubeconfig(t *testing.T) string {
	t.Helper()
	writes := func(r *http.Request) bool {
		return r.Method != http.MethodGet && !r.URL.Query().Has("dryRun") && !strings.Contains(r.URL.Path, "selfsubject")
	}
	proxy, err := agenttest.ServeAPIAnswers(clustertest.Shared(t).Kubeconfig(), func(r *http.Request) {
		if writes(r) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.writes = append(f.writes, r.Method+" "+r.URL.Path)
		}
	}, func(resp *http.Response) {
		if resp.StatusCode == http.StatusConflict && writes(resp.Request) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.conflicts++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	path, err := proxy.Kubeconfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// taken returns the writes since the last call, and how many of them failed with a
// conflict because the object had changed since it was read.
func (f *fleet) taken() (writes []string, conflicts int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	writes, conflicts = f.writes, f.conflicts
	f.writes, f.conflicts = nil, 0
	return writes, conflicts
}

// files returns the applications' files in Git: for each a Deployment that reads a
// ConfigMap and a Secret, and a Service. Every fourth leaves its replicas to an
// autoscaler.
func (f *fleet) files(image string) map[string]string {
	out := map[string]string{}
	for i, name := range f.names {
		out[name+"/app.pipecd.yaml"] = fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s}\n  quickSync: {prune: true}\n", name, f.ns)
		replicas, hpa := "replicas: 1", ""
		if i%4 == 0 {
			replicas, hpa = "paused: false", fmt.Sprintf("---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: %[1]s}\n"+
				"spec: {minReplicas: 2, maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}}\n", name)
		}
		out[name+"/app.yaml"] = fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s}
data: {greeting: hello}
---
apiVersion: v1
kind: Secret
metadata: {name: %[1]s}
stringData: {password: hello}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  %[2]s
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers: [{name: web, image: "registry.example/web:%[3]s", envFrom: [{configMapRef: {name: %[1]s}}, {secretRef: {name: %[1]s}}]}]
%[4]s`, name, replicas, image, hpa)
	}
	return out
}

func fleetKinds() map[string]schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{
		"ConfigMap": {Version: "v1", Resource: "configmaps"}, "Secret": {Version: "v1", Resource: "secrets"}, "Service": {Version: "v1", Resource: "services"},
		"Deployment":              {Group: "apps", Version: "v1", Resource: "deployments"},
		"ReplicaSet":              {Group: "apps", Version: "v1", Resource: "replicasets"},
		"Pod":                     {Version: "v1", Resource: "pods"},
		"HorizontalPodAutoscaler": {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	}
}

// live returns all live objects of the fleet, by kind and name.
func (f *fleet) live(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	out := map[string]*unstructured.Unstructured{}
	for kind, resource := range fleetKinds() {
		list, err := f.client.Resource(resource).Namespace(f.ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range list.Items {
			if strings.HasPrefix(u.GetName(), "app-") {
				out[kind+" "+u.GetName()] = &list.Items[i]
			}
		}
	}
	return out
}

// substance returns the parts of live objects that a takeover must not change: everything
// except ownership, versions and status.
func substance(live map[string]*unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for key, u := range live {
		content := maps.Clone(u.Object)
		delete(content, "metadata")
		delete(content, "status")
		out[key] = map[string]any{"uid": string(u.GetUID()), "content": content}
	}
	return out
}

// awaitQuiet waits until every Deployment has rolled out and nothing changes any more.
func (f *fleet) awaitQuiet(t *testing.T) {
	t.Helper()
	var why string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if why = f.unfinished(t); why == "" {
			return
		}
	}
	t.Fatalf("after %s %s", patience, why)
}

func (f *fleet) unfinished(t *testing.T) string {
	deployments := 0
	for key, u := range f.live(t) {
		if u.GetKind() != "Deployment" {
			continue
		}
		deployments++
		number := func(path ...string) int64 {
			n, _, _ := unstructured.NestedInt64(u.Object, path...)
			return n
		}
		want := number("spec", "replicas")
		if f.scaled(u.GetName()) && want < 2 {
			return key + " is not scaled yet"
		}
		if number("status", "observedGeneration") != u.GetGeneration() || number("status", "updatedReplicas") != want ||
			number("status", "availableReplicas") != want || number("status", "replicas") != want {
			return key + " is not rolled out"
		}
	}
	if deployments != len(f.names) {
		return fmt.Sprintf("%d Deployments of %d", deployments, len(f.names))
	}
	return ""
}

// scaled reports whether an autoscaler scales the Deployment.
func (f *fleet) scaled(name string) bool { return slices.Index(f.names, name)%4 == 0 }

// applyAsPipeCD applies files as PipeCD's piped does with kubectl: client-side,
// with its annotations on every object and config-hash on the pod templates.
func (f *fleet) applyAsPipeCD(t *testing.T, files map[string]string, commit string) {
	t.Helper()
	f.applyAs(t, files, func(dir string, o manifest.Object) {
		o.SetAnnotations(map[string]string{
			manifest.AnnotationManagedBy: "piped", manifest.AnnotationPiped: "3f2b1c6e-pipecd", manifest.AnnotationApplication: "b1946ac9-" + dir,
			manifest.AnnotationOriginalAPIVersion: o.GetAPIVersion(), manifest.AnnotationResourceKey: manifest.ResourceKey(o.Unstructured),
			manifest.AnnotationCommitHash: commit, "pipecd.dev/variant": "primary",
		})
		if o.GetKind() != "Deployment" {
			return
		}
		if err := unstructured.SetNestedField(o.Object, "mkf7th2k9d", "spec", "template", "metadata", "annotations", manifest.AnnotationConfigHash); err != nil {
			t.Fatal(err)
		}
	})
}

// applyAs applies files client-side, as kubectl does. If mark is not nil, it first
// changes each object of a directory.
func (f *fleet) applyAs(t *testing.T, files map[string]string, mark func(dir string, o manifest.Object)) {
	t.Helper()
	const manager = "kubectl-client-side-apply"
	for path, text := range files {
		if !strings.HasSuffix(path, "/app.yaml") {
			continue
		}
		objs, err := manifest.Parse(path, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objs {
			o.SetNamespace(f.ns)
			if mark != nil {
				mark(strings.TrimSuffix(path, "/app.yaml"), o)
			}
			last, err := json.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			annotations := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(last)}
			maps.Copy(annotations, o.GetAnnotations())
			o.SetAnnotations(annotations)
			if _, err := f.client.Resource(fleetKinds()[o.GetKind()]).Namespace(f.ns).Create(t.Context(), o.Unstructured, metav1.CreateOptions{FieldManager: manager}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wantTaken fails the test if the live objects differ from before in anything but
// ownership.
func (f *fleet) wantTaken(t *testing.T, before map[string]*unstructured.Unstructured) {
	t.Helper()
	after := f.live(t)
	if diff := cmp.Diff(substance(before), substance(after)); diff != "" {
		t.Errorf("taking over changed (-before +after):\n%s", diff)
	}
	for key, u := range after {
		switch u.GetKind() {
		case "ReplicaSet", "Pod":
			continue
		}
		if u.GetLabels()[manifest.LabelApplication] != appID(u.GetName()) || u.GetAnnotations()[manifest.AnnotationPiped] != testID(t.Name()) {
			t.Errorf("%s is marked %v, %v", key, u.GetLabels(), u.GetAnnotations())
		}
		if u.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"] != "" {
			t.Errorf("%s still has its last-applied-configuration", key)
		}
		for _, entry := range u.GetManagedFields() {
			if strings.HasPrefix(entry.Manager, "kubectl") {
				t.Errorf("%s: %s still owns fields", key, entry.Manager)
			}
		}
	}
}
