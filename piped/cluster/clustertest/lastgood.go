package clustertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c785c783/piped/piped/manifest"
)

// LastGood is the state of the applications in a namespace after a success: every object
// with its replicas and traffic weights, and the pods.
type LastGood struct {
	client    dynamic.Interface
	namespace string
	state     map[string]any
}

// TakeLastGood records the current state of the applications in a namespace, once no pod is
// being deleted. Call it after the deployment that is the target of the rollback.
func TakeLastGood(t testing.TB, kubeconfig, namespace string) *LastGood {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) })
	g := &LastGood{namespace: namespace}
	if g.client, err = dynamic.NewForConfigAndClient(cfg, httpClient); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "no pod is being deleted", func() bool { // pods may outlive the rollout that replaced them
		var ending int
		if g.state, ending, err = g.read(context.Background()); err != nil {
			t.Fatal(err)
		}
		return ending == 0
	})
	if len(g.state) < 2 {
		t.Fatalf("no application has anything in namespace %s", namespace)
	}
	return g
}

// Assert fails the test unless the namespace has the recorded state: the same objects
// with the same content, no other object of an application, such as a leftover variant,
// and as many pods, all ready. Pods get ten minutes to terminate.
func (g *LastGood) Assert(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		now, _, err := g.read(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		diff := cmp.Diff(g.state, now)
		if diff == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cluster is not as after the last success (-then +now):\n%s", diff)
		}
	}
}

// read returns the content of every object of an application by kind and name, and
// under "pods" how many there are and how many are ready. ending is how many of them are
// being deleted.
func (g *LastGood) read(ctx context.Context) (state map[string]any, ending int, err error) {
	state = map[string]any{}
	for _, resource := range kinds() {
		list, err := g.client.Resource(resource).Namespace(g.namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelApplication})
		if apierrors.IsNotFound(err) {
			continue // not served
		}
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for _, o := range list.Items {
			if len(o.GetOwnerReferences()) == 0 {
				state[resource.Resource+"/"+o.GetName()] = lasting(o)
			}
		}
	}
	pods, err := g.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(g.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("list pods: %w", err)
	}
	ready := 0
	for _, p := range pods.Items {
		if isReady(p) {
			ready++
		}
		if p.GetDeletionTimestamp() != nil {
			ending++
		}
	}
	state["pods"] = fmt.Sprintf("%d, ready %d", len(pods.Items), ready)
	return state, ending, nil
}

func kinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "services"},
		{Version: "v1", Resource: "serviceaccounts"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "statefulsets"},
		{Group: "apps", Version: "v1", Resource: "daemonsets"}, {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
		{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, {Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"},
		{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}, {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"},
	}
}

// lasting returns the parts of an object that are stable without changes. The last commit
// and the number of changes are excluded.
func lasting(o unstructured.Unstructured) map[string]any {
	annotations := o.GetAnnotations()
	for _, key := range []string{manifest.AnnotationCommitHash, "deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation"} {
		delete(annotations, key)
	}
	o.SetAnnotations(annotations)
	for _, field := range []string{"uid", "resourceVersion", "generation", "managedFields", "creationTimestamp"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	delete(o.Object, "status")
	return o.Object
}

func isReady(pod unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, c := range conditions {
		if m, _ := c.(map[string]any); m["type"] == string(corev1.PodReady) && m["status"] == string(corev1.ConditionTrue) {
			return true
		}
	}
	return false
}
