package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
)

// TestRolloutsOfAStageThatEndsBeforeItWaits: they end with it, each once.
func TestRolloutsOfAStageThatEndsBeforeItWaits(t *testing.T) {
	t.Parallel()
	l := newRolloutEnv(t)
	l.succeed(t, web("1", "replicas: 1"))
	l.manifests = web("never-ready", "replicas: 1") // it has not ended when the stage is cancelled
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
	l.giveUpSoon()
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

// TestRecordsAreReadWhenTheStoreIsBack: the database is away when a stage has failed. The read of its
// records ends when the database is back, or with the context of the stage. A stage that cannot read what
// it needs is interrupted, and its records stay open.
func TestRecordsAreReadWhenTheStoreIsBack(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	st := storetest.Open(t, server.NewDSN(t), nil)
	app := deploy.Application{ID: "a", Name: "web", Kind: deploy.KindKubernetes, Git: deploy.GitPath{RepoID: "r", Dir: "web", ConfigFile: "app.pipecd.yaml"}}
	if _, err := st.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	d := deploy.Deployment{ID: "d", ApplicationID: app.ID, Status: deploy.Pending, Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now()}}
	if _, err := st.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d}); err != nil {
		t.Fatal(err)
	}
	w := &work{Executor: &Executor{Config: Config{Store: st}}, run: deploy.StageRun{Deployment: d, Stage: deploy.Stage{ID: "s"}}}
	rec := deploy.Rollout{
		ID: "d/s/c/apps/Deployment/n/web", ApplicationID: "a", DeploymentID: "d", StageID: "s", Cluster: "c", Phase: deploy.RolloutProgressing,
		Workload: deploy.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "n", Name: "web"}, CreatedAt: time.Now(),
	}
	if _, err := st.SaveRollout(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	start := server.Interrupt(t)
	ctx, stop := context.WithCancel(t.Context())
	for err := error(nil); !deploy.IsKind(err, deploy.Unavailable); {
		_, err = st.Rollouts(ctx, store.RolloutQuery{DeploymentID: "d"})
	}
	read := func(then func()) Stage {
		return w.stage(func(ctx context.Context, w *work) error {
			_, err := w.Store.Inventory(context.WithoutCancel(ctx), "a")
			then()
			return fmt.Errorf("read the inventory: %w", err)
		})
	}
	if result := read(func() {})(ctx, w.run); !result.Interrupted {
		t.Errorf("a stage that reads while the database is away: %+v", result)
	}
	stopping := time.AfterFunc(100*time.Millisecond, stop)
	defer stopping.Stop()
	if open, err := w.openRecords(ctx); err == nil {
		t.Errorf("stopped while the database is away: %v", open)
	}
	over, end := context.WithCancelCause(t.Context())
	end(deploy.StopTimedOut)
	back := make(chan struct{})
	restart := func() { // the end of the stage waits for it
		go func() {
			defer close(back)
			if err := start(); err != nil {
				t.Error(err)
			}
		}()
	}
	if result := read(restart)(over, deploy.StageRun{Deployment: d, Stage: deploy.Stage{ID: "another"}}); result.Interrupted {
		t.Errorf("a stage whose time has run out while the database is away: %+v", result)
	}
	if open, err := w.openRecords(ctx); len(open) != 1 || err != nil {
		t.Errorf("when the database is back: %v, %v", open, err)
	}
	<-back
}
