package pipectl

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestReasonsAreShownOnce: a stage's reason is shown with the stage, and not again with
// the deployment.
func TestReasonsAreShownOnce(t *testing.T) {
	var lines []string
	p := &progress{screen: &screen{}, now: func() time.Time { return time.UnixMilli(3000) }, line: func(line string) { lines = append(lines, line) }}
	d := func(status modelv1.DeploymentStatus, reason string, sync, rollback modelv1.StageStatus) *modelv1.Deployment {
		out := &modelv1.Deployment{Id: "d1", ApplicationName: "web", Status: status, StatusReason: reason, Revision: int64(len(lines) + 1), Stages: []*modelv1.PipelineStage{
			{Id: "s1", Name: "K8S_SYNC", Visible: true, Status: sync, StartedAtMs: 1000},
			{Id: "s2", Name: "ROLLBACK", Status: rollback},
		}}
		if sync == modelv1.StageStatus_STAGE_FAILURE {
			out.Stages[0].StatusReason, out.Stages[0].CompletedAtMs = "web-1: ImagePullBackOff", 3000
		}
		return out
	}
	const failed = "Stage K8S_SYNC failed: web-1: ImagePullBackOff"
	p.update(d(modelv1.DeploymentStatus_DEPLOYMENT_RUNNING, "", modelv1.StageStatus_STAGE_RUNNING, 0))
	p.update(d(modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK, failed, modelv1.StageStatus_STAGE_FAILURE, 0))
	p.update(d(modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, failed+"; rolled back to commit 0123456", modelv1.StageStatus_STAGE_FAILURE, modelv1.StageStatus_STAGE_SUCCESS))
	want := `Deployment d1 of web is RUNNING
  [1/1] K8S_SYNC RUNNING
  [1/1] K8S_SYNC FAILURE 2s: web-1: ImagePullBackOff
Deployment d1 of web is ROLLING_BACK: Stage K8S_SYNC failed
  [2/2] ROLLBACK SUCCESS
Deployment d1 of web is FAILURE: Stage K8S_SYNC failed; rolled back to commit 0123456`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
