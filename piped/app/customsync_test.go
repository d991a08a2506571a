package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// customApp returns the files of an application that is deployed by a script, which
// copies the version of its commit to target, and then does more.
func customApp(namespace, version, target, more string) map[string]string {
	files := webApp(namespace, "v1", "")
	files["web/version"] = version
	files["web/app.pipecd.yaml"] += fmt.Sprintf(`  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - id: sync
        name: CUSTOM_SYNC
        with:
          run: |
            cp version "$TARGET"
            echo "synced $(cat version), rollback: $SR_IS_ROLLBACK"
            %s
          envs: {TARGET: %q}
`, more, target)
	return files
}

// TestCustomSyncIsUndone: what a script deployed is undone by running the script of
// the last success, with the files of its commit. Nothing undoes the first one.
func TestCustomSyncIsUndone(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	web, target := appID("web"), filepath.Join(t.TempDir(), "deployed")
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(), more: allowScripts(filepath.Dir(target))})
	deployed := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(target); err != nil || string(got) != want {
			t.Errorf("deployed is %q (%v), want %q", got, err, want)
		}
	}

	broken := repo.Push(t, "web v0", customApp(ns, "v0", target, "exit 1"))
	d := agent.mustEnd(web, broken, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "sync FAILURE")
	mustContain(t, agent.logs(d.GetId()), "what this stage does is not undone: the application has no earlier success")
	deployed("v0")

	first := repo.Push(t, "web v1", customApp(ns, "v1", target, "true"))
	d = agent.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveStages(t, d, "sync SUCCESS")

	second := repo.Push(t, "web v2", customApp(ns, "v2", target, "exit 3"))
	d = agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "sync FAILURE", "CustomSyncRollback-sync SUCCESS")
	mustContain(t, d.GetStatusReason(), "CUSTOM_SYNC", "exited with code 3", "rolled back to commit "+first[:7])
	log := agent.logs(d.GetId())
	mustContain(t, log, "synced v2, rollback: false", "Preparing the files of commit "+first[:7], "synced v1, rollback: true")
	if strings.Contains(log, "is not undone") {
		t.Errorf("the log says that nothing undoes the stage:\n%s", log)
	}
	deployed("v1")
	mustHaveEndedOnce(t, d)
}
