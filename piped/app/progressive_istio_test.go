package app

import (
	"testing"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const istioPipeline = `  trafficRouting: {method: istio, istio: {host: web, editableRoutes: [main]}}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT}
      - {id: baseline, name: K8S_BASELINE_ROLLOUT}
      - {id: traffic, name: K8S_TRAFFIC_ROUTING, with: {canary: 20, baseline: 20}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: back, name: K8S_TRAFFIC_ROUTING, with: {all: primary}}
      - {id: clean, name: K8S_CANARY_CLEAN}
      - {id: clean-baseline, name: K8S_BASELINE_CLEAN}
`

// TestIstioWeights: a VirtualService splits the traffic of one of its routes among
// primary, canary and baseline, and keeps its other routes. If the pods of the new
// primary fail, the canary keeps its share until the old primary is back.
func TestIstioWeights(t *testing.T) {
	t.Parallel()
	p := newProgressive(t, istioPipeline, virtualServiceOfWeb, "")
	const stable, shared = "primary 80, other 20; primary 100", "primary 48, canary 16, baseline 16, other 20; primary 100"
	r := recordTraffic(t, p, virtualServiceResource, subsets)
	r.await(t, stable)
	r.await(t, "web runs v1")

	r.begin()
	d := p.end("v2", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "canary SUCCESS", "baseline SUCCESS", "traffic SUCCESS", "primary SUCCESS", "back SUCCESS", "clean SUCCESS", "clean-baseline SUCCESS", "Rollback NOT_STARTED_YET")
	r.mustBe(t, "web-canary runs v2", "web-baseline runs v1", shared, "web runs v2", stable, "web-canary removed", "web-baseline removed")
	last := p.lastGood()

	r.begin()
	p.web.spec = patchedCanary(istioPipeline)
	d = p.end(badVersion, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary SUCCESS", "baseline SUCCESS", "traffic SUCCESS", "primary FAILURE", "back NOT_STARTED_YET", "clean NOT_STARTED_YET", "clean-baseline NOT_STARTED_YET", "Rollback SUCCESS")
	mustContain(t, d.GetStatusReason(), "Deployment "+p.namespace+"/web: ", badVersion, "rolled back to commit")
	r.mustBeBackInTime(t, d, "primary", stable)
	last.mustStand(t)
}
