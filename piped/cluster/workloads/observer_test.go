package workloads_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestObserved: what an Observer reads of each kind of workload, its ReplicaSets, pods
// and events is enough to decide the end of its rollout. The results of individual
// changes are tested with the stages.
func TestObserved(t *testing.T) {
	const d, s, ds = rollout.KindDeployment, rollout.KindStatefulSet, rollout.KindDaemonSet
	first := workloadstest.Text(d, "web:1", "replicas: 3")
	cases := []struct {
		name    string
		before  string
		change  string
		prepare func(t *testing.T, l *workloadstest.Env) // before the change is applied
		during  func(t *testing.T, l *workloadstest.Env)
		phase   deploy.RolloutPhase
		reason  string
		sets    int // ReplicaSets afterwards; 0: any
	}{
		{name: "Deployment", before: first, change: workloadstest.Text(d, "web:2", "replicas: 3"), phase: deploy.RolloutComplete, reason: "3 of 3 pods available", sets: 2},
		{name: "Deployment with a bad image", before: first, change: workloadstest.Text(d, "web:does-not-exist", "replicas: 3"), phase: deploy.RolloutFailed,
			reason: "the image cannot be pulled (web:does-not-exist)"},
		{name: "Deployment with a quota", before: first, change: workloadstest.Text(d, "web:2", "replicas: 3"), prepare: blockPods, phase: deploy.RolloutFailed, reason: "exceeded quota"},
		{name: "Deployment that is deleted", before: first, change: workloadstest.Text(d, "web:never-ready", "replicas: 3"), during: func(t *testing.T, l *workloadstest.Env) { l.DeleteWeb(t) }, phase: deploy.RolloutGone},
		{name: "Deployment with another image by hand", before: first, change: workloadstest.Text(d, "web:never-ready", "replicas: 3"), phase: deploy.RolloutSuperseded,
			during: func(t *testing.T, l *workloadstest.Env) {
				l.Patch(t, d, "kubectl-set", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"web:9"}]}}}}`)
			}, reason: `field manager "kubectl-set"`},
		{name: "StatefulSet", before: workloadstest.Text(s, "web:1", "replicas: 3"), change: workloadstest.Text(s, "web:2", "replicas: 3"), phase: deploy.RolloutComplete, reason: "3 pods updated, 3 of 3 available"},
		{name: "StatefulSet with a quota", before: workloadstest.Text(s, "web:1", "replicas: 3"), change: workloadstest.Text(s, "web:2", "replicas: 5"), prepare: blockPods,
			phase: deploy.RolloutFailed, reason: "exceeded quota"},
		{name: "DaemonSet", before: workloadstest.Text(ds, "web:1", ""), change: workloadstest.Text(ds, "web:2", ""), phase: deploy.RolloutComplete},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := workloadstest.New(t)
			if c.before != "" {
				if rec := l.Wait(t, l.Apply(t, "before", c.before), nil); rec.Phase != deploy.RolloutComplete && rec.Phase != deploy.RolloutNoRollout {
					t.Fatalf("before the change: %s: %s", rec.Phase, rec.Reason)
				}
			}
			if c.prepare != nil {
				c.prepare(t, l)
			}
			var during func()
			if c.during != nil {
				during = func() { c.during(t, l) }
			}
			rec := l.Wait(t, l.Apply(t, "change", c.change), during)
			if rec.Phase != c.phase || !strings.Contains(rec.Reason, c.reason) {
				t.Errorf("%s: %s\nwant %s: %s\n%s", rec.Phase, rec.Reason, c.phase, c.reason, l.Progress())
			}
			if c.sets != 0 && l.ReplicaSets(t) != c.sets {
				t.Errorf("%d ReplicaSets, want %d", l.ReplicaSets(t), c.sets)
			}
		})
	}
}

// blockPods prevents the creation of further pods.
func blockPods(t *testing.T, l *workloadstest.Env) {
	t.Helper()
	clustertest.LimitPods(t, clustertest.Shared(t).Client(t), l.Namespace, 3)
}

// slowly delays the readiness of a workload's pods.
func slowly(workload, delay string) string {
	return strings.Replace(workload, "labels: {app: web}}, spec", "labels: {app: web}, annotations: {devcluster.piped.dev/ready-delay: "+delay+"}}, spec", 1)
}

func TestNothingIsDecidedWhileTheAPIServerIsDown(t *testing.T) {
	t.Parallel()
	own := clustertest.Own(t)
	l := workloadstest.NewIn(t, own)
	text := func(image string) string {
		return slowly(workloadstest.Text(rollout.KindStatefulSet, image, "replicas: 2"), "500ms")
	}
	l.Wait(t, l.Apply(t, "a", text("web:1")), nil)
	rec := l.Apply(t, "b", text("web:2"))
	if err := own.StopComponent(t.Context(), "apiserver"); err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	restart := time.AfterFunc(4*time.Second, func() { started <- own.StartComponent(context.Background(), "apiserver") })
	defer restart.Stop()
	rec = l.Wait(t, rec, nil)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if rec.Phase != deploy.RolloutComplete {
		t.Errorf("%s: %s\n%s", rec.Phase, rec.Reason, l.Progress())
	}
}

// TestInterruptedWaitsMarkOnce repeatedly interrupts the wait in the middle of rollouts,
// while a scaler flaps, and resumes from the stored record. The pods take longer to
// become ready than the first wait lasts, so that every rollout is interrupted. Each
// further wait is longer, because a busy machine reads slowly.
func TestInterruptedWaitsMarkOnce(t *testing.T) {
	t.Parallel()
	l := workloadstest.New(t)
	text := func(image string) string {
		return slowly(workloadstest.Text(rollout.KindDeployment, image, ""), "300ms")
	}
	l.Wait(t, l.Apply(t, "first", text("web:0")), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	interrupted := 0
	for i := range 6 {
		stage := fmt.Sprintf("stage-%d", i)
		rec := l.Apply(t, stage, text(fmt.Sprintf("web:%d", i+1)))
		for n := int32(0); !rec.Phase.Terminal(); n++ {
			l.Patch(t, rollout.KindDeployment, "scaler", fmt.Sprintf(`{"spec":{"replicas":%d}}`, 2+n%4), "scale")
			short, stop := context.WithTimeoutCause(ctx, time.Duration(n+1)*150*time.Millisecond, deploy.StopShutdown)
			ended, err := rollout.Wait(short, rollout.Request{Records: []deploy.Rollout{rec}, Observer: l.Observer, Policy: l.Policy, Save: l.Records.Save})
			stop()
			if err != nil && !errors.Is(err, deploy.StopShutdown) || ctx.Err() != nil {
				t.Fatal(err)
			}
			if err != nil {
				interrupted++
			}
			rec = l.Records.Get(ended[0].ID)
		}
		if rec.Phase != deploy.RolloutComplete || l.Records.Marks[rec.ID] != 1 {
			t.Errorf("%s: %s: %s, %d marks", stage, rec.Phase, rec.Reason, l.Records.Marks[rec.ID])
		}
	}
	if interrupted == 0 {
		t.Error("no wait was interrupted")
	}
}
