package workloads_test

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestRolloutsRecordTheirParts: for each kind of workload, with pods that become ready
// slowly, and for a rollout back to an earlier template, the record contains the times of
// scheduling, pulling and readiness.
func TestRolloutsRecordTheirParts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{rollout.KindDeployment, rollout.KindStatefulSet, rollout.KindDaemonSet} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := workloadstest.New(t)
			text := func(image string) string { // on one node, or each part may be that of another pod
				return strings.Replace(workloadstest.SlowText(kind, image, ""), "spec: {containers:", "spec: {nodeSelector: {kubernetes.io/hostname: node-0}, containers:", 1)
			}
			for stage, image := range []string{"web:1", "web:2", "web:1"} {
				rec := l.Wait(t, l.Apply(t, "stage-"+string(rune('a'+stage)), text(image)), nil)
				if rec.Phase != deploy.RolloutComplete {
					t.Fatalf("%s: %s: %s", image, rec.Phase, rec.Reason)
				}
				workloadstest.WantParts(t, rec)
			}
			l.Patch(t, kind, "kubectl-annotate", `{"metadata":{"annotations":{"note":"x"}}}`)
			if rec := l.Wait(t, l.Apply(t, "again", text("web:1")), nil); rec.Phase != deploy.RolloutNoRollout || rec.Parts != (deploy.RolloutParts{}) {
				t.Errorf("nothing to roll out: %s, parts %+v", rec.Phase, rec.Parts)
			}
		})
	}
}

// TestSupersededRollouts: the record names the field manager of the newer template.
func TestSupersededRollouts(t *testing.T) {
	t.Parallel()
	l := workloadstest.New(t)
	rec := l.Wait(t, l.Apply(t, "a", workloadstest.Text(rollout.KindDeployment, "web:never-ready", "replicas: 2")), func() {
		l.Patch(t, rollout.KindDeployment, "kubectl-set", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"web:2"}]}}}}`)
	})
	if rec.Phase != deploy.RolloutSuperseded || rec.SupersededBy != "kubectl-set" || rec.Parts != (deploy.RolloutParts{}) || rec.ReplicasAfter != 2 {
		t.Errorf("%s by %q, %d replicas, parts %+v", rec.Phase, rec.SupersededBy, rec.ReplicasAfter, rec.Parts)
	}
}
