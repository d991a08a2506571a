package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
)

// TestProperty: whatever is asked for in whatever order, and however often the
// agent ends in between, no move is illegal, an application never has two active
// deployments, a stage never runs twice at a time nor after its end, every
// started deployment ends, and every command is answered.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 3, 16).Draw(rt, "steps")
		ends := rapid.SliceOfN(rapid.Custom(drawEnding), 1, 8).Draw(rt, "endings")
		limit := rapid.IntRange(0, 2).Draw(rt, "limit")
		var err error
		synctest.Test(t, func(t *testing.T) {
			w := &world{lab: newLab(t), ends: ends, busy: map[string]bool{}}
			defer w.close()
			w.limits.Deployments = limit
			for name := range w.executors {
				w.executors[name] = executor(w.execute)
			}
			w.start()
			err = w.play(steps)
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// step is one thing that happens to the world.
type step struct {
	Action string
	Which  int // the application, or the deployment
	Flag   bool
	Pass   time.Duration // how much time passes afterwards
}

func drawStep(rt *rapid.T) step {
	return step{
		Action: rapid.SampledFrom([]string{"create", "create", "plan", "plan", "cancel", "shutdown", "crash"}).Draw(rt, "action"),
		Which:  rapid.IntRange(0, 5).Draw(rt, "which"),
		Flag:   rapid.Bool().Draw(rt, "flag"),
		Pass:   time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 999, 5000}).Draw(rt, "pass")) * time.Millisecond,
	}
}

// ending is how one stage ends.
type ending struct {
	After  time.Duration
	Status deploy.StageStatus
	Panic  bool
}

func drawEnding(rt *rapid.T) ending {
	return ending{
		After:  time.Duration(rapid.SampledFrom([]int{0, 1, 50, 999, 20000}).Draw(rt, "after")) * time.Millisecond,
		Status: rapid.SampledFrom([]deploy.StageStatus{deploy.StageSuccess, deploy.StageSuccess, deploy.StageFailure, deploy.StageSkipped, deploy.StageExited, ""}).Draw(rt, "status"),
		Panic:  rapid.IntRange(0, 9).Draw(rt, "panic") == 0,
	}
}

// world is a lab in which stages end as drawn.
type world struct {
	*lab
	ends        []ending
	deployments []string

	mu     sync.Mutex
	busy   map[string]bool // deployments a stage of which is running
	faults []error
}

func (w *world) execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	id := run.Deployment.ID
	w.mark(id, true)
	defer w.mark(id, false)
	if stage := run.Deployment.Stage(run.Stage.ID); stage.Status != deploy.StageRunning {
		w.fault(fmt.Errorf("stage %s of %s runs while %s", stage.ID, id, stage.Status))
	}
	run.Log.Infof("running")
	e := w.ends[(len(id)+int(id[len(id)-1])+len(run.Stage.ID))%len(w.ends)]
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

func (w *world) mark(id string, busy bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy[id] == busy {
		w.faults = append(w.faults, fmt.Errorf("deployment %s runs two stages at a time", id))
	}
	w.busy[id] = busy
}

func (w *world) fault(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, err)
}

// play does the steps, lets everything come to its end and checks the world.
func (w *world) play(steps []step) error {
	for i, s := range steps {
		if err := w.do(i, s); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.Action, err)
		}
		time.Sleep(s.Pass)
		if err := w.checkActive(); err != nil {
			return fmt.Errorf("after step %d, %s: %w", i, s.Action, err)
		}
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	for _, id := range w.deployments {
		if d := w.get(id); d.Status.Active() {
			return fmt.Errorf("deployment %s is still %s because %q", id, d.Status, d.StatusReason)
		}
	}
	open, err := w.store.OpenCommands(context.Background())
	if err != nil || len(open) > 0 {
		return fmt.Errorf("open commands: %v %w", open, err)
	}
	for _, id := range w.deployments {
		if err := w.checkLegal(id); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.faults...)
}

func (w *world) do(i int, s step) error {
	switch s.Action {
	case "create":
		id := fmt.Sprintf("d%d", len(w.deployments))
		w.pending(id, fmt.Sprintf("app-%d", s.Which%2))
		w.deployments = append(w.deployments, id)
	case "plan":
		return w.planOne(s)
	case "cancel":
		if len(w.deployments) > 0 {
			w.askCancel(fmt.Sprintf("c%d", i), w.deployments[s.Which%len(w.deployments)], func(c *deploy.Command) { c.ForceNoRollback = s.Flag })
		}
	case "shutdown":
		w.shutdown()
		w.start()
	case "crash":
		w.crash()
		w.start()
	}
	return nil
}

// planOne plans a deployment if the store lets it.
func (w *world) planOne(s step) error {
	if len(w.deployments) == 0 {
		return nil
	}
	_, err := w.store.UpdateDeployment(context.Background(), w.deployments[s.Which%len(w.deployments)], func(d *deploy.Deployment) error {
		stages := threeStages()
		if s.Flag {
			stages = stages[:2]
		}
		stages[0].Timeout = 10 * time.Second
		return d.Plan(deploy.Plan{Stages: stages, Timeout: 15 * time.Second, RollbackTimeout: time.Minute}, time.Now())
	})
	if deploy.IsKind(err, deploy.Conflict) || deploy.IsKind(err, deploy.Illegal) {
		return nil // it was planned before, or another one is active
	}
	return err
}

// checkActive looks for applications with two active deployments.
func (w *world) checkActive() error {
	ds, err := w.store.DeploymentsIn(context.Background(), deploy.Planned, deploy.Running, deploy.RollingBack)
	if err != nil {
		return err
	}
	active := map[string]string{}
	for _, d := range ds {
		if other := active[d.ApplicationID]; other != "" {
			return fmt.Errorf("application %s has two active deployments, %s and %s", d.ApplicationID, other, d.ID)
		}
		active[d.ApplicationID] = d.ID
	}
	return nil
}
