package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

var (
	httpRoutes      = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	grpcRoutes      = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"}
	virtualServices = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
)

// trafficEnv is a rolloutEnv with a pipeline whose stages are run one by one, as the
// scheduler runs them.
type trafficEnv struct {
	*rolloutEnv

	mu sync.Mutex
	d  deploy.Deployment
}

// newTrafficEnv deploys manifests as the last success, and then begins a deployment
// with the pipeline of spec that changes the image.
func newTrafficEnv(t *testing.T, spec, manifests string) *trafficEnv {
	t.Helper()
	l := &trafficEnv{rolloutEnv: newRolloutEnv(t)}
	l.shared.InstallGatewayAPI(t)
	l.shared.InstallIstio(t)
	l.spec += spec
	l.succeed(t, manifests)
	l.d = l.deployment("now").Deployment
	l.d.Stages = nil
	for _, s := range application(t, l.spec).Pipeline.Stages {
		options, err := json.Marshal(s.With)
		if err != nil {
			t.Fatal(err)
		}
		l.d.Stages = append(l.d.Stages, deploy.Stage{ID: s.ID, Name: s.Name, Options: options, Metadata: map[string]string{}})
	}
	l.d.Stages = append(l.d.Stages, deploy.Stage{ID: deploy.RollbackID, Name: deploy.StageRollback, Rollback: true, Metadata: map[string]string{}})
	l.manifests = strings.ReplaceAll(manifests, "web:v1", "web:v2")
	return l
}

// stageRun is one run of a stage of the deployment.
func (l *trafficEnv) stageRun(id string, resumed bool) deploy.StageRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.d.Clone()
	return deploy.StageRun{
		Application: l.app, Deployment: d, Stage: *d.Stage(id), Resumed: resumed, Log: l.log,
		SaveMetadata: func(_ context.Context, kv map[string]string) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			maps.Copy(l.d.Stage(id).Metadata, kv)
			return nil
		},
	}
}

// execute runs a stage and stores how it ended. OnLine, if not nil, is
// called with each line of its log.
func (l *trafficEnv) execute(ctx context.Context, id string, resumed bool, onLine func(line string)) deploy.StageResult {
	run := l.stageRun(id, resumed)
	if onLine != nil {
		run.Log = &everyLine{run.Log, onLine}
	}
	stages := map[string]Stage{
		kubernetes.StageCanaryRollout: l.Canary(), kubernetes.StageCanaryClean: l.CleanCanary(), kubernetes.StagePrimaryRollout: l.Primary(),
		kubernetes.StageBaselineRollout: l.Baseline(), kubernetes.StageTrafficRouting: l.TrafficRouting(), deploy.StageRollback: l.Rollback(),
	}
	result := stages[run.Stage.Name].Execute(ctx, run)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.d.Stage(id).Status = result.Status
	return result
}

// everyLine is a stage log of which each line is passed to onLine.
type everyLine struct {
	deploy.StageLog
	onLine func(line string)
}

func (l *everyLine) Infof(format string, args ...any) {
	l.StageLog.Infof(format, args...)
	l.onLine(fmt.Sprintf(format, args...))
}

func (l *everyLine) Successf(format string, args ...any) {
	l.StageLog.Successf(format, args...)
	l.onLine(fmt.Sprintf(format, args...))
}

// pass runs stages that must succeed.
func (l *trafficEnv) pass(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		l.ends(t, id, deploy.StageSuccess, "", nil)
	}
}

// ends runs a stage that must end so, with a reason that holds a text.
func (l *trafficEnv) ends(t *testing.T, id string, status deploy.StageStatus, reason string, onLine func(string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	result := l.execute(ctx, id, false, onLine)
	if result.Status != status || !strings.Contains(result.Reason, reason) {
		t.Fatalf("%s ended %s: %s\nwant %s with %q; the log:\n%s", id, result.Status, result.Reason, status, reason, l.said())
	}
}

// get reads an object of the environment's namespace, nil when there is none.
func (l *trafficEnv) get(t *testing.T, kind schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	c := l.Clusters.(fixed)["one"]
	u, err := c.Dynamic().Resource(kind).Namespace(l.ns).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Error(err)
		return &unstructured.Unstructured{Object: map[string]any{}}
	}
	return u
}

// weights returns the backends of each rule of the route "web" with their weights.
func (l *trafficEnv) weights(t *testing.T, kind schema.GroupVersionResource) string {
	t.Helper()
	rules, _, _ := unstructured.NestedSlice(l.get(t, kind, "web").Object, "spec", "rules")
	var out []string
	for _, r := range rules {
		backends, _ := r.(map[string]any)["backendRefs"].([]any)
		var parts []string
		for _, b := range backends {
			parts = append(parts, fmt.Sprint(b.(map[string]any)["name"], " ", b.(map[string]any)["weight"]))
		}
		out = append(out, strings.Join(parts, ", "))
	}
	return strings.Join(out, "; ")
}

// edit changes an object as another field manager.
func (l *trafficEnv) edit(t *testing.T, kind schema.GroupVersionResource, body string) {
	t.Helper()
	c := l.Clusters.(fixed)["one"]
	_, err := c.Dynamic().Resource(kind).Namespace(l.ns).Patch(context.Background(), "web", types.MergePatchType, []byte(body), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		t.Errorf("edit: %v", err)
	}
}

// answer changes how the gateway answers routes.
func (l *trafficEnv) answer(t *testing.T, mode string) {
	t.Helper()
	l.edit(t, httpRoutes, `{"metadata":{"annotations":{"devcluster.piped.dev/route-status":"`+mode+`"}}}`)
}

// same fails the test when two texts differ.
func same(t *testing.T, what, want, got string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// shared manifests: the workload, its Service, and what routes to it.
const (
	variantWorkload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web, pipecd.dev/variant: primary}}
  template: {metadata: {labels: {app: web, pipecd.dev/variant: primary}}, spec: {containers: [{name: app, image: "web:v1"}]}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web, pipecd.dev/variant: primary}, ports: [{port: 80}]}
`
	routeManifest = `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gateway, sectionName: web}, {name: gateway, sectionName: internal}]
  rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      backendRefs: [{name: web, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /static}}]
      backendRefs: [{name: static, port: 80}]
`
	stepsPipeline = `
  service: {name: web}
  trafficRouting:
    method: httproute
    httpRoute: {verify: {timeout: 10m, settle: 1s}}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT, with: {createService: true, replicas: 2}}
      - {id: traffic, name: K8S_TRAFFIC_ROUTING, with: {steps: [5, 20, 50], interval: 1s}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: back, name: K8S_TRAFFIC_ROUTING, with: {all: primary}}
      - {id: clean, name: K8S_CANARY_CLEAN}
`
)

// hurry shortens the time limit of the verifications to come. A stage that is to end well has
// run by then: it may take longer on a busy machine.
func (l *trafficEnv) hurry() { l.spec = strings.Replace(l.spec, "timeout: 10m", "timeout: 15s", 1) }

// awaitEndpoints waits until a Service has so many ready endpoints.
func (l *trafficEnv) awaitEndpoints(t *testing.T, service string, want int) {
	t.Helper()
	eventually(t, func() string {
		slices, err := l.client.DiscoveryV1().EndpointSlices(l.ns).List(t.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
		if err != nil {
			return err.Error()
		}
		ready := 0
		for _, slice := range slices.Items {
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready != nil && *e.Conditions.Ready {
					ready++
				}
			}
		}
		if ready != want {
			return fmt.Sprintf("%d endpoints are ready, want %d", ready, want)
		}
		return ""
	})
}
