package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const routeSteps = `  trafficRouting: {method: httproute, httpRoute: {verify: {timeout: 10m, settle: 300ms}}}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT, with: {replicas: 2, createService: true}}
      - id: traffic
        name: K8S_TRAFFIC_ROUTING
        with:
          steps: [5, 20, 50]
          interval: 400ms
          analysis: {duration: 400ms, https: [{url: %q, interval: 200ms}]}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: back, name: K8S_TRAFFIC_ROUTING, with: {all: primary}}
      - {id: clean, name: K8S_CANARY_CLEAN}
`

// TestStepsOfAnHTTPRoute: the share of the canary grows step by step, with an analysis of
// each step. No variant gets traffic before it is ready, and none is removed while it has
// traffic. A canary that turns bad at the second step loses its traffic at once.
func TestStepsOfAnHTTPRoute(t *testing.T) {
	t.Parallel()
	const stable, second = "web 1; static 1", "web 80, web-canary 20; static 1"
	var routes dynamic.ResourceInterface
	var bad atomic.Bool // at the second step
	checked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !bad.Load() {
			return
		}
		route, err := routes.Get(r.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Errorf("read the route: %v", err)
		} else if backends(route.Object) == second {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(checked.Close)
	p := newProgressive(t, fmt.Sprintf(routeSteps, checked.URL), httpRouteOfWeb, "")
	routes = dynamicClient(t, p.cluster).Resource(httpRouteResource).Namespace(p.namespace)
	p.acceptRoute()
	r := recordTraffic(t, p, httpRouteResource, backends)
	r.await(t, stable)
	r.await(t, "web runs v1")

	r.begin()
	d := p.end("v2", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "canary SUCCESS", "traffic SUCCESS", "primary SUCCESS", "back SUCCESS", "clean SUCCESS", "Rollback NOT_STARTED_YET")
	r.mustBe(t, "web-canary runs v2", "web 95, web-canary 5; static 1", second, "web 50, web-canary 50; static 1",
		"web runs v2", stable, "web-canary removed")
	mustContain(t, p.logs(d.GetId()), "Step 1/3: canary 5%, primary 95%", "Step 3/3: canary 50%, primary 50%")
	last := p.lastGood()

	r.begin()
	bad.Store(true)
	d = p.end("v3", modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary SUCCESS", "traffic FAILURE", "primary NOT_STARTED_YET", "back NOT_STARTED_YET", "clean NOT_STARTED_YET", "Rollback SUCCESS")
	mustContain(t, d.GetStatusReason(), "Step 2/3", "500", "rolled back to commit")
	r.mustBe(t, "web-canary runs v3", "web 95, web-canary 5; static 1", second, stable, "web-canary removed")
	r.mustBeBackInTime(t, d, "traffic", stable)
	last.mustStand(t)
}
