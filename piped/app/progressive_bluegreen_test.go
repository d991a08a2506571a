package app

import (
	"testing"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const blueGreenPipeline = `  trafficRouting: {method: podselector}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT, with: {replicas: 100%}}
      - {id: switch, name: K8S_TRAFFIC_ROUTING, with: {all: canary}}
      - {id: gate, name: WAIT_APPROVAL}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: back, name: K8S_TRAFFIC_ROUTING, with: {all: primary}}
      - {id: clean, name: K8S_CANARY_CLEAN}
`

// TestBlueGreen: all traffic goes to the new version at once, and back when the primary
// is the new version, too. A version that is rejected loses its traffic at once.
func TestBlueGreen(t *testing.T) {
	t.Parallel()
	p := newProgressive(t, blueGreenPipeline, "", "")
	r := recordTraffic(t, p, serviceResource, selected)
	r.await(t, "to primary")
	r.await(t, "web runs v1")

	r.begin()
	commit := p.push("v2")
	p.approve(p.awaitStage(appID("web"), commit, "gate"))
	d := p.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "canary SUCCESS", "switch SUCCESS", "gate SUCCESS", "primary SUCCESS", "back SUCCESS", "clean SUCCESS", "Rollback NOT_STARTED_YET")
	r.mustBe(t, "web-canary runs v2", "to canary", "web runs v2", "to primary", "web-canary removed")
	last := p.lastGood()

	r.begin()
	commit = p.push("v3")
	d = p.awaitStage(appID("web"), commit, "gate")
	resp, err := p.control.RejectStage(p.ctx, &controlv1.RejectStageRequest{DeploymentId: d.GetId(), Reason: "it is red"})
	if err != nil {
		t.Fatal(err)
	}
	p.answer(resp.GetCommandId())
	d = p.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary SUCCESS", "switch SUCCESS", "gate FAILURE", "primary NOT_STARTED_YET", "back NOT_STARTED_YET", "clean NOT_STARTED_YET", "Rollback SUCCESS")
	mustContain(t, d.GetStatusReason(), "it is red", "rolled back to commit")
	r.mustBe(t, "web-canary runs v3", "to canary", "to primary", "web-canary removed")
	r.mustBeBackInTime(t, d, "gate", "to primary")
	last.mustStand(t)
}
