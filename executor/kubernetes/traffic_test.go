package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// TestHTTPRouteInSteps: the canary's share rises step by step with the interval
// between, every step is in force when the log says so, what is applied later keeps
// the last one, and in the end the route is as in Git and the canary is removed after
// the requests have had time to end.
func TestHTTPRouteInSteps(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, strings.Replace(stepsPipeline, "interval: 1s", "interval: 1h", 1), variantWorkload+routeManifest)
	var skipped atomic.Int64 // of the agent's clock
	l.Now = func() time.Time { return time.Now().Add(time.Duration(skipped.Load())) }
	l.answer(t, "accept")
	git := l.get(t, httpRoutes, "web").Object["spec"]
	l.pass(t, "canary")
	same(t, "weights before", "web 1; static 1", l.weights(t, httpRoutes))

	var at []time.Time // since when a step is in force
	var seen []string
	l.ends(t, "traffic", deploy.StageSuccess, "", func(line string) {
		if strings.HasPrefix(line, "Step ") {
			at, seen = append(at, l.traffic(t, "traffic").Since), append(seen, line+" | "+l.weights(t, httpRoutes))
			l.checkAccepted(t, httpRoutes)
			skipped.Add(int64(time.Hour - time.Second)) // a stage that waits much longer does not end in time
		}
	})
	skipped.Store(0)
	same(t, "steps", `Step 1/3: canary 5%, primary 95%; next step in 1h0m0s | web 95, web-canary 5; static 1
Step 2/3: canary 20%, primary 80%; next step in 1h0m0s | web 80, web-canary 20; static 1
Step 3/3: canary 50%, primary 50% | web 50, web-canary 50; static 1`, strings.Join(seen, "\n"))
	for i := 1; i < len(at); i++ {
		if between := at[i].Sub(at[i-1]); between < time.Hour-50*time.Millisecond {
			t.Errorf("%s between steps %d and %d", between, i, i+1)
		}
	}
	stage := l.stageRun("traffic", false).Stage
	same(t, "metadata", "50 50 0", fmt.Sprint(stage.Metadata["primary-percentage"], " ", stage.Metadata["canary-percentage"], " ", stage.Metadata["baseline-percentage"]))

	l.pass(t, "primary")
	same(t, "weights after the primary's rollout", "web 50, web-canary 50; static 1", l.weights(t, httpRoutes))
	l.ends(t, "clean", deploy.StageFailure, "50% of the traffic still goes to the canary", nil)
	l.pass(t, "back")
	returned := l.traffic(t, "back").Since // from which the next stage counts
	if after := l.get(t, httpRoutes, "web").Object["spec"]; fmt.Sprint(after) != fmt.Sprint(git) {
		t.Errorf("the route is not as in Git:\n%v\nwant\n%v", after, git)
	}
	l.ends(t, "clean", deploy.StageSuccess, "", func(line string) {
		if strings.HasPrefix(line, "Removing") && time.Since(returned) < 800*time.Millisecond {
			t.Errorf("the canary is removed %s after it lost its traffic", time.Since(returned))
		}
	})
	if l.deploymentOf(t, "web-canary") {
		t.Error("the canary is still there")
	}
	l.writes()
	if result := l.Sync().Execute(t.Context(), l.deployment("now")); result.Status != deploy.StageSuccess {
		t.Fatal(result.Reason)
	}
	for _, w := range l.writes() {
		if strings.Contains(w, "httproutes") {
			t.Errorf("a later sync writes the route, which is as in Git: %s", w)
		}
	}
}

// checkAccepted: every parent of the route has accepted it as it is.
func (l *trafficEnv) checkAccepted(t *testing.T, kind schema.GroupVersionResource) {
	t.Helper()
	route := l.get(t, kind, "web")
	parents, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
	if len(parents) != 2 {
		t.Errorf("%d parents have answered", len(parents))
	}
	for _, p := range parents {
		for _, c := range p.(map[string]any)["conditions"].([]any) {
			condition := c.(map[string]any)
			if condition["observedGeneration"] != route.GetGeneration() || condition["status"] != "True" {
				t.Errorf("generation %d: %v", route.GetGeneration(), condition)
			}
		}
	}
}

func (l *trafficEnv) deploymentOf(t *testing.T, name string) bool {
	t.Helper()
	list, err := l.client.AppsV1().Deployments(l.ns).List(context.Background(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items) > 0
}

// TestRefusedRoute: when a gateway refuses a step the previous shares are restored, and the
// stage names the gateway and the reason. The rollback ends although no gateway accepts.
func TestRefusedRoute(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	l.ends(t, "traffic", deploy.StageFailure,
		"canary 20%, primary 80%: HTTPRoute "+l.ns+"/web is refused: Gateway "+l.ns+"/gateway (web) says ResolvedRefs is False: BackendNotFound: the simulated gateway says BackendNotFound; the traffic is shared as before: canary 5%, primary 95%",
		func(line string) {
			if strings.HasPrefix(line, "Step 1/3") {
				l.answer(t, "unresolved")
			}
		})
	same(t, "weights", "web 95, web-canary 5; static 1", l.weights(t, httpRoutes))
	same(t, "share", "5", l.stageRun("traffic", false).Stage.Metadata["canary-percentage"])
	l.pass(t, deploy.RollbackID)
	same(t, "weights after the rollback", "web 1; static 1", l.weights(t, httpRoutes))
	if l.deploymentOf(t, "web-canary") {
		t.Error("the canary is still there after the rollback")
	}
}

// TestStaleRoute: the stage waits, within its limit, for a gateway that has not observed the
// present version of the route.
func TestStaleRoute(t *testing.T) {
	t.Parallel()
	// The gateway has to accept the first step within the limit that ends the second one.
	l := newTrafficEnv(t, strings.Replace(stepsPipeline, "timeout: 10m", "timeout: 30s", 1), variantWorkload+routeManifest)
	l.answer(t, "stale")
	l.pass(t, "canary")
	waited := false
	l.ends(t, "traffic", deploy.StageFailure, "/gateway (internal) has not processed the latest change yet (ResolvedRefs is of generation 2, the route has 3); it was not accepted within 30s (spec.trafficRouting.httpRoute.verify.timeout); the traffic is shared as before: canary 5%, primary 95%",
		func(line string) {
			switch {
			case strings.Contains(line, "has not processed the latest change") && !waited:
				waited = true
				l.answer(t, "accept")
				eventually(t, func() string { return traffic.Evaluate(l.get(t, httpRoutes, "web")).Reason })
				l.routeReads() // forgets those of this test
			case strings.HasPrefix(line, "Step 1/3"):
				if n := l.routeReads(); n > 2 {
					t.Errorf("the stage read the route %d times after the gateway had accepted it", n)
				}
				l.answer(t, "stale")
			}
		})
	if !waited {
		t.Error("nothing was waited for")
	}
	same(t, "weights", "web 95, web-canary 5; static 1", l.weights(t, httpRoutes))
}

// routeReads counts the reads of the route "web", and forgets all requests.
func (l *trafficEnv) routeReads() (n int) {
	env := l.stageEnv
	env.mu.Lock()
	defer env.mu.Unlock()
	for _, r := range env.requests {
		if strings.HasPrefix(r, "GET ") && strings.HasSuffix(r, "/httproutes/web") {
			n++
		}
	}
	env.requests = nil
	return n
}

// TestUnreadyCanary: a variant that is not ready gets no traffic, and the log explains what
// the stage waits for.
func TestUnreadyCanary(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	l.relabel(t, "pipecd.dev/variant=canary", "never-ready")
	eventually(t, func() string {
		d, err := l.client.AppsV1().Deployments(l.ns).Get(t.Context(), "web-canary", metav1.GetOptions{})
		if err != nil || d.Status.AvailableReplicas > 0 {
			return fmt.Sprintf("%d pods of the canary are available, %v", d.Status.AvailableReplicas, err)
		}
		return ""
	})
	l.hurry()
	l.ends(t, "traffic", deploy.StageFailure, "the canary gets no traffic, because it was not ready for it within 15s: Deployment "+l.ns+"/web-canary: 0 of 2 pods are available, 2 are needed (readyThreshold 100%)", nil)
	same(t, "weights", "web 1; static 1", l.weights(t, httpRoutes))
	if !strings.Contains(l.said(), "Waiting: Deployment NS/web-canary: 0 of 2 pods are available") {
		t.Errorf("the log does not say what is waited for:\n%s", l.said())
	}

	l.spec = strings.Replace(l.spec, "timeout: 15s", "timeout: 10m", 1)
	healed := false
	l.ends(t, "traffic", deploy.StageSuccess, "", func(line string) {
		if strings.HasPrefix(line, "Waiting: Deployment") && !healed {
			healed = true
			l.relabel(t, "pipecd.dev/variant=canary", "ready")
		}
		if strings.HasPrefix(line, "Step") && !healed {
			t.Error("the canary got traffic before it was ready")
		}
	})
}

// relabel changes how the pods that a selector finds behave.
func (l *trafficEnv) relabel(t *testing.T, selector, behavior string) {
	t.Helper()
	if pods, err := clustertest.Behave(context.Background(), l.client, l.ns, selector, behavior); err != nil || pods == 0 {
		t.Errorf("%d pods, %v", pods, err)
	}
}

// TestNoServiceForTheCanary: without one nothing can be sent to it.
func TestNoServiceForTheCanary(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, strings.Replace(stepsPipeline, "createService: true", "createService: false", 1), variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	l.ends(t, "traffic", deploy.StageFailure, "Service "+l.ns+"/web-canary does not exist, so nothing can be sent to it: set createService: true", nil)
	same(t, "weights", "web 1; static 1", l.weights(t, httpRoutes))
}

// TestTrafficAfterARestart: a resumed stage repeats neither a step nor its interval, and the
// canary's share never falls.
func TestTrafficAfterARestart(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	for i, step := range []string{"Step 1/3", "Step 2/3"} {
		ctx, stop := context.WithCancelCause(t.Context())
		result := l.execute(ctx, "traffic", i > 0, func(line string) {
			if strings.HasPrefix(line, step) {
				stop(deploy.StopShutdown)
			}
		})
		if result.Status == deploy.StageSuccess {
			t.Fatalf("the stopped stage ended %s", result.Status)
		}
	}
	since := l.traffic(t, "traffic").Since
	l.writes()
	l.log.lines = nil
	if result := l.execute(t.Context(), "traffic", true, nil); result.Status != deploy.StageSuccess {
		t.Fatalf("%s: %s\n%s", result.Status, result.Reason, l.said())
	}
	if took := l.traffic(t, "traffic").Since.Sub(since); took < time.Second {
		t.Errorf("step 3 is in force %s after step 2", took)
	}
	said := l.said()
	if !strings.Contains(said, "Resumed after a restart of the agent: Step 2/3: canary 20%, primary 80%; next step in ") || strings.Contains(said, "Step 1/3") {
		t.Errorf("the log:\n%s", said)
	}
	routed := 0
	for _, w := range l.writes() {
		if strings.Contains(w, "httproutes") {
			routed++
		}
	}
	if routed != 1 {
		t.Errorf("the route was written %d times for one step", routed)
	}
	same(t, "weights", "web 50, web-canary 50; static 1", l.weights(t, httpRoutes))
}

// traffic is what a stage has stored.
func (l *trafficEnv) traffic(t *testing.T, id string) trafficState {
	t.Helper()
	o, found, err := trafficStateOf(l.stageRun(id, false).Stage)
	if err != nil || !found {
		t.Fatalf("%v %v", found, err)
	}
	return o
}

// TestCancelInAStep: the stage ends at once, and leaves the shares to the rollback.
func TestCancelInAStep(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, strings.Replace(stepsPipeline, "interval: 1s", "interval: 1h", 1), variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	ctx, stop := context.WithCancelCause(t.Context())
	var asked time.Time
	result := l.execute(ctx, "traffic", false, func(line string) {
		if strings.HasPrefix(line, "Step 1/3") {
			asked = time.Now()
			stop(deploy.StopCancelled)
		}
	})
	if result.Status != deploy.StageFailure || time.Since(asked) > time.Minute { // of an hour
		t.Errorf("%s after %s: %s", result.Status, time.Since(asked), result.Reason)
	}
	same(t, "weights", "web 95, web-canary 5; static 1", l.weights(t, httpRoutes))
	begun, routed := time.Now(), time.Time{}
	l.ends(t, deploy.RollbackID, deploy.StageSuccess, "", func(line string) {
		if strings.HasPrefix(line, "Removing") && time.Since(routed) < time.Second {
			t.Errorf("the canary is removed %s after it lost its traffic", time.Since(routed))
		}
		if strings.HasPrefix(line, "The routes are as in the last success") {
			routed = time.Now()
			same(t, "weights when the rollback says so", "web 1; static 1", l.weights(t, httpRoutes))
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("all traffic is the primary's again after %s", took)
			}
		}
	})
	if routed.IsZero() {
		t.Errorf("the rollback does not say that the traffic is the primary's again:\n%s", l.said())
	}
	if l.deploymentOf(t, "web-canary") {
		t.Error("the canary is still there after the rollback")
	}
}

// analyses is an Analyzer that knows how each analysis ends.
type analyses struct {
	sync.Mutex
	fails map[string]string // by name
	asked []string
}

func (a *analyses) Analyze(_ context.Context, run deploy.StageRun, name string, o analysis.Options, since time.Time) error {
	a.Lock()
	defer a.Unlock()
	a.asked = append(a.asked, fmt.Sprintf("%s of %s for %s: %d checks, begun %t", name, run.Stage.ID, o.Duration, len(o.HTTPS), !since.IsZero()))
	if why := a.fails[name]; why != "" {
		return errors.New(why)
	}
	return nil
}

// TestAnalysisAfterSteps: each step is followed by an analysis, and one that is not
// passed ends the stage with the shares as they are, for the rollback to restore.
func TestAnalysisAfterSteps(t *testing.T) {
	t.Parallel()
	spec := strings.Replace(stepsPipeline, "interval: 1s", `interval: 1s, analysis: {https: [{url: "https://example.com", interval: 500ms}]}`, 1)
	l := newTrafficEnv(t, spec, variantWorkload+routeManifest)
	l.answer(t, "accept")
	analyses := &analyses{fails: map[string]string{"step-2": "too many errors"}}
	l.Analyzer = analyses
	l.pass(t, "canary")
	l.ends(t, "traffic", deploy.StageFailure, "Step 2/3: canary 20%, primary 80%: the analysis failed: too many errors", nil)
	same(t, "weights", "web 80, web-canary 20; static 1", l.weights(t, httpRoutes))
	same(t, "analyses", "step-1 of traffic for 1s: 1 checks, begun true\nstep-2 of traffic for 1s: 1 checks, begun true", strings.Join(analyses.asked, "\n"))

	analyses.fails, analyses.asked = nil, nil
	if result := l.execute(t.Context(), "traffic", true, nil); result.Status != deploy.StageSuccess {
		t.Fatalf("%s: %s", result.Status, result.Reason)
	}
	same(t, "analyses after a restart", "step-2 of traffic for 1s: 1 checks, begun true\nstep-3 of traffic for 1s: 1 checks, begun true", strings.Join(analyses.asked, "\n"))
}

// TestTrafficReturns: the primary gets its traffic back when as many of its pods are
// ready as were before; fewer are waited for, and none is not enough.
func TestTrafficReturns(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, strings.Replace(variantWorkload, "selector: {app: web, pipecd.dev/variant: primary}, ports", "selector: {app: web}, ports", 1)+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	l.awaitEndpoints(t, "web", 4) // the Service selects the canary's, too
	l.pass(t, "traffic")
	if !strings.Contains(l.said(), "Service NS/web selects pods of every variant, so that the canary gets some of the primary's share as well: add pipecd.dev/variant: primary") {
		t.Errorf("the log:\n%s", l.said())
	}
	same(t, "pods of the primary", "4", fmt.Sprint(l.traffic(t, "traffic").Ready))
	l.relabel(t, "pipecd.dev/variant=primary", "never-ready")
	l.awaitAvailable(t, 0)
	l.awaitEndpoints(t, "web", 2) // another controller writes them
	l.hurry()
	l.ends(t, "back", deploy.StageSuccess, "", nil)
	if !strings.Contains(l.said(), "Continuing after 15s: 2 of the 4 pods of the primary are ready that were when it had all the traffic") {
		t.Errorf("the log:\n%s", l.said())
	}
	same(t, "weights", "web 1; static 1", l.weights(t, httpRoutes))
}

// TestNoPodOfThePrimary: what has no pod gets no more traffic.
func TestNoPodOfThePrimary(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary", "traffic")
	l.relabel(t, "pipecd.dev/variant=primary", "never-ready")
	l.awaitAvailable(t, 0)
	l.awaitEndpoints(t, "web", 0) // another controller writes them
	l.hurry()
	l.ends(t, "back", deploy.StageFailure, "the primary gets no more traffic, because it was not ready for it within 15s: Service "+l.ns+"/web has no ready endpoint", nil)
	same(t, "weights", "web 50, web-canary 50; static 1", l.weights(t, httpRoutes))
}

// TestPodSelector: blue and green; the Service follows only to pods that are ready.
func TestPodSelector(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, `
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT, with: {replicas: 100%}}
      - {id: traffic, name: K8S_TRAFFIC_ROUTING, with: {all: canary}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: back, name: K8S_TRAFFIC_ROUTING, with: {all: primary}}
      - {id: clean, name: K8S_CANARY_CLEAN}
`, variantWorkload)
	selector := func() string {
		s, err := l.client.CoreV1().Services(l.ns).Get(context.Background(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Spec.Selector["pipecd.dev/variant"]
	}
	l.pass(t, "canary")
	same(t, "selector before", "primary", selector())
	l.pass(t, "traffic")
	same(t, "selector", "canary", selector())
	l.pass(t, "primary")
	same(t, "selector after the primary's rollout", "canary", selector())
	l.pass(t, "back")
	same(t, "selector in the end", "primary", selector())
	l.pass(t, "clean")
}

// TestIstio: weights of a VirtualService that also routes to another host.
func TestIstio(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, `
  trafficRouting: {method: istio, istio: {host: web}}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT}
      - {id: baseline, name: K8S_BASELINE_ROLLOUT}
      - {id: traffic, name: K8S_TRAFFIC_ROUTING, with: {canary: 25, baseline: 25}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: back, name: K8S_TRAFFIC_ROUTING, with: {all: primary}}
`, variantWorkload+`---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [web]
  http: [{route: [{destination: {host: web, subset: primary}, weight: 60}, {destination: {host: other}, weight: 40}]}]
`)
	destinations := func() string {
		routes, _, _ := unstructured.NestedSlice(l.get(t, virtualServices, "web").Object, "spec", "http")
		var parts []string
		for _, d := range routes[0].(map[string]any)["route"].([]any) {
			destination := d.(map[string]any)["destination"].(map[string]any)
			parts = append(parts, fmt.Sprint(destination["host"], "/", destination["subset"], " ", d.(map[string]any)["weight"]))
		}
		return strings.Join(parts, ", ")
	}
	l.pass(t, "canary", "baseline", "traffic")
	const shared = "web/primary 30, web/canary 15, web/baseline 15, other/<nil> 40"
	same(t, "destinations", shared, destinations())
	l.pass(t, "primary")
	same(t, "destinations after the primary's rollout", shared, destinations())
	l.pass(t, "back")
	same(t, "destinations in the end", "web/primary 60, other/<nil> 40", destinations())
}

// TestGRPCRoute: the same for routes of the other kind, with A/B matches, whose rules
// have names because the cluster's routes can.
func TestGRPCRoute(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, strings.Replace(strings.Replace(stepsPipeline, "httproute", "grpcroute", 1), "httpRoute: {", `httpRoute: {abMatches: [{headers: {x-user: tester}}], `, 1), variantWorkload+
		strings.NewReplacer("HTTPRoute", "GRPCRoute", "path: {type: PathPrefix, value: /}", "method: {service: shop.Cart}", "path: {type: PathPrefix, value: /static}", "method: {service: shop.Static}").Replace(routeManifest))
	l.edit(t, grpcRoutes, `{"metadata":{"annotations":{"devcluster.piped.dev/route-status":"accept"}}}`)
	l.pass(t, "canary", "traffic")
	same(t, "weights", "web-canary 1; web 50, web-canary 50; static 1", l.weights(t, grpcRoutes))
	rules, _, _ := unstructured.NestedSlice(l.get(t, grpcRoutes, "web").Object, "spec", "rules")
	same(t, "name", "piped-ab-1", fmt.Sprint(rules[0].(map[string]any)["name"]))
	l.pass(t, "primary", "back")
	same(t, "weights in the end", "web 1; static 1", l.weights(t, grpcRoutes))
}

// TestAnotherManagerWritesTheRoute: the log warns, and the stage fails when the other manager
// has changed the shares.
func TestAnotherManagerWritesTheRoute(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "off")
	l.pass(t, "canary")
	l.ends(t, "traffic", deploy.StageFailure, `HTTPRoute `+l.ns+`/web: field manager "somebody" has changed spec.rules, so the shares are not in force`, func(line string) {
		if strings.HasPrefix(line, "Waiting: HTTPRoute") && l.weights(t, httpRoutes) == "web 95, web-canary 5; static 1" {
			l.edit(t, httpRoutes, `{"spec":{"rules":[{"backendRefs":[{"name":"web","port":80}]}]}}`)
		}
	})
	if !strings.Contains(l.said(), `field manager "somebody" writes spec.rules, too`) {
		t.Errorf("the log:\n%s", l.said())
	}
	same(t, "weights", "web 1; static 1", l.weights(t, httpRoutes))
}

// TestClusterThatDoesNotAnswer: a request that fails now is tried again.
func TestClusterThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	silent := 0
	l.answered = func(r *http.Request) error {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/endpointslices") && silent < 4 {
			silent++
			return syscall.ECONNREFUSED
		}
		return nil
	}
	l.pass(t, "traffic")
	if !strings.Contains(l.said(), "Waiting: list the endpoints of Service NS/web-canary: ") {
		t.Errorf("%d requests were not answered; the log:\n%s", silent, l.said())
	}
}

// TestUnready: the conditions of readiness, each in words.
func TestUnready(t *testing.T) {
	ready := rollout.Workload{Generation: 3, ObservedGeneration: 3, Replicas: 10, Updated: 10, Total: 10, Available: 10}
	cases := []struct {
		name      string
		change    func(*rollout.Workload)
		threshold int
		want      string
	}{
		{"ready", func(*rollout.Workload) {}, 100, ""},
		{"not observed", func(c *rollout.Workload) { c.Generation = 4 }, 100, "its controller has not observed the last change"},
		{"deadline", func(c *rollout.Workload) {
			c.Progressing, c.Updated = rollout.Condition{Reason: deadlineExceeded, Message: "it has timed out"}, 3
		}, 100, "its progress deadline is exceeded: it has timed out"},
		{"too few new", func(c *rollout.Workload) { c.Updated = 3 }, 100, "3 of 10 new pods exist"},
		{"old ones left", func(c *rollout.Workload) { c.Total = 12 }, 100, "2 of 12 pods are still of the previous version"},
		{"too few available", func(c *rollout.Workload) { c.Available = 7 }, 75, "7 of 10 pods are available, 8 are needed (readyThreshold 75%)"},
		{"enough available", func(c *rollout.Workload) { c.Available = 8 }, 75, ""},
		{"a little is at least one", func(c *rollout.Workload) { c.Replicas, c.Updated, c.Total, c.Available = 1, 1, 1, 0 }, 1, "0 of 1 pods are available, 1 are needed (readyThreshold 1%)"},
		{"none wanted", func(c *rollout.Workload) { *c = rollout.Workload{} }, 100, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := ready
			c.change(&got)
			same(t, "why", c.want, unready(got, c.threshold))
		})
	}
}

// TestProgressDeadline: a canary whose deadline is exceeded is not waited for.
func TestProgressDeadline(t *testing.T) {
	t.Parallel()
	l := newTrafficEnv(t, stepsPipeline, variantWorkload+routeManifest)
	l.answer(t, "accept")
	l.pass(t, "canary")
	_, err := l.client.AppsV1().Deployments(l.ns).Patch(t.Context(), "web-canary", "application/merge-patch+json",
		[]byte(`{"spec":{"progressDeadlineSeconds":2,"template":{"spec":{"containers":[{"name":"app","image":"web:does-not-exist"}]}}}}`), metav1.PatchOptions{FieldManager: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	l.ends(t, "traffic", deploy.StageFailure, "Deployment "+l.ns+"/web-canary: its progress deadline is exceeded: ", nil)
	same(t, "weights", "web 1; static 1", l.weights(t, httpRoutes))
}
