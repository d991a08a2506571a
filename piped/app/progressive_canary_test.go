package app

import (
	"testing"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const canaryPipeline = `  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT, with: {replicas: 50%, createService: true}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: clean, name: K8S_CANARY_CLEAN}
`

// TestCanary: a good version passes the canary and reaches the primary. A version whose
// pods do not start leaves no objects behind, and the next good version is deployed
// normally.
func TestCanary(t *testing.T) {
	t.Parallel()
	p := newProgressive(t, canaryPipeline, "", "")
	d := p.end("v2", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "canary SUCCESS", "primary SUCCESS", "clean SUCCESS", "Rollback NOT_STARTED_YET")
	if got := liveImage(t, p.cluster, p.namespace); got != "v2" {
		t.Errorf("the primary runs %s, want v2", got)
	}
	good := p.lastGood()
	r := recordTraffic(t, p, serviceResource, selected)

	d = p.end(badVersion, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary FAILURE", "primary NOT_STARTED_YET", "clean NOT_STARTED_YET", "Rollback SUCCESS")
	mustContain(t, d.GetStatusReason(), "web-canary", badVersion, "rolled back to commit")
	mustHaveEndedOnce(t, d)
	r.mustBeBackInTime(t, d, "canary", "web-canary removed")
	good.mustStand(t)

	d = p.end("v3", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveEndedOnce(t, d)
	if got := liveImage(t, p.cluster, p.namespace); got != "v3" {
		t.Errorf("the primary runs %s, want v3", got)
	}
	p.lastGood()
}
