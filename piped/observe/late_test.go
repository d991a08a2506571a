package observe

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
)

// fail ends the env's deployment as failed.
func (l *env) fail(t *testing.T, reason string) {
	t.Helper()
	for _, move := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, time.Now()) },
		func(d *deploy.Deployment) error { return d.Start(time.Now()) },
		func(d *deploy.Deployment) error { return d.Complete(deploy.Failure, reason, time.Now()) },
	} {
		if _, err := l.store.UpdateDeployment(t.Context(), "d", move); err != nil {
			t.Fatal(err)
		}
	}
}

// lates notes late completions until stop is called.
func (l *env) lates(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	lates := NewLateCompletions(LateConfig{Observer: l.Observer, Store: l.store, Interval: 100 * time.Millisecond})
	go func() { defer close(ended); lates.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

// keepReady has the pods of the namespace become ready, also those that are made later, until
// hold is called or the test ends.
func (l *env) keepReady(t *testing.T) (hold func()) {
	return clustertest.KeepReady(t, clustertest.Shared(t).Client(t), l.Namespace, "")
}

func (l *env) reason(t *testing.T) string {
	t.Helper()
	d, err := l.store.Deployment(t.Context(), "d")
	if err != nil {
		t.Fatal(err)
	}
	return d.StatusReason
}

// TestLateCompletionIsNoted: the deployment failed because its pods crash; then they become
// ready. The note comes once, whatever restarts.
func TestLateCompletionIsNoted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{rollout.KindDeployment, rollout.KindStatefulSet} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			rec := l.Wait(t, l.Apply(t, "sync", workloadstest.Text(kind, "web:crash", "")), nil)
			if rec.Phase != deploy.RolloutFailed && rec.Phase != deploy.RolloutTimedOut {
				t.Fatalf("%s: %s", rec.Phase, rec.Reason)
			}
			l.fail(t, "pods crash")
			stop := l.lates(t)
			l.keepReady(t)
			want := kind + " " + l.Namespace + "/web: its rollout completed at "
			clustertest.Eventually(t, want, func() bool { return strings.Contains(l.reason(t), want) })
			stop()
			l.lates(t)
			reason := l.reason(t)
			if !strings.HasPrefix(reason, "pods crash; "+want) || !strings.HasSuffix(reason, ", after the deployment had failed") {
				t.Errorf("reason: %s", reason)
			}
			logs, err := l.store.StageLogs(t.Context(), "d")
			if err != nil || len(logs["sync"]) != 1 || !strings.HasPrefix(logs["sync"][0].Log, want) {
				t.Errorf("log: %+v, %v", logs, err)
			}
		})
	}
}

// TestOtherTemplateIsNoLateCompletion: what completed is the rollout of others.
func TestOtherTemplateIsNoLateCompletion(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	l.Wait(t, l.Apply(t, "sync", workloadstest.Text(rollout.KindDeployment, "web:crash", "")), nil)
	l.fail(t, "pods crash")
	l.setImage(t, "web:2")
	l.awaitRolledOut(t)
	lates := NewLateCompletions(LateConfig{Observer: l.Observer, Store: l.store})
	failed, err := lates.failed(t.Context())
	if err != nil || len(failed) != 1 {
		t.Fatalf("%v, %v", failed, err)
	}
	for _, rec := range failed {
		clustertest.Eventually(t, "the caches show the other template", func() bool {
			done, err := lates.check(t.Context(), rec)
			if err != nil {
				t.Fatal(err)
			}
			return done
		})
	}
	if reason := l.reason(t); reason != "pods crash" {
		t.Errorf("reason: %s", reason)
	}
}
