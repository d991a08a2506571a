package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// slowText is workloadText for pods that become ready two seconds after they started.
func slowText(kind, image, spec string) string {
	return strings.Replace(workloadText(kind, image, spec), "labels: {app: web}}, spec", "labels: {app: web}, annotations: {devcluster.piped.dev/ready-delay: 2s}}, spec", 1)
}

// wantParts checks that the parts of a rollout were measured, and add up to a slow pod.
func wantParts(t *testing.T, rec deploy.Rollout) {
	t.Helper()
	p := rec.Parts
	if !p.Schedule.Measured || !p.Pull.Measured || !p.Ready.Measured {
		t.Fatalf("%s: not measured: %+v", rec.Workload, p)
	}
	const grain = time.Second // of each time that a cluster tells
	sum, took := p.Schedule.Time+p.Pull.Time+p.Ready.Time, rec.CompletedAt.Sub(rec.AppliedAt)
	if p.Ready.Time < 2*time.Second-grain || sum < 2*time.Second-grain || sum > took+2*grain {
		t.Errorf("%s: %s to schedule, %s to pull and %s to become ready in a rollout of %s", rec.Workload, p.Schedule.Time, p.Pull.Time, p.Ready.Time, took)
	}
}

// TestRolloutsTellTheirParts: of each kind of workload, with pods that are slow to
// become ready, and of a rollout that goes back to a template that was there before.
func TestRolloutsTellTheirParts(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{rollout.KindDeployment, rollout.KindStatefulSet, rollout.KindDaemonSet} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newRolloutLab(t)
			for stage, image := range []string{"web:1", "web:2", "web:1"} {
				rec := l.wait(t, l.apply(t, "stage-"+string(rune('a'+stage)), slowText(kind, image, "")), nil)
				if rec.Phase != deploy.RolloutComplete {
					t.Fatalf("%s: %s: %s", image, rec.Phase, rec.Reason)
				}
				wantParts(t, rec)
			}
			l.patch(t, kind, "kubectl-annotate", `{"metadata":{"annotations":{"note":"x"}}}`)
			if rec := l.wait(t, l.apply(t, "again", slowText(kind, "web:1", "")), nil); rec.Phase != deploy.RolloutNoRollout || rec.Parts != (deploy.RolloutParts{}) {
				t.Errorf("nothing to roll out: %s, parts %+v", rec.Phase, rec.Parts)
			}
		})
	}
}

// TestRolloutsOfOthersTellTheirParts: external ones are measured as the agent's own,
// unless they ended while it was not watching.
func TestRolloutsOfOthersTellTheirParts(t *testing.T) {
	t.Parallel()
	l := newExternalLab(t)
	if rec := l.wait(t, l.apply(t, "a", slowText(rollout.KindDeployment, "web:1", "")), nil); rec.Phase != deploy.RolloutComplete {
		t.Fatalf("%s: %s", rec.Phase, rec.Reason)
	}
	stop := l.watch(t)
	l.setImage(t, "web:2")
	seen := l.await(t, `revision 2 by "kubectl-set": Complete`)
	wantParts(t, seen)
	if seen.Images != "web:2" || seen.ReplicasBefore != 1 || seen.ReplicasAfter != 1 || seen.ApplicationName != "web" || !strings.HasPrefix(seen.TargetName, "web-") {
		t.Errorf("record %+v", seen)
	}
	stop()
	l.setImage(t, "web:3")
	l.settle(t)
	l.watch(t)
	if unseen := l.await(t, `revision 3 by "kubectl-set": Complete`); unseen.Parts != (deploy.RolloutParts{}) {
		t.Errorf("nobody watched, and yet there are parts: %+v", unseen.Parts)
	}
}

// TestSupersededRollouts: who took over is told.
func TestSupersededRollouts(t *testing.T) {
	t.Parallel()
	l := newRolloutLab(t)
	rec := l.wait(t, l.apply(t, "a", workloadText(rollout.KindDeployment, "web:never-ready", "replicas: 2")), func() {
		l.patch(t, rollout.KindDeployment, "kubectl-set", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"web:2"}]}}}}`)
	})
	if rec.Phase != deploy.RolloutSuperseded || rec.SupersededBy != "kubectl-set" || rec.Parts != (deploy.RolloutParts{}) || rec.ReplicasAfter != 2 {
		t.Errorf("%s by %q, %d replicas, parts %+v", rec.Phase, rec.SupersededBy, rec.ReplicasAfter, rec.Parts)
	}
}
