package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
)

// TestProperty checks invariants under random commands in random order, with crashes at
// any write: no transition is illegal, an application never has two active deployments,
// no stage runs twice at a time, after its end, or again without Resumed, accepted
// requests take effect, every started deployment ends, and every command is answered.
func TestProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 3, 20).Draw(rt, "steps")
		ends := rapid.SliceOfN(rapid.Custom(drawEnding), 1, 8).Draw(rt, "endings")
		limit := rapid.IntRange(0, 2).Draw(rt, "limit")
		var err error
		synctest.Test(t, func(t *testing.T) {
			w := newSimulation(t, ends)
			w.limits.Deployments = limit
			w.start()
			defer w.close()
			err = w.play(steps)
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// step is one action of the simulation.
type step struct {
	Action string
	Which  int    // the application, or the deployment
	Stage  string // of a skip, an approval or a rejection
	Who    string
	Force  bool // of a cancel: the rollback
	Forbid bool
	Write  int // at which the agent is killed
	Plan   plan
	Pass   time.Duration // how much time passes afterwards
}

// plan describes a planned deployment.
type plan struct {
	Stages   []planned
	Rollback bool
	Manual   bool // automatic rollback is off
}

// planned is one forward stage.
type planned struct {
	Name   string
	SkipOn string
}

func drawStep(rt *rapid.T) step {
	s := step{
		Action: rapid.SampledFrom([]string{"create", "create", "plan", "plan", "plan", "cancel", "skip", "approve", "reject", "shutdown", "crash", "crash at a write"}).Draw(rt, "action"),
		Which:  rapid.IntRange(0, 5).Draw(rt, "which"),
		Pass:   time.Duration(rapid.SampledFrom([]int{0, 0, 1, 50, 999, 5000, 30000}).Draw(rt, "pass")) * time.Millisecond,
	}
	switch s.Action {
	case "plan":
		s.Plan = plan{
			Stages:   rapid.SliceOfN(rapid.Custom(drawStage), 0, 4).Draw(rt, "stages"),
			Rollback: rapid.Bool().Draw(rt, "rollback"), Manual: rapid.Bool().Draw(rt, "manual"),
		}
	case "cancel":
		s.Force, s.Forbid = rapid.Bool().Draw(rt, "force"), rapid.Bool().Draw(rt, "forbid")
	case "skip", "approve", "reject":
		s.Stage = rapid.SampledFrom([]string{"s0", "s1", "s2", "s3", "back"}).Draw(rt, "stage")
		s.Who = rapid.SampledFrom([]string{"ann", "ben"}).Draw(rt, "who")
	case "crash at a write":
		s.Write = rapid.IntRange(1, 6).Draw(rt, "write")
	}
	return s
}

func drawStage(rt *rapid.T) planned {
	return planned{
		Name: rapid.SampledFrom([]string{deploy.StageK8sSync, deploy.StageWait, deploy.StageWaitApproval, deploy.StageScriptRun}).Draw(rt, "name"),
		SkipOn: rapid.SampledFrom([]string{"", "", "", `{"commitMessagePrefixes":["docs:"]}`, `{"commitMessagePrefixes":["c"]}`,
			`{"paths":["same"]}`, `{"paths":["other"]}`, `{"paths":["gone"]}`}).Draw(rt, "skipOn"),
	}
}

// ending is the drawn result of a pretended stage.
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

// play executes the steps, waits for all deployments to end and checks the invariants.
func (w *simulation) play(steps []step) error {
	for i, s := range steps {
		if err := w.do(i, s); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, s.Action, err)
		}
		time.Sleep(s.Pass)
		if err := w.checkActive(); err != nil {
			return fmt.Errorf("after step %d, %s: %w", i, s.Action, err)
		}
	}
	if err := w.awaitEnds(); err != nil {
		return err
	}
	open, err := w.store.OpenCommands(context.Background())
	if err != nil || len(open) > 0 {
		return fmt.Errorf("open commands: %v %w", open, err)
	}
	for _, id := range w.deployments {
		if err := errors.Join(w.checkLegal(id), w.checkRollback(id)); err != nil {
			return err
		}
	}
	for i := range steps {
		if err := w.checkPromise(fmt.Sprintf("c%d", i)); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.faults...)
}

// awaitEnds returns when every planned deployment has ended.
func (w *simulation) awaitEnds() error {
	var active []deploy.Deployment
	for range 60 {
		time.Sleep(time.Minute)
		synctest.Wait()
		var err error
		if active, err = w.store.DeploymentsIn(context.Background(), deploy.Planned, deploy.Running, deploy.RollingBack); err != nil || len(active) == 0 {
			return err
		}
	}
	return fmt.Errorf("deployment %s is still %s because %q", active[0].ID, active[0].Status, active[0].StatusReason)
}

func (w *simulation) do(i int, s step) error {
	switch s.Action {
	case "create":
		id := fmt.Sprintf("d%d", len(w.deployments))
		w.pending(id, fmt.Sprintf("app-%d", s.Which%2), func(d *deploy.Deployment) { d.Trigger.Commit.Message = "change something" })
		w.deployments = append(w.deployments, id)
		return nil
	case "shutdown":
		w.shutdown()
		w.start()
		return nil
	case "crash at a write":
		w.writes.Store(int64(s.Write))
		time.Sleep(s.Pass)
		fallthrough
	case "crash":
		w.crash()
		w.start()
		return nil
	}
	if len(w.deployments) == 0 {
		return nil
	}
	id := w.deployments[s.Which%len(w.deployments)]
	if s.Action == "plan" {
		return w.planOne(id, s.Plan)
	}
	w.ask(deploy.Command{
		ID: fmt.Sprintf("c%d", i), DeploymentID: id, StageID: s.Stage, Commander: s.Who, ForceRollback: s.Force, ForceNoRollback: s.Forbid,
		Type: map[string]deploy.CommandType{
			"cancel": deploy.CommandCancel, "skip": deploy.CommandSkipStage, "approve": deploy.CommandApproveStage, "reject": deploy.CommandRejectStage,
		}[s.Action],
	})
	return nil
}

// planOne plans a deployment if the store permits it.
func (w *simulation) planOne(id string, p plan) error {
	var stages, undo []deploy.Stage
	for i, s := range p.Stages {
		stage := deploy.Stage{ID: fmt.Sprintf("s%d", i), Name: s.Name, SkipOn: json.RawMessage(s.SkipOn), Timeout: 25 * time.Second}
		switch s.Name {
		case deploy.StageWait:
			stage.Options = json.RawMessage(`{"duration":"20s"}`)
		case deploy.StageWaitApproval:
			stage.Options = json.RawMessage(fmt.Sprintf(`{"minApproverNum":%d}`, 1+i%2))
		case deploy.StageScriptRun:
			undo = append(undo, deploy.Stage{
				ID: "u" + stage.ID, Name: deploy.StageScriptRunRollback, Rollback: true, Metadata: map[string]string{"baseStageID": stage.ID},
			})
		}
		stages = append(stages, stage)
	}
	running := ""
	if p.Rollback {
		running = "beef0123456789"
		stages = append(stages, deploy.Stage{ID: "back", Name: deploy.StageRollback, Rollback: true})
	}
	_, err := w.store.UpdateDeployment(context.Background(), id, func(d *deploy.Deployment) error {
		return d.Plan(deploy.Plan{
			Stages: append(stages, undo...), RunningCommit: running, NoAutoRollback: p.Manual, Timeout: 50 * time.Second, RollbackTimeout: time.Minute,
		}, time.Now())
	})
	if deploy.IsKind(err, deploy.Conflict) || deploy.IsKind(err, deploy.Illegal) {
		return nil // it was planned before, or another one is active
	}
	return err
}

// checkActive finds applications with two active deployments.
func (w *simulation) checkActive() error {
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

// checkRollback finds rollbacks that contradict the application's configuration or a
// user's choice.
func (w *simulation) checkRollback(id string) error {
	d, cancel := w.get(id), (*cancellation)(nil)
	if cancel = cancelOf(&d); cancel == nil {
		cancel = &cancellation{}
	}
	rolledBack := slices.Contains(w.moves(id), "deployment "+string(deploy.RollingBack))
	if rolledBack && (cancel.noRollback || d.NoAutoRollback && !cancel.forceRollback) {
		return fmt.Errorf("deployment %s was rolled back: manual %v, cancelled %+v", id, d.NoAutoRollback, *cancel)
	}
	return nil
}

// checkPromise checks that a successful command took effect.
func (w *simulation) checkPromise(id string) error {
	c, err := w.store.Command(context.Background(), id)
	if deploy.IsKind(err, deploy.NotFound) || err == nil && c.Status != deploy.CommandSucceeded {
		return nil
	}
	if err != nil {
		return err
	}
	d := w.get(c.DeploymentID)
	stage := d.Stage(c.StageID)
	switch {
	case c.Type == deploy.CommandCancel && d.Status == deploy.Success:
		return fmt.Errorf("deployment %s succeeded although it was cancelled", d.ID)
	case c.Type == deploy.CommandSkipStage && (stage.Status == deploy.StageFailure || stage.Status == deploy.StageCancelled || stage.Name == deploy.StageWaitApproval):
		return fmt.Errorf("stage %s of %s is %s although it was skipped", stage.ID, d.ID, stage.Status)
	case c.Type == deploy.CommandRejectStage && stage.Status != deploy.StageFailure && stage.Status != deploy.StageCancelled:
		return fmt.Errorf("stage %s of %s is %s although it was rejected", stage.ID, d.ID, stage.Status)
	case c.Type == deploy.CommandApproveStage && !strings.Contains(stage.Metadata["ApprovedBy"], c.Commander):
		return fmt.Errorf("the approval of stage %s of %s by %s is lost: %v", stage.ID, d.ID, c.Commander, stage.Metadata)
	}
	return nil
}
