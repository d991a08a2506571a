package app

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const scriptPipeline = `  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT, with: {replicas: 2}}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: tell, name: SCRIPT_RUN, with: {run: %q, onRollback: "echo took back $SR_TRIGGERED_COMMIT_HASH"}}
      - {id: clean, name: K8S_CANARY_CLEAN}
`

// TestScriptFailsNextToACanary: the primary is rolled back, the canary is removed, and
// the script's rollback command runs.
func TestScriptFailsNextToACanary(t *testing.T) {
	t.Parallel()
	p := newProgressive(t, fmt.Sprintf(scriptPipeline, "echo told"), "", "")
	last := p.lastGood()
	p.web.spec = fmt.Sprintf(scriptPipeline, "echo nobody listens; exit 4")
	d := p.end("v2", modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary SUCCESS", "primary SUCCESS", "tell FAILURE", "clean NOT_STARTED_YET", "Rollback SUCCESS", "ScriptRunRollback-tell SUCCESS")
	mustContain(t, d.GetStatusReason(), "exited with code 4", "rolled back to commit")
	mustContain(t, p.logs(d.GetId()), "nobody listens", "took back "+d.GetTrigger().GetCommit().GetHash())
	mustHaveEndedOnce(t, d)
	last.mustStand(t)
}

const customSyncPipeline = `  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: canary, name: K8S_CANARY_ROLLOUT}
      - {id: sync, name: CUSTOM_SYNC, with: {run: %q}}
      - {id: clean, name: K8S_CANARY_CLEAN}
`

// TestCustomSyncFailsNextToACanary: the script of the last success reverts the work of
// the failed one, and the objects are as before.
func TestCustomSyncFailsNextToACanary(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "deployed")
	script := func(more string) string {
		return fmt.Sprintf(customSyncPipeline, "grep -o 'version: .*' app.yaml > "+target+more)
	}
	p := newProgressive(t, script(""), "", allowScripts(filepath.Dir(target)))
	last := p.lastGood()
	p.web.spec = script("; exit 5")
	d := p.end("v2", modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "primary SUCCESS", "canary SUCCESS", "sync FAILURE", "clean NOT_STARTED_YET", "Rollback SUCCESS", "CustomSyncRollback-sync SUCCESS")
	mustContain(t, d.GetStatusReason(), "exited with code 5", "rolled back to commit")
	if deployed, err := os.ReadFile(target); err != nil || string(deployed) != "version: v1}\n" {
		t.Errorf("the script has deployed %q (%v), want v1", deployed, err)
	}
	last.mustStand(t)
}
