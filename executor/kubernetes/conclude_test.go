package kubernetes

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// TestRolloutsOfAStageThatEndsBeforeItWaits: they end with it, each once.
func TestRolloutsOfAStageThatEndsBeforeItWaits(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.succeed(t, web("1", "replicas: 1"))
	l.manifests = slowly(web("2", "replicas: 1"))
	run := l.deployment("now")
	ctx, crash := context.WithCancelCause(t.Context())
	l.answered = func(r *http.Request) error {
		if r.Method != http.MethodPatch || r.URL.Query().Has("dryRun") {
			return nil
		}
		crash(deploy.StopShutdown)
		return context.Canceled
	}
	l.Sync().Execute(ctx, run)
	l.answered = nil
	open, err := l.Store.Rollouts(t.Context(), store.RolloutQuery{OpenOnly: true})
	if err != nil || len(open) != 1 {
		t.Fatalf("the agent died between apply and record, and left %+v (%v)", open, err)
	}

	ctx, stop := context.WithCancelCause(t.Context())
	stop(deploy.StopCancelled) // while the agent was away
	run.Resumed = true
	if result := l.Sync().Execute(ctx, run); result.Status == deploy.StageSuccess {
		t.Fatal("the cancelled stage succeeded")
	}
	marks := l.marks(t, run)
	if len(marks) != 1 || marks[0].Phase != deploy.RolloutSuperseded || marks[0].Reason != "the stage was cancelled" {
		t.Errorf("after the cancelled stage: %+v", marks)
	}
}

// TestRolloutsOfAStageThatFailsToApply: one workload is applied, the other too, but
// no answer says so.
func TestRolloutsOfAStageThatFailsToApply(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.manifests = web("never-ready", "replicas: 1") + workload("Deployment", "other", "never-ready", "replicas: 1")
	run := l.deployment("now")
	l.answered = func(r *http.Request) error {
		if r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun") && strings.HasSuffix(r.URL.Path, "/other") {
			return errors.New("refused")
		}
		return nil
	}
	if result := l.Sync().Execute(t.Context(), run); result.Status != deploy.StageFailure {
		t.Fatalf("the stage ended %s: %s", result.Status, result.Reason)
	}
	phases := map[string]deploy.RolloutPhase{}
	for _, mark := range l.marks(t, run) {
		phases[mark.Workload.Name] = mark.Phase
	}
	if want := map[string]deploy.RolloutPhase{"web": deploy.RolloutSuperseded, "other": deploy.RolloutSuperseded}; !maps.Equal(phases, want) {
		t.Errorf("the rollouts ended %v, want %v", phases, want)
	}
}
