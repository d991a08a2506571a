package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestExternalRolloutsMeasureTheirParts: external ones are measured as the agent's own,
// unless they ended while it was not watching.
func TestExternalRolloutsMeasureTheirParts(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	if rec := l.Wait(t, l.Apply(t, "a", workloadstest.SlowText(rollout.KindDeployment, "web:1", "")), nil); rec.Phase != deploy.RolloutComplete {
		t.Fatalf("%s: %s", rec.Phase, rec.Reason)
	}
	controller, externals := l.watcher(t)
	run, begun := handling(externals)
	stop := clustertest.Run(t, controller.Run, run)
	awaitBegun(t, begun) // or the rollout may end before it is watched
	l.setImage(t, "web:2")
	seen := l.await(t, `revision 2 by "kubectl-set": Complete`)
	workloadstest.WantParts(t, seen)
	if seen.Images != "web:2" || seen.ReplicasBefore != 1 || seen.ReplicasAfter != 1 || seen.ApplicationName != "web" || !strings.HasPrefix(seen.TargetName, "web-") {
		t.Errorf("record %+v", seen)
	}
	stop()
	l.setImage(t, "web:3")
	l.awaitRolledOut(t)
	time.Sleep(2 * time.Second) // times of the cluster are in whole seconds
	l.watch(t)
	if unseen := l.await(t, `revision 3 by "kubectl-set": Complete`); unseen.Parts != (deploy.RolloutParts{}) {
		t.Errorf("parts of a rollout that ended while no agent watched: %+v", unseen.Parts)
	}
}
