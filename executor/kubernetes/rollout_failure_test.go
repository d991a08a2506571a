package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// failing is how a rollout of the Deployment "web" fails: why, how far it came,
// and what hinders it.
func failing(reason string) string {
	return "re:FAILURE: Deployment NS/web: " + reason + "\nFailed: web: " + reason
}

// TestRolloutsThatFail: each for its own reason.
func TestRolloutsThatFail(t *testing.T) {
	first := web("1", "replicas: 3")
	// Within it the scheduler and the node have to say what becomes of the pod, which is a part of the reason.
	short := "replicas: 3, progressDeadlineSeconds: 15"
	runRollouts(t, []rolloutCase{
		{name: "bad image", begin: failLater, before: first, change: web("bad-image", "replicas: 3"), sets: 2,
			want: failing(`new pods do not start: 0 of 3 new pods available, 3 old pods left; pod web-POD, container app: (ErrImagePull|ImagePullBackOff): the image cannot be pulled \(web:bad-image\).*`)},
		{name: "crash loop", begin: failLater, before: first, change: web("crash", "replicas: 3"), sets: 2,
			want: failing(`new pods do not start: 0 of 3 new pods available, 3 old pods left; pod web-POD, container app: CrashLoopBackOff(?s:.*)`)},
		{name: "never ready", before: first, change: web("never-ready", short), sets: 2,
			want: failing(`(the progress deadline of 15s is exceeded|no progress for \d+s): 0 of 3 new pods available, 3 old pods left; pod web-POD, container app: runs but is not ready.*`)},
		{name: "no node has room", before: first, change: strings.Replace(web("2", short), `"web:2"`, `"web:2", resources: {requests: {cpu: 100k}}`, 1), sets: 2,
			want: failing(`(the progress deadline of 15s is exceeded|no progress for \d+s): 0 of 3 new pods available, 3 old pods left; pod web-POD: cannot be scheduled: 0/.*`)},
		{name: "blocked by a quota", begin: failLater, before: first, prepare: blockPods, change: web("2", "replicas: 3"), sets: 2,
			want: failing(`nothing new can be created: 0 of 3 new pods available, 3 old pods left; pods cannot be created: pods "web-POD" is forbidden: exceeded quota: pods.*`)},
		{name: "a controller keeps changing an annotation", before: first, change: web("never-ready", "replicas: 3, progressDeadlineSeconds: 15"), taken: true,
			at: rolling, during: bumpUntilFailed, after: func(t *testing.T, l *rolloutEnv, _ deploy.Rollout) {
				if want := `web: field manager "bumper" restarted it, following the restart`; !strings.Contains(l.said(), want) {
					t.Errorf("the log does not say %q:\n%s", want, l.said())
				}
			},
			want: failing(`(the progress deadline of 15s is exceeded|no progress for \d+s): (0 of 3 new pods available, \d+ old pods left|waiting for [^,;]*), ` +
				`(while field manager "bumper" keeps changing annotations of the pod template|after a restart by field manager "bumper")(; .*)?`)},
	})
}

// bumpUntilFailed writes an annotation of the template of "web" each second until its
// rollout has ended.
func bumpUntilFailed(t *testing.T, l *rolloutEnv, run deploy.StageRun) {
	tick, limit := time.NewTicker(time.Second), time.After(3*time.Minute)
	defer tick.Stop()
	for n := 1; ; n++ {
		recorded, err := l.Store.Rollouts(context.WithoutCancel(t.Context()), store.RolloutQuery{DeploymentID: run.Deployment.ID, StageID: run.Stage.ID})
		if err != nil || len(recorded) == 0 {
			t.Errorf("%d rollouts, %v", len(recorded), err)
			return
		}
		if recorded[0].Phase.Terminal() {
			return
		}
		l.patch(t, "bumper", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"example.test/bumped":"%d"}}}}}`, n))
		select {
		case <-limit:
			return
		case <-tick.C:
		}
	}
}

// blockPods lets no more pods be made than there are.
func blockPods(t *testing.T, l *rolloutEnv) {
	t.Helper()
	clustertest.LimitPods(t, l.client, l.ns, 3)
}

// TestRollbacksOfDeployments: a rollback waits for its own rollout. It uses the old
// ReplicaSet again, which is not created, and a deadline that the failed rollout
// exceeded does not fail it.
func TestRollbacksOfDeployments(t *testing.T) {
	cases := []struct {
		name, before, change string
		sync, rollback       string // how they end
		sets                 int
	}{
		{"bad image", web("1", "replicas: 3"), web("bad-image", "replicas: 3"), "re:FAILURE(?s:.*)\nFailed: web: new pods do not start: (?s:.*)", available("3 of 3", "web#3"), 2},
		{"a deadline that is exceeded", web("1", "replicas: 1, progressDeadlineSeconds: 15"), web("never-ready", "replicas: 1, progressDeadlineSeconds: 15"),
			"re:FAILURE(?s:.*)\nFailed: web: (the progress deadline|no progress)(?s:.*)", available("1 of 1", "web#3"), 2},
		{"Recreate", web("1", "replicas: 2, strategy: {type: Recreate}"), web("bad-image", "replicas: 2, strategy: {type: Recreate}"),
			"re:FAILURE(?s:.*)\nFailed: web: new pods do not start: (?s:.*)", available("2 of 2", "web#3"), 2},
		{"no history", web("1", "replicas: 2, revisionHistoryLimit: 0, strategy: {type: Recreate}"), web("bad-image", "replicas: 2, revisionHistoryLimit: 0, strategy: {type: Recreate}"),
			"re:FAILURE(?s:.*)\nFailed: web: new pods do not start: (?s:.*)", "re:" + available("2 of 2", "web#[34]"), 0},
		{"nothing had changed", web("1", "replicas: 2"), web("1", "replicas: 2") + workload(rollout.KindDeployment, "other", "bad-image", ""),
			"re:FAILURE(?s:.*)\nFailed: other: new pods do not start(?s:.*)\nNoRollout: web: pod template unchanged", unchanged, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newRolloutEnv(t)
			l.succeed(t, c.before)
			l.manifests = c.change
			run := l.deployment("now")
			l.check(t, c.sync, l.outcome(t, run, l.run(t, l.Sync(), run, "", nil)))
			run.Stage = run.Deployment.Stages[1]
			l.check(t, c.rollback, l.outcome(t, run, l.run(t, l.Rollback(), run, "", nil)))
			if n := len(l.sets(t)); c.sets != 0 && n != c.sets {
				t.Errorf("%d ReplicaSets, want %d", n, c.sets)
			}
		})
	}
}

// failLater gives the good workloads of a stage time to roll out before a bad one fails, and controllers
// time to count the pods of a bad one.
func failLater(_ *testing.T, l *rolloutEnv) {
	l.Policy.FailFastAfter, l.Policy.FailureGrace = 20*time.Second, 20*time.Second
}

// TestStagesOfSeveralWorkloads: the stage ends after the last rollout, and at once
// with the first that fails.
func TestStagesOfSeveralWorkloads(t *testing.T) {
	other := func(image, spec string) string { return workload(rollout.KindDeployment, "other", image, spec) }
	runRollouts(t, []rolloutCase{
		{name: "all end well", before: web("1", "replicas: 2") + other("1", "replicas: 1"),
			change: slowly(web("2", "replicas: 2")) + other("1", "replicas: 1") + workload(rollout.KindStatefulSet, "state", "1", "replicas: 2"),
			want: "SUCCESS\nNoRollout: other: pod template unchanged\nComplete: state: 2 pods updated, 2 of 2 available\n" +
				strings.TrimPrefix(available("2 of 2", "web#2"), "SUCCESS\n")},
		{name: "one fails", begin: failLater, change: web("1", "replicas: 2") + other("bad-image", "replicas: 1") + workload(rollout.KindDeployment, "slow", "never-ready", ""),
			want: `re:FAILURE: Deployment NS/other: new pods do not start: 0 of 1 new pod available(?s:.*)` +
				`\nFailed: other: new pods do not start: (?s:.*)` +
				`\nSuperseded: given up because Deployment NS/other failed; it stood at: slow: 0 of 1 new pod available.*` +
				`\nComplete: web: 2 of 2 pods available in ReplicaSet web#1, no old pod left`},
		{name: "one is deleted by a user", before: web("1", "replicas: 1"), change: web("never-ready", "replicas: 1") + other("1", ""), at: "web: 0 of 1 new pod available", taken: true,
			during: func(t *testing.T, l *rolloutEnv, _ deploy.StageRun) {
				if err := l.client.AppsV1().Deployments(l.ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			}, want: "re:FAILURE, no rollback: Deployment NS/web: Deployment NS/web was deleted while it rolled out" +
				"\nComplete: other: 1 of 1 pods available in ReplicaSet other#1, no old pod left\nGone: Deployment NS/web was deleted while it rolled out"},
	})
}
