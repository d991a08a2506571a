package scheduler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/executor/approval"
	"github.com/c785c783/piped/executor/wait"
	"github.com/c785c783/piped/piped/deploy"
)

// simulation is an env with the real executors of waits and approvals, and others whose
// stages end as drawn.
type simulation struct {
	*env
	ends        []ending
	deployments []string

	writes        atomic.Int64 // until the store fails; 0 is never
	stopApprovals func()       // ends the approval executor

	mu       sync.Mutex
	busy     map[string]bool // deployments with a running stage
	executed map[string]bool // deployment/stage
	faults   []error
}

func newSimulation(t *testing.T, ends []ending) *simulation {
	w := &simulation{env: closedEnv(t), ends: ends, busy: map[string]bool{}, executed: map[string]bool{}}
	w.changes = func(context.Context, string, string) ([]string, error) {
		time.Sleep(500 * time.Millisecond)
		return []string{"same/file"}, nil
	}
	w.storeNow = func() time.Time {
		if w.writes.Load() > 0 && w.writes.Add(-1) == 0 {
			_ = w.store.Close() // the write that is about to begin fails
		}
		return time.Now()
	}
	w.open()
	return w
}

func (w *simulation) start() {
	approvals := approval.New(approval.Config{Store: w.store, Logger: w.logger})
	w.executors = map[string]Executor{}
	for name, e := range map[string]Executor{
		deploy.StageK8sSync: executor(w.pretend), deploy.StageScriptRun: executor(w.pretend),
		deploy.StageRollback: executor(w.pretend), deploy.StageScriptRunRollback: executor(w.pretend),
		deploy.StageWait: wait.New(wait.Config{Now: time.Now}), deploy.StageWaitApproval: approvals,
	} {
		w.executors[name] = executor(func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
			w.enter(run)
			defer w.leave(run)
			return e.Execute(ctx, run)
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- approvals.Run(ctx) }()
	w.stopApprovals = func() { stop(); <-ended }
	w.env.start()
}

func (w *simulation) shutdown() {
	w.env.shutdown()
	w.stopApprovals()
}

// crash stops everything without another write.
func (w *simulation) crash() {
	w.writes.Store(0)
	if err := w.store.Close(); err != nil {
		w.t.Error(err)
	}
	w.shutdown()
	w.open()
}

func (w *simulation) close() {
	w.stopApprovals()
	w.env.close()
}

// enter checks that a stage may run now.
func (w *simulation) enter(run deploy.StageRun) {
	d, stage := run.Deployment, run.Deployment.Stage(run.Stage.ID)
	base := run.Deployment.Stage(run.Stage.Metadata["baseStageID"])
	w.mu.Lock()
	defer w.mu.Unlock()
	key := d.ID + "/" + stage.ID
	for fault, is := range map[string]bool{
		"runs concurrently with another stage": w.busy[d.ID],
		"runs while " + string(d.Status):       d.Status == deploy.RollingBack != stage.Rollback,
		"runs as " + string(stage.Status):      stage.Status != deploy.StageRunning,
		"runs again without Resumed":           w.executed[key] && !run.Resumed,
		"undoes a stage that did not begin":    base != nil && base.StartedAt.IsZero(),
	} {
		if is {
			w.faults = append(w.faults, fmt.Errorf("stage %s %s", key, fault))
		}
	}
	w.busy[d.ID], w.executed[key] = true, true
}

func (w *simulation) leave(run deploy.StageRun) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[run.Deployment.ID] = false
}

// pretend ends as drawn.
func (w *simulation) pretend(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	id := run.Deployment.ID
	run.Log.Infof("running")
	e := w.ends[(len(id)+int(id[len(id)-1])+int(run.Stage.ID[1]))%len(w.ends)]
	select {
	case <-time.After(e.After):
	case <-ctx.Done():
		return deploy.StageResult{Status: deploy.StageFailure, Reason: "stopped"}
	}
	if e.Panic {
		panic("as drawn")
	}
	return deploy.StageResult{Status: e.Status, Reason: "as drawn", NoRollback: e.After == 50*time.Millisecond}
}
