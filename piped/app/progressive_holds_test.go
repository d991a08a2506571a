package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// mustBeDeployed fails the test unless the application runs the next version.
func (m *matrix) mustBeDeployed(t *testing.T, c *matrixCell, d *modelv1.Deployment) {
	t.Helper()
	if d.GetStatus() != modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS {
		t.Fatalf("the deployment ended as %s: %s", d.GetStatus(), d.GetStatusReason())
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
		t.Errorf("%d Deployments exist (%v), want one", len(left.Items), err)
	}
}

// completed reports whether a deployment has ended.
func completed(d *modelv1.Deployment) bool {
	return d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
}

// runningStage returns the ID of the running stage, "" if there is none.
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
	beforeApproval(*testing.T, *matrix, *matrixCell) // before the approval that precedes the second half of the stages
	reached(*testing.T, *matrix, *matrixCell) bool   // whether the stage is in progress
	release(*testing.T, *matrix, *matrixCell)
	whileReleased(*testing.T, *matrix, *matrixCell) // called repeatedly
	holdsRollback() bool                            // whether it also keeps a rollback running
}

// noHold holds nothing: a missing approval holds its stage.
type noHold struct{}

func (noHold) begin(*testing.T, *matrix, *matrixCell)          {}
func (noHold) beforeApproval(*testing.T, *matrix, *matrixCell) {}
func (noHold) reached(*testing.T, *matrix, *matrixCell) bool   { return true }
func (noHold) release(*testing.T, *matrix, *matrixCell)        {}
func (noHold) whileReleased(*testing.T, *matrix, *matrixCell)  {}
func (noHold) holdsRollback() bool                             { return false }

// stepHold is a traffic step that takes too long.
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

func (h podHold) reached(t *testing.T, m *matrix, c *matrixCell) bool {
	pods, err := m.kube.CoreV1().Pods(c.app.namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: clustertest.BehaviorLabel + "=never-ready,pipecd.dev/variant=" + h.variant,
	})
	return err == nil && len(pods.Items) > 0
}

// readyPods makes all pods ready that are not held.
func (m *matrix) readyPods(ctx context.Context) error {
	pods, err := m.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: clustertest.BehaviorLabel + "=never-ready"})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		for _, c := range m.cells {
			h, ok := c.hold.(podHold)
			if !ok || c.app.namespace != pod.Namespace || c.good != nil && !c.released && pod.Labels["pipecd.dev/variant"] == h.variant {
				continue
			}
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"ready"}}}`, clustertest.BehaviorLabel)
			if _, err := m.kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// routeHold keeps the gateway from responding.
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

// reached: the weights are written but not accepted.
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

// accepted reports whether the gateway has accepted the current version of a route.
func accepted(route map[string]any) bool {
	generation, _, _ := unstructured.NestedInt64(route, "metadata", "generation")
	return strings.Contains(fmt.Sprint(items(route, "status", "parents")), fmt.Sprint("observedGeneration:", generation))
}

// checkHold keeps the endpoint that an analysis queries from responding.
type checkHold struct{ noHold }

func (checkHold) reached(_ *testing.T, m *matrix, c *matrixCell) bool {
	return m.checked.asked(c.app.dir)
}
func (checkHold) release(_ *testing.T, m *matrix, c *matrixCell) { m.checked.open(c.app.dir) }

// waitHold is a WAIT stage that takes too long, until a user skips it.
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
	_, err := os.Stat(m.file(c.stage, c.way, "begun"))
	return err == nil
}

func (scriptHold) release(t *testing.T, m *matrix, c *matrixCell) {
	if err := os.WriteFile(m.file(c.stage, c.way, "go-on"), nil, 0o600); err != nil {
		t.Error(err)
	}
}

// deleteHold keeps the pods of a variant from terminating, until they are deleted by
// force.
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
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"devcluster.piped.dev/delete-delay":%q}}}`, heldFor)
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

// gate returns a channel that is closed when the path is open.
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
