package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// istioResource returns a resource of Istio.
func istioResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: name}
}

// istioApp returns a routedApp whose traffic is a VirtualService, as method istio of trafficRouting needs it.
func istioApp(namespace, version string) map[string]string {
	files := routedApp("web", namespace, version, "hi", "0s", "0s")
	objects, _, _ := strings.Cut(files["web/app.yaml"], "---\napiVersion: gateway.networking.k8s.io/v1")
	files["web/app.yaml"] = strings.Replace(objects, "labels: {app: web}", "labels: {app: web, pipecd.dev/variant: primary}", 1) + `---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web}
spec: {host: web, subsets: [{name: primary, labels: {pipecd.dev/variant: primary}}, {name: canary, labels: {pipecd.dev/variant: canary}}]}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [shop.example.com]
  gateways: [public]
  http:
    - route: [{destination: {host: web, subset: primary}, weight: 100}, {destination: {host: web, subset: canary}, weight: 0}]
`
	return files
}

// istioEnv is a routedEnv whose gateway is one of Istio.
type istioEnv struct{ routedEnv }

// ServeHTTP applies the VirtualServices to the request, and answers with the images of the ready pods that the
// Service and the subset of the destination with the most weight select.
func (e istioEnv) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list, err := e.dynamic.Resource(istioResource("virtualservices")).Namespace(e.namespace).List(r.Context(), metav1.ListOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	rule := clustertest.IstioRequest(list.Items, e.namespace+"/public", r)
	if rule == nil {
		http.NotFound(w, r)
		return
	}
	destination := rule["route"].([]any)[0].(map[string]any)["destination"].(map[string]any)
	selector, err := e.selector(r, destination)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	images := []string{}
	for _, pod := range e.readyPods(selector) {
		images = append(images, strings.TrimPrefix(pod.Spec.Containers[0].Image, "registry.example/"))
	}
	slices.Sort(images)
	fmt.Fprint(w, strings.Join(slices.Compact(images), " and "))
}

// selector returns what the Service and the subset of a destination select.
func (e istioEnv) selector(r *http.Request, destination map[string]any) (map[string]string, error) {
	service, err := e.cluster.CoreV1().Services(e.namespace).Get(r.Context(), destination["host"].(string), metav1.GetOptions{})
	if err != nil || destination["subset"] == nil {
		return service.Spec.Selector, err
	}
	rules, err := e.dynamic.Resource(istioResource("destinationrules")).Namespace(e.namespace).List(r.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, rule := range rules.Items {
		spec := rule.Object["spec"].(map[string]any)
		subsets, _ := spec["subsets"].([]any)
		for _, v := range subsets {
			subset := v.(map[string]any)
			if spec["host"] != destination["host"] || subset["name"] != destination["subset"] {
				continue
			}
			selector, _, err := unstructured.NestedStringMap(subset, "labels")
			for key, value := range service.Spec.Selector {
				selector[key] = value
			}
			return selector, err
		}
	}
	return nil, fmt.Errorf("no DestinationRule has subset %v of %v", destination["subset"], destination["host"])
}

// serve makes the Gateway of the namespace serve hosts.
func (e istioEnv) serve(hosts ...any) {
	e.t.Helper()
	gateway := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": map[string]any{"name": "public"},
		"spec": map[string]any{"servers": []any{map[string]any{"port": map[string]any{"number": int64(80), "name": "http", "protocol": "HTTP"}, "hosts": hosts}}},
	}}
	_, err := e.dynamic.Resource(istioResource("gateways")).Namespace(e.namespace).Apply(e.t.Context(), "public", gateway, metav1.ApplyOptions{FieldManager: "test", Force: true})
	if err != nil {
		e.t.Fatal(err)
	}
}

// TestPullRequestIsRoutedByIstio: the requests for the host of a preview get it through a VirtualService of its own.
// It is announced when a Gateway serves the host, and without the header, which does not lead to it. Nothing
// of the application is touched, object by object, and all of the preview goes.
func TestPullRequestIsRoutedByIstio(t *testing.T) {
	t.Parallel()
	e := istioEnv{newRoutedEnv(t)}
	e.serve("shop.example.com")
	agent := runAgent(t, e.settings)
	agent.mustEnd(appID("web"), e.repo.Push(t, "begin", istioApp(e.namespace, "v1")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	before := e.objectsOf(false)
	gateway := httptest.NewServer(e)
	t.Cleanup(gateway.Close)

	e.push(istioApp(e.namespace, "v2"))
	e.set("open", "preview")
	mustContain(t, e.says("failed"), "none of its Gateways (public) has a server for HTTP with the host web-pr-7.preview.example.com")
	e.serve("shop.example.com", "*.preview.example.com")
	e.push(istioApp(e.namespace, "v3"))
	e.set("open", "preview")
	mustContain(t, e.says("ready"), "<https://web-pr-7.preview.example.com>")
	if strings.Contains(e.comment(), "X-Preview") {
		t.Errorf("the comment names a header that does not lead to the preview:\n%s", e.comment())
	}
	for _, c := range []struct{ host, header, want string }{
		{"shop.example.com", "", "web:v1"},
		{"shop.example.com", "pr-7-apps", "web:v1"},
		{"web-pr-7.preview.example.com", "", "web:v3"},
		{"web-pr-8.preview.example.com", "", "404 Not Found<nil>"},
	} {
		if got := e.ask(gateway.URL, c.host, "/", c.header); got != c.want {
			t.Errorf("%s with header %q is answered by %s, want %s", c.host, c.header, got, c.want)
		}
	}
	own := e.objectsOf(true)
	for _, kind := range []string{"virtualservices", "destinationrules", "services", "deployments"} {
		if got := fmt.Sprint(names(own, kind)); got != "[web-pr-7]" {
			t.Errorf("%s of the preview: %s", kind, got)
		}
	}
	e.mustBeShared(before)

	e.set("closed", "preview")
	e.gone("the pull request is closed")
	e.mustBeShared(before)
	if got := e.ask(gateway.URL, "web-pr-7.preview.example.com", "/", ""); got != "404 Not Found<nil>" {
		t.Errorf("after the removal the host is answered by %s", got)
	}
}
