package scheduler

import (
	"testing"
	"testing/synctest"

	"github.com/c785c783/piped/piped/deploy"
)

// scripts adds two stages whose scripts have rollbacks, after the rollback of the
// objects.
func scripts(p *deploy.Plan) {
	undo := func(base string) deploy.Stage {
		return deploy.Stage{ID: "undo-" + base, Name: deploy.StageScriptRunRollback, Rollback: true, Metadata: map[string]string{"baseStageID": base}}
	}
	p.Stages = append(p.Stages, undo("one"), undo("two"))
}

// onlyScripts are the stages of a first deployment, which has no commit to roll back
// to.
func onlyScripts(p *deploy.Plan) {
	scripts(p)
	p.Stages = append(p.Stages[:2], p.Stages[3:]...)
	p.RunningCommit = ""
}

// first are the stages of a first deployment that may have to remove a canary.
func first(p *deploy.Plan) {
	scripts(p)
	p.RunningCommit = ""
}

func manual(p *deploy.Plan) { p.NoAutoRollback, p.RunningDeploymentID = true, "before" }

// TestRollbackScripts: only scripts that began are undone, also in a first deployment.
func TestRollbackScripts(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		plan   []func(*deploy.Plan)
		one    executor
		undo   executor
		reason string
		ran    []string
		undone map[string]deploy.StageStatus
	}{
		{
			name: "what did not begin is not undone", plan: []func(*deploy.Plan){scripts}, one: fail("no"), undo: succeed,
			reason: "Stage K8S_SYNC failed: no; rolled back to commit beef012",
			ran:    []string{"d/one", "d/back", "d/undo-one"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageSuccess, "undo-two": deploy.StageSkipped},
		},
		{
			name: "all of it", plan: []func(*deploy.Plan){scripts}, one: succeed, undo: succeed,
			reason: "Stage TWO failed: no; rolled back to commit beef012",
			ran:    []string{"d/one", "d/two", "d/back", "d/undo-one", "d/undo-two"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageSuccess, "undo-two": deploy.StageSuccess},
		},
		{
			name: "a script that fails", plan: []func(*deploy.Plan){scripts}, one: succeed, undo: fail("exit 1"),
			reason: "Stage TWO failed: no; rolled back to commit beef012, " +
				"but not all that scripts did was undone (undo-one: exit 1; undo-two: exit 1): see the stage's log",
			ran:    []string{"d/one", "d/two", "d/back", "d/undo-one", "d/undo-two"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageFailure, "undo-two": deploy.StageFailure},
		},
		{
			name: "a first deployment", plan: []func(*deploy.Plan){onlyScripts}, one: fail("no"), undo: succeed,
			reason: "Stage K8S_SYNC failed: no; its onRollback scripts have run",
			ran:    []string{"d/one", "d/undo-one"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageSuccess, "undo-two": deploy.StageSkipped},
		},
		{
			name: "a first deployment with a canary", plan: []func(*deploy.Plan){first}, one: fail("no"), undo: succeed,
			reason: "Stage K8S_SYNC failed: no; its canary and baseline are removed, and its onRollback scripts have run",
			ran:    []string{"d/one", "d/back", "d/undo-one"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageSuccess},
		},
		{
			name: "a script of a first deployment that fails", plan: []func(*deploy.Plan){onlyScripts}, one: fail("no"), undo: fail("exit 1"),
			reason: "Stage K8S_SYNC failed: no; its onRollback scripts have run, " +
				"but not all that scripts did was undone (undo-one: exit 1): see the stage's log",
			ran:    []string{"d/one", "d/undo-one"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageFailure, "undo-two": deploy.StageSkipped},
		},
		{
			name: "a first deployment whose scripts did not begin", one: fail("no"), undo: succeed,
			plan:   []func(*deploy.Plan){onlyScripts, func(p *deploy.Plan) { p.Stages = append(p.Stages[:2], p.Stages[3]) }},
			reason: "Stage K8S_SYNC failed: no", ran: []string{"d/one"},
			undone: map[string]deploy.StageStatus{"undo-two": deploy.StageNotStarted},
		},
		{
			name: "automatic rollback is off", plan: []func(*deploy.Plan){scripts, manual}, one: fail("no"), undo: succeed,
			reason: "Stage K8S_SYNC failed: no; not rolled back, because automatic rollback is off; " +
				"to go back to commit beef012: pipectl application rollback --app-id=app-d --to=before",
			ran:    []string{"d/one"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageNotStarted, "undo-two": deploy.StageNotStarted},
		},
		{
			name: "automatic rollback is off in a first deployment", plan: []func(*deploy.Plan){onlyScripts, manual}, one: fail("no"), undo: succeed,
			reason: "Stage K8S_SYNC failed: no; not rolled back, because automatic rollback is off; its onRollback scripts have not run",
			ran:    []string{"d/one"},
			undone: map[string]deploy.StageStatus{"undo-one": deploy.StageNotStarted},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				e.executors[deploy.StageK8sSync], e.executors["TWO"], e.executors[deploy.StageScriptRunRollback] = c.one, fail("no"), c.undo
				e.start()
				e.planned("d", c.plan...)
				synctest.Wait()
				e.wantEnd("d", deploy.Failure, c.reason)
				e.wantRan(c.ran...)
				d := e.get("d")
				for id, want := range c.undone {
					if got := d.Stage(id).Status; got != want {
						t.Errorf("stage %s is %s, want %s", id, got, want)
					}
				}
				e.wantLegal("d")
			})
		})
	}
}

// TestUnusedRollbackScriptSaysWhy: the rollback of a script that did not run is skipped
// with a reason.
func TestUnusedRollbackScriptSaysWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.executors[deploy.StageK8sSync] = fail("no")
		e.start()
		e.planned("d", scripts)
		synctest.Wait()
		e.wantStage("d", "undo-two", deploy.StageSkipped, "there is nothing to roll back: stage two did not run")
	})
}
