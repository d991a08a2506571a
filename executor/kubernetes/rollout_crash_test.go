package kubernetes

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRolloutsAcrossRestarts interrupts the stage again and again, as restarts of the agent
// do, while an autoscaler scales up and down. The stage resumes from the stored state.
func TestRolloutsAcrossRestarts(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.succeed(t, web("1", "replicas: 4"))
	l.manifests = slowly(web("2", ""))
	run, interrupted := l.deployment("now"), 0
	var result deploy.StageResult
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond+time.Duration(n)*20*time.Millisecond, deploy.StopShutdown)
		result = l.Sync().Execute(ctx, run)
		stopped := ctx.Err() != nil
		cancel()
		if !stopped {
			break
		}
		if interrupted++; interrupted > 200 {
			t.Fatalf("it never ends:\n%s", l.said())
		}
		run.Resumed = true
		l.scaleTo(t, 2+n%4)
	}
	l.check(t, "re:"+available("[2-5] of [2-5]", "web#2")+`( \([1-5] wanted when it was applied; .*\))?`, l.outcome(t, run, result))
	if interrupted == 0 {
		t.Error("the stage was not interrupted")
	}
	if n := len(l.sets(t)); n != 2 {
		t.Errorf("%d ReplicaSets, want 2", n)
	}
}

// TestCrashBetweenApplyAndRecord: the API server has applied the workload, and the
// agent dies before it knows.
func TestCrashBetweenApplyAndRecord(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.succeed(t, web("1", "replicas: 2"))
	l.manifests = web("2", "replicas: 2")
	run := l.deployment("now")
	ctx, crash := context.WithCancelCause(t.Context())
	l.answered = func(r *http.Request) error {
		if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") {
			return nil
		}
		crash(deploy.StopShutdown)
		return context.Canceled
	}
	if result := l.Sync().Execute(ctx, run); result.Status == deploy.StageSuccess {
		t.Fatal("the stage that was killed succeeded")
	}
	l.answered = nil
	l.awaitAvailable(t, 2)

	run.Resumed = true
	l.check(t, available("2 of 2", "web#2"), l.outcome(t, run, l.run(t, l.Sync(), run, "", nil)))
}

// TestCrashAfterTheMark: the rollout's end is stored, and the agent dies before the
// stage's end is stored or published. The mark stays the only one, and is published, under
// the same key, until it is acknowledged.
func TestCrashAfterTheMark(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.manifests = web("1", "replicas: 1")
	run := l.deployment("now")
	ctx, crash := context.WithCancelCause(t.Context())
	run.Log = &everyLine{l.log, func(line string) {
		if strings.Contains(line, "pods available in ReplicaSet") {
			crash(deploy.StopShutdown)
		}
	}}
	l.Sync().Execute(ctx, run)
	run.Log, run.Resumed = l.log, true
	l.check(t, available("1 of 1", "web#1"), l.outcome(t, run, l.run(t, l.Sync(), run, "", nil)))
	mark := l.marks(t, run)[0]

	ends := func() (out []deploy.Event) {
		events, err := l.Store.Events(t.Context(), 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Type == deploy.EventRolloutEnded {
				out = append(out, e)
			}
		}
		return out
	}
	first, again := ends(), ends()
	if len(first) != 1 || first[0].Key != mark.ID || !gocmp.Equal(first, again) {
		t.Fatalf("published %+v, and again %+v", first, again)
	}
	for range 2 {
		if err := l.Store.RouteEvents(t.Context(), []int64{first[0].Seq}); err != nil {
			t.Fatal(err)
		}
	}
	l.mustSucceed(t, l.Sync(), run)
	if left := ends(); len(left) > 0 {
		t.Errorf("published again after it was acknowledged: %+v", left)
	}
}

// TestTwoEvaluatorsMarkOnce: for a moment two agents run the same stage, as when
// leadership changes.
func TestTwoEvaluatorsMarkOnce(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.succeed(t, web("1", "replicas: 2"))
	l.manifests = web("never-ready", "replicas: 2")
	run := l.deployment("now")
	release := sync.OnceFunc(func() { l.keepReady(t) }) // when both evaluate
	ended := make(chan deploy.StageResult, 1)
	second := run
	second.Resumed = true
	second.Log = &everyLine{l.log, func(line string) {
		if strings.Contains(line, rolling) {
			release()
		}
	}}
	begin := sync.OnceFunc(func() {
		go func() { ended <- l.Sync().Execute(t.Context(), second) }()
	})
	first := run
	first.Log = &everyLine{l.log, func(line string) {
		if strings.Contains(line, rolling) {
			begin()
		}
	}}
	want := available("2 of 2", "web#2")
	l.check(t, want, l.outcome(t, run, l.run(t, l.Sync(), first, "", nil)))
	l.check(t, want, l.outcome(t, run, <-ended))
}
