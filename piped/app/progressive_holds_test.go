package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// matrixStages are the stages of the pipeline of TestEveryStageIsInterrupted, with the
// options of those that nothing holds.
var matrixStages = []struct{ id, name, with string }{
	{"canary", "K8S_CANARY_ROLLOUT", "createService: true"},
	{"baseline", "K8S_BASELINE_ROLLOUT", "createService: true"},
	{"traffic", "K8S_TRAFFIC_ROUTING", "steps: [10, 50], interval: 200ms"},
	{"analysis", "ANALYSIS", ""},
	{"wait", "WAIT", "duration: 200ms"},
	{"approval", "WAIT_APPROVAL", ""},
	{"script", "SCRIPT_RUN", "run: 'true'"},
	{"primary", "K8S_PRIMARY_ROLLOUT", ""},
	{"back", "K8S_TRAFFIC_ROUTING", "all: primary"},
	{"clean", "K8S_CANARY_CLEAN", ""},
	{"clean-baseline", "K8S_BASELINE_CLEAN", ""},
}

// firstStep is the HTTPRoute at the first step of stage "traffic".
const firstStep = "web 90, web-canary 10; static 1"

// waitLimit is the time limit of the deployment that times out in WAIT, which can have
// none of its own below its duration.
const waitLimit = "40s"

// cell makes the application for a stage and a way.
func (m *matrix) cell(stage, way string) *matrixCell {
	c := &matrixCell{stage: stage, way: way}
	c.app = progressiveApp{dir: stage + "-" + way, objects: httpRouteOfWeb}
	if slices.Contains([]string{"canary", "baseline", "primary"}, stage) {
		c.hold = podHold{variant: stage}
		c.app.podLabels = behaviorLabel + ": never-ready" // until the test says otherwise
	} else {
		c.hold = map[string]hold{
			"traffic": routeHold{}, "back": routeHold{}, "analysis": checkHold{}, "wait": waitHold{}, "approval": noHold{},
			"script": scriptHold{}, "clean": deleteHold{variant: "canary"}, "clean-baseline": deleteHold{variant: "baseline"},
		}[stage]
	}
	between := stage == "traffic" && way == cancelled // two steps
	if between {
		c.hold = stepHold{}
	}
	var b strings.Builder
	if stage == "wait" && way == timedOut {
		fmt.Fprintf(&b, "  timeout: %s\n", waitLimit)
	}
	b.WriteString("  trafficRouting: {method: httproute, httpRoute: {verify: {timeout: 10m, settle: 200ms}}}\n  pipeline:\n    stages:\n")
	for _, s := range matrixStages {
		with := s.with
		switch {
		case s.id == "analysis":
			with = fmt.Sprintf("duration: 400ms, https: [{url: %q, interval: 200ms, timeout: 10m}]", m.checked.url(c.app.dir))
		case s.id == stage && between:
			with = "steps: [10, 50], interval: 10m"
		case s.id == stage && s.id == "wait":
			with = "duration: 10m"
		case s.id == stage && s.id == "script":
			with = fmt.Sprintf("onInterrupted: rerun, run: %q", "touch "+m.file(c, "begun")+"; until [ -e "+m.file(c, "go-on")+" ]; do sleep 0.1; done")
		}
		limit := ""
		if s.id == stage && way == timedOut && stage != "wait" {
			limit = ", timeout: 2s"
		}
		fmt.Fprintf(&b, "      - {id: %s, name: %s%s, with: {%s}}\n", s.id, s.name, limit, with)
	}
	c.app.spec = b.String()
	if stage != "analysis" {
		m.checked.open(c.app.dir)
	}
	return c
}

// file is the path of a file that the application's script makes or waits for.
func (m *matrix) file(c *matrixCell, name string) string {
	return filepath.Join(m.dir, c.app.dir+"-"+name)
}

// mustBeDeployed fails the test unless the next version is what the application has.
func (m *matrix) mustBeDeployed(t *testing.T, c *matrixCell, d *modelv1.Deployment) {
	t.Helper()
	if d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS {
		t.Fatalf("it ended as %s: %s", d.GetStatus(), d.GetStatusReason())
	}
	m.records.mustMatch(t, appID(c.app.dir), c.app.namespace)
	web, err := m.kube.AppsV1().Deployments(c.app.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if image := web.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v2") || web.Status.AvailableReplicas != 2 || web.Status.Replicas != 2 {
		t.Errorf("Deployment web runs %s, %+v", image, web.Status)
	}
	left, err := m.kube.AppsV1().Deployments(c.app.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 {
		t.Errorf("%d Deployments are there (%v), want one", len(left.Items), err)
	}
}

// completed reports whether a deployment has ended.
func completed(d *modelv1.Deployment) bool {
	return d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
}

// runningStage returns the ID of the stage that runs, "" when none does.
func runningStage(d *modelv1.Deployment) string {
	for _, s := range d.GetStages() {
		if s.GetStatus() == modelv1.StageStatus_STAGE_RUNNING {
			return s.GetId()
		}
	}
	return ""
}

// hold keeps a stage running until it is released.
type hold interface {
	begin(*testing.T, *matrix, *matrixCell)          // before the next version is deployed
	beforeApproval(*testing.T, *matrix, *matrixCell) // which comes before the second half of the stages
	reached(*testing.T, *matrix, *matrixCell) bool   // whether the stage is in its midst
	release(*testing.T, *matrix, *matrixCell)
	whileReleased(*testing.T, *matrix, *matrixCell) // again and again
	holdsRollback() bool                            // whether it keeps a rollback running, too
}

// noHold holds nothing: an approval that nobody gives holds its stage.
type noHold struct{}

func (noHold) begin(*testing.T, *matrix, *matrixCell)          {}
func (noHold) beforeApproval(*testing.T, *matrix, *matrixCell) {}
func (noHold) reached(*testing.T, *matrix, *matrixCell) bool   { return true }
func (noHold) release(*testing.T, *matrix, *matrixCell)        {}
func (noHold) whileReleased(*testing.T, *matrix, *matrixCell)  {}
func (noHold) holdsRollback() bool                             { return false }

// stepHold is a step of traffic that takes too long.
type stepHold struct{ noHold }

func (stepHold) reached(t *testing.T, m *matrix, c *matrixCell) bool {
	route := m.route(t, c)
	return accepted(route) && backends(route) == firstStep
}

// podHold keeps the pods of a variant from becoming ready.
type podHold struct {
	noHold
	variant string
}

const behaviorLabel = "devcluster.piped.dev/behavior"

func (h podHold) reached(t *testing.T, m *matrix, c *matrixCell) bool {
	pods, err := m.kube.CoreV1().Pods(c.app.namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: behaviorLabel + "=never-ready,pipecd.dev/variant=" + h.variant,
	})
	return err == nil && len(pods.Items) > 0
}

// readyPods makes the pods ready that are not held.
func (m *matrix) readyPods(ctx context.Context) error {
	pods, err := m.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: behaviorLabel + "=never-ready"})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		for _, c := range m.cells {
			h, ok := c.hold.(podHold)
			if !ok || c.app.namespace != pod.Namespace || c.good != nil && !c.released && pod.Labels["pipecd.dev/variant"] == h.variant {
				continue
			}
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"ready"}}}`, behaviorLabel)
			if _, err := m.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// routeHold keeps the gateway from answering.
type routeHold struct{ noHold }

func (h routeHold) begin(t *testing.T, m *matrix, c *matrixCell) {
	if c.stage == "traffic" {
		answerRoute(t, m.dynamic, c.app.namespace, "off")
	}
}

func (h routeHold) beforeApproval(t *testing.T, m *matrix, c *matrixCell) {
	if c.stage == "back" {
		answerRoute(t, m.dynamic, c.app.namespace, "off")
	}
}

// reached: the weights are written, and not accepted.
func (h routeHold) reached(t *testing.T, m *matrix, c *matrixCell) bool {
	route := m.route(t, c)
	return !accepted(route) && backends(route) == map[string]string{"traffic": firstStep, "back": "web 1; static 1"}[c.stage]
}

func (routeHold) holdsRollback() bool { return true }

func (h routeHold) release(t *testing.T, m *matrix, c *matrixCell) {
	answerRoute(t, m.dynamic, c.app.namespace, "accept")
}

// route returns the application's HTTPRoute.
func (m *matrix) route(t *testing.T, c *matrixCell) map[string]any {
	t.Helper()
	route, err := m.dynamic.Resource(httpRouteResource).Namespace(c.app.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Errorf("%s: %v", c.app.dir, err)
		return map[string]any{}
	}
	return route.Object
}

// accepted reports whether the gateway has answered a route as it is.
func accepted(route map[string]any) bool {
	generation, _, _ := unstructured.NestedInt64(route, "metadata", "generation")
	return strings.Contains(fmt.Sprint(items(route, "status", "parents")), fmt.Sprint("observedGeneration:", generation))
}

// checkHold keeps what an analysis asks from answering.
type checkHold struct{ noHold }

func (checkHold) reached(_ *testing.T, m *matrix, c *matrixCell) bool {
	return m.checked.asked(c.app.dir)
}
func (checkHold) release(_ *testing.T, m *matrix, c *matrixCell) { m.checked.open(c.app.dir) }

// waitHold is a WAIT that takes too long, until a person skips it.
type waitHold struct{ noHold }

func (waitHold) release(t *testing.T, m *matrix, c *matrixCell) {
	if c.way != killed {
		return
	}
	if _, err := m.agent.Control.SkipStage(t.Context(), &controlv1.SkipStageRequest{DeploymentId: c.deployment.GetId(), StageId: "wait"}); err != nil {
		t.Errorf("%s: skip: %v", c.app.dir, err)
	}
}

// scriptHold is a script that waits for a file.
type scriptHold struct{ noHold }

func (scriptHold) reached(_ *testing.T, m *matrix, c *matrixCell) bool {
	_, err := os.Stat(m.file(c, "begun"))
	return err == nil
}

func (scriptHold) release(t *testing.T, m *matrix, c *matrixCell) {
	if err := os.WriteFile(m.file(c, "go-on"), nil, 0o600); err != nil {
		t.Error(err)
	}
}

// deleteHold keeps the pods of a variant from ending, until they are ended by force.
type deleteHold struct {
	noHold
	variant string
}

func (h deleteHold) pods(t *testing.T, m *matrix, c *matrixCell, do func(name string, ending bool) error) {
	t.Helper()
	pods, err := m.kube.CoreV1().Pods(c.app.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "pipecd.dev/variant=" + h.variant})
	if err != nil {
		t.Errorf("%s: %v", c.app.dir, err)
		return
	}
	for _, pod := range pods.Items {
		if err := do(pod.Name, pod.DeletionTimestamp != nil); err != nil {
			t.Errorf("%s: %v", c.app.dir, err)
		}
	}
}

func (h deleteHold) beforeApproval(t *testing.T, m *matrix, c *matrixCell) {
	h.pods(t, m, c, func(name string, _ bool) error {
		patch := `{"metadata":{"annotations":{"devcluster.piped.dev/delete-delay":"10m"}}}`
		_, err := m.kube.CoreV1().Pods(c.app.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

func (h deleteHold) reached(t *testing.T, m *matrix, c *matrixCell) (ending bool) {
	h.pods(t, m, c, func(_ string, e bool) error {
		ending = ending || e
		return nil
	})
	return ending
}

func (deleteHold) holdsRollback() bool { return true }

func (h deleteHold) whileReleased(t *testing.T, m *matrix, c *matrixCell) {
	h.pods(t, m, c, func(name string, ending bool) error {
		if !ending {
			return nil
		}
		now := int64(0)
		return m.kube.CoreV1().Pods(c.app.namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
}

// gates is an HTTP server whose every path answers once it is opened.
type gates struct {
	server *httptest.Server
	mu     sync.Mutex
	closed map[string]chan struct{}
	seen   map[string]bool
}

func newGates(t *testing.T) *gates {
	g := &gates{closed: map[string]chan struct{}{}, seen: map[string]bool{}}
	g.server = httptest.NewServer(g)
	t.Cleanup(g.server.Close)
	return g
}

// gate returns what is closed when the path is open.
func (g *gates) gate(name string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed[name] == nil {
		g.closed[name] = make(chan struct{})
	}
	return g.closed[name]
}

func (g *gates) url(name string) string { return g.server.URL + "/" + name }
func (g *gates) open(name string)       { close(g.gate(name)) }

func (g *gates) asked(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[name]
}

// ServeHTTP implements http.Handler.
func (g *gates) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	g.mu.Lock()
	g.seen[name] = true
	g.mu.Unlock()
	select {
	case <-g.gate(name):
	case <-r.Context().Done():
	}
}
