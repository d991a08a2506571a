package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// routedApp returns an application whose previews are next to it, with what applications have. Its pods are
// ready, and its routes accepted, after delays.
func routedApp(name, namespace, version, greeting, podDelay, routeDelay string) map[string]string {
	path := "/" + name
	if name == "web" {
		path = "/"
	}
	return map[string]string{
		name + "/app.pipecd.yaml": fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: %s
  input: {namespace: %s}
  preview: {label: preview, mode: route, header: X-Preview, host: "%s-pr-{{ .PullRequest.Number }}.preview.example.com"}
`, name, namespace, name),
		name + "/app.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 2
  progressDeadlineSeconds: 600
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {devcluster.piped.dev/ready-delay: %[4]q}}
    spec:
      containers: [{name: %[1]s, image: "registry.example/%[1]s:%[2]s", envFrom: [{configMapRef: {name: %[1]s}}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s}
data: {greeting: %[3]s}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: %[1]s}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: %[1]s}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[1]s}
spec: {minReplicas: 2, maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %[1]s}
spec: {podSelector: {matchLabels: {app: %[1]s}}, policyTypes: [Egress], egress: [{}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s, annotations: {devcluster.piped.dev/route-status: accept, devcluster.piped.dev/route-status-delay: %[6]q}}
spec:
  parentRefs: [{name: gateway}]
  hostnames: [shop.example.com]
  rules:
    - matches: [{path: {type: PathPrefix, value: %[5]s}}]
      backendRefs: [{name: %[1]s, port: 80}]
`, name, version, greeting, podDelay, path, routeDelay),
	}
}

// routedEnv is a previewEnv whose cluster has the Gateway API and Istio's kinds.
type routedEnv struct{ *previewEnv }

func newRoutedEnv(t *testing.T) routedEnv {
	cluster := clustertest.Shared(t)
	cluster.InstallGatewayAPI(t)
	cluster.InstallIstio(t)
	return routedEnv{newPreviewEnv(t)}
}

// routes returns the HTTPRoutes that a gateway has accepted.
func (e routedEnv) routes() (out []unstructured.Unstructured) {
	e.t.Helper()
	list, err := e.dynamic.Resource(httpRouteResource).Namespace(e.namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		e.t.Error(err)
		return nil
	}
	return slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool {
		parents, _, _ := unstructured.NestedSlice(u.Object, "status", "parents")
		if len(parents) != 1 {
			return true
		}
		conditions, _ := parents[0].(map[string]any)["conditions"].([]any)
		return !slices.ContainsFunc(conditions, func(v any) bool {
			c := v.(map[string]any)
			return c["type"] == "Accepted" && c["status"] == "True" && c["observedGeneration"] == u.GetGeneration()
		})
	})
}

// readyPods returns the ready pods that a selector selects.
func (e routedEnv) readyPods(selector map[string]string) (out []corev1.Pod) {
	e.t.Helper()
	pods, err := e.cluster.CoreV1().Pods(e.namespace).List(context.Background(), metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String()})
	if err != nil {
		e.t.Error(err)
	}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			out = append(out, pod)
		}
	}
	return out
}

// ServeHTTP is a gateway: it applies the accepted HTTPRoutes to the request, and answers with the images
// of the ready pods that the Service of the rule selects.
func (e routedEnv) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule, _ := clustertest.RouteRequest(e.routes(), r)
	if rule == nil {
		http.NotFound(w, r)
		return
	}
	name := rule["backendRefs"].([]any)[0].(map[string]any)["name"].(string)
	service, err := e.cluster.CoreV1().Services(e.namespace).Get(r.Context(), name, metav1.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	images := []string{}
	for _, pod := range e.readyPods(service.Spec.Selector) {
		images = append(images, strings.TrimPrefix(pod.Spec.Containers[0].Image, "registry.example/"))
	}
	slices.Sort(images)
	fmt.Fprint(w, strings.Join(slices.Compact(images), " and "))
}

// ask sends a request through the gateway at url and returns the answer.
func (e routedEnv) ask(url, host, path, header string) string {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, url+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	r.Host = host
	if header != "" {
		r.Header.Set("X-Preview", header)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.Status, err)
	}
	return string(body)
}

// names returns the names of objects of a kind, sorted.
func names(objects map[string]string, kind string) (out []string) {
	for name := range objects {
		if rest, ok := strings.CutPrefix(name, kind+" "); ok {
			out = append(out, rest)
		}
	}
	slices.Sort(out)
	return out
}

// announced returns whether the pull request is announced as ready, in any way.
func (e routedEnv) announced() bool {
	body := e.comment()
	return strings.Contains(body, "https://") && strings.Contains(body, "preview.example.com") || strings.Contains(body, "X-Preview") ||
		strings.Contains(body, "### Preview: ready") || e.lastState() == "success"
}

// TestPullRequestIsRouted: a pull request gets copies of the applications that it touches next to them, and
// the requests with its header or for its hosts. It is announced when the last pod of the slower
// application is ready and the last route is accepted, and no moment before. All else is shared, and
// nothing of it is touched, object by object. What the next commit does not need goes, and so does all of it when
// the pull request was closed while the agent was away.
func TestPullRequestIsRouted(t *testing.T) {
	t.Parallel()
	e := newRoutedEnv(t)
	agent, stop := runAgentUntil(t, e.settings)
	begin := e.repo.Push(t, "begin", merged(routedApp("web", e.namespace, "v1", "hi", "0s", "0s"), routedApp("api", e.namespace, "v1", "hi", "0s", "0s"), routedApp("other", e.namespace, "v1", "hi", "0s", "0s")))
	for _, dir := range []string{"web", "api", "other"} {
		agent.mustEnd(appID(dir), begin, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	eventually(t, "the routes of the branch are accepted", func() bool { return len(e.routes()) == 3 })
	before := e.objectsOf(false)
	gateway := httptest.NewServer(e)
	t.Cleanup(gateway.Close)

	e.push(merged(routedApp("web", e.namespace, "v2", "hello", "0s", "3s"), heldApp("api", routedApp("api", e.namespace, "v2", "hi", "0s", "0s"))))
	e.set("open", "preview")
	waited := false
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		announced := e.announced() // read before what it has to be true of
		web, api, routes := len(e.readyPods(map[string]string{"app": "web-pr-7"})), len(e.readyPods(map[string]string{"app": "api-pr-7"})), len(e.routes())
		if announced && (web != 2 || api != 2 || routes != 7) {
			t.Fatalf("ready with %d and %d pods of 2, and %d routes of 7: %s", web, api, routes, e.comment())
		}
		waited = waited || web == 2 && api == 0 && strings.Contains(e.comment(), "### Preview: building")
		if waited {
			letBeReady(t, e.cluster, e.namespace)
		}
		if announced {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the preview does not become ready: %s", e.comment())
		}
	}
	if !waited {
		t.Error("the slower application was not waited for")
	}
	mustContain(t, e.says("ready"), "web-pr-7", "api-pr-7", "<https://web-pr-7.preview.example.com>", "requests to `shop.example.com` with the header `X-Preview: pr-7-apps`")

	for _, c := range []struct{ host, path, header, want string }{
		{"shop.example.com", "/", "", "web:v1"},
		{"shop.example.com", "/api", "", "api:v1"},
		{"shop.example.com", "/", "pr-7-apps", "web:v2"},
		{"shop.example.com", "/api/x", "pr-7-apps", "api:v2"},
		{"shop.example.com", "/other", "pr-7-apps", "other:v1"},
		{"shop.example.com", "/", "pr-8-apps", "web:v1"},
		{"web-pr-7.preview.example.com", "/", "", "web:v2"},
		{"api-pr-7.preview.example.com", "/api", "", "api:v2"},
		{"api-pr-7.preview.example.com", "/", "", "404 Not Found<nil>"},
	} {
		if got := e.ask(gateway.URL, c.host, c.path, c.header); got != c.want {
			t.Errorf("%s%s with header %q is answered by %s, want %s", c.host, c.path, c.header, got, c.want)
		}
	}
	pod := e.readyPods(map[string]string{"app": "web-pr-7"})[0]
	if name := pod.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name; name != "web-pr-7" {
		t.Errorf("the pods of web use ConfigMap %s", name)
	}
	pod = e.readyPods(map[string]string{"app": "api-pr-7"})[0]
	if name := pod.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name; name != "api" {
		t.Errorf("the pods of api use ConfigMap %s", name)
	}
	own := e.objectsOf(true)
	for kind, want := range map[string]string{
		"deployments": "[api-pr-7 web-pr-7]", "services": "[api-pr-7 web-pr-7]", "configmaps": "[web-pr-7]", "networkpolicies": "[api-pr-7 web-pr-7]",
		"httproutes": "[api-host-pr-7 api-pr-7 web-host-pr-7 web-pr-7]", "poddisruptionbudgets": "[]", "horizontalpodautoscalers": "[]",
	} {
		if got := fmt.Sprint(names(own, kind)); got != want {
			t.Errorf("%s of the preview: %s, want %s", kind, got, want)
		}
	}
	e.mustBeShared(before)

	e.push(merged(routedApp("web", e.namespace, "v3", "hi", "0s", "0s"), routedApp("api", e.namespace, "v2", "hi", "0s", "0s")))
	e.set("open", "preview")
	e.says("ready")
	if got := e.ask(gateway.URL, "shop.example.com", "/", "pr-7-apps"); got != "web:v3" {
		t.Errorf("the next commit is answered by %s", got)
	}
	if left := names(e.objectsOf(true), "configmaps"); len(left) != 0 {
		t.Errorf("ConfigMaps %v are left, which the commit does not change", left)
	}

	stop() // or the route is back before it is missed
	if err := e.dynamic.Resource(httpRouteResource).Namespace(e.namespace).Delete(t.Context(), "web-pr-7", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := e.ask(gateway.URL, "shop.example.com", "/", "pr-7-apps"); got != "web:v1" {
		t.Errorf("without its route the preview is answered by %s", got)
	}
	_, stop = runAgentUntil(t, e.settings)
	eventually(t, "the drift is healed", func() bool { return e.ask(gateway.URL, "shop.example.com", "/", "pr-7-apps") == "web:v3" })
	e.says("ready")
	e.mustBeShared(before)

	stop()
	e.set("closed", "preview")
	agent = runAgent(t, e.settings)
	e.gone("the pull request is closed")
	eventually(t, "nothing is left", func() bool { return len(agent.previewApplications()) == 0 && agent.pullPreview() == nil })
	e.mustBeShared(before)
	if got := e.ask(gateway.URL, "shop.example.com", "/", "pr-7-apps"); got != "web:v1" {
		t.Errorf("after the removal the header is answered by %s", got)
	}

	e.set("open", "preview")
	e.says("ready")
	e.set("open")
	e.gone("has lost its label")
	e.mustBeShared(before)
}

// gone waits until the comment says that the preview is removed, which is no moment before all of its
// objects are.
func (e routedEnv) gone(why string) {
	e.t.Helper()
	eventually(e.t, "the comment says removed", func() bool { return strings.Contains(e.comment(), "### Preview: removed\n") })
	mustContain(e.t, e.comment(), why)
	for name := range e.objectsOf(true) {
		if !strings.HasPrefix(name, "pods ") && !strings.HasPrefix(name, "replicasets ") { // these are collected by the cluster
			e.t.Errorf("%s is left, and the comment says removed", name)
		}
	}
	eventually(e.t, "the pods are collected", func() bool { return len(e.objectsOf(true)) == 0 })
}

// TestRoutedPreviewReportsWhatIsMissing: the comment says what to do if a pull request asks for more than a preview
// next to its application can have, and lists the changes that the preview does not have.
func TestRoutedPreviewReportsWhatIsMissing(t *testing.T) {
	t.Parallel()
	e := newRoutedEnv(t)
	agent := runAgent(t, e.settings)
	agent.mustEnd(appID("web"), e.repo.Push(t, "begin", routedApp("web", e.namespace, "v1", "hi", "0s", "0s")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	before := e.objectsOf(false)
	files := routedApp("web", e.namespace, "v2", "hi", "0s", "0s")
	plain := files["web/app.yaml"]
	files["web/app.yaml"] = strings.Replace(plain, "envFrom: [", "envFrom: [{secretRef: {name: database}}, ", 1)
	e.push(files)
	e.set("open", "preview")
	mustContain(t, e.says("failed"), "uses Secret database of the branch: name it in spec.preview.secrets on the branch")
	if left := e.objectsOf(true); len(left) > 0 {
		t.Errorf("a refused preview has %v", left)
	}

	files["web/app.yaml"] = strings.Replace(plain, "maxReplicas: 2", "maxReplicas: 3", 1) +
		"---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: migrate, image: migrate}]}}}\n"
	e.push(files)
	e.set("open", "preview")
	mustContain(t, e.says("ready"), "Not in the preview `web-pr-7`:", "* HorizontalPodAutoscaler web: a preview has none", "* Job migrate: it is not run for a preview")
	e.mustBeShared(before)
	e.set("closed", "preview")
	e.gone("the pull request is closed")
}
