package script

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// customSync is a plan with a CUSTOM_SYNC, and what undoes it.
func customSync(lastCommit string, rollback ...deploy.Stage) deploy.Plan {
	return deploy.Plan{
		RunningCommit: lastCommit, Stages: append([]deploy.Stage{{ID: "s", Name: deploy.StageCustomSync}}, rollback...),
	}
}

// back runs a script of the last success.
func back(script string) deploy.Stage {
	return deploy.Stage{ID: "back", Name: deploy.StageCustomSyncRollback, Rollback: true, Metadata: map[string]string{
		deploy.MetaBaseStage: "s", deploy.MetaOnRollback: script, deploy.MetaScriptEnv: `{"WHAT": "old"}`,
	}}
}

// TestCustomSync: it is a script like another, and says at its begin when nothing can
// undo it.
func TestCustomSync(t *testing.T) {
	sync := options{Run: "echo $WHAT $SR_IS_ROLLBACK; cat hello.txt", Envs: map[string]string{"WHAT": "new"}}
	tests := []struct {
		name    string
		plan    deploy.Plan
		printed []string
	}{
		{"that can be undone", customSync(lastHash, back("true")), nil},
		{"of a first deployment", customSync(""), []string{
			"If the deployment fails, what this stage does is not undone: the application has no earlier success",
		}},
		{"that is new", customSync(lastHash, deploy.Stage{ID: "back", Name: deploy.StageRollback, Rollback: true}), []string{
			"If the deployment fails, what this stage does is not undone: the last success, commit 0ddba11, has no CUSTOM_SYNC that can be run again",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := newLab(t)
			l.planned(sync, tt.plan)
			l.startStage("s")
			wantResult(t, l.executor.Execute(t.Context(), l.stageRun("s", false)), deploy.StageSuccess, "")
			if diff := cmp.Diff(append(tt.printed, "new false", "hello from the commit"), l.log.printed()); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCustomSyncIsRunAgain: a rollback runs the script of the last success with its
// files and its commit, once, and not if the stage that it undoes did not begin.
func TestCustomSyncIsRunAgain(t *testing.T) {
	begin := func(t *testing.T) *lab {
		l := newLab(t)
		l.planned(options{Run: "false"}, customSync(lastHash, back("echo $WHAT $SR_IS_ROLLBACK $SR_TRIGGERED_COMMIT_HASH; cat hello.txt; printf x >> "+l.count)))
		return l
	}
	rollBack := func(t *testing.T, l *lab, resumed bool) deploy.StageResult {
		return l.executor.Execute(t.Context(), l.stageRun("back", resumed))
	}
	t.Run("after a failure", func(t *testing.T) {
		l := begin(t)
		l.startStage("s")
		l.update(func(d *deploy.Deployment) error { return d.FinishStage("s", deploy.StageFailure, "", d.CreatedAt) })
		l.update(func(d *deploy.Deployment) error { return d.BeginRollback(deploy.Failure, "", d.CreatedAt) })
		l.startStage("back")
		wantResult(t, rollBack(t, l, false), deploy.StageSuccess, "")
		if diff := cmp.Diff([]string{"old true " + lastHash, "hello from the last success"}, l.log.printed()); diff != "" {
			t.Errorf("printed (-want +got):\n%s", diff)
		}
		wantResult(t, rollBack(t, l, true), deploy.StageSuccess, "")
		l.wantRuns(1)
	})
	t.Run("of what did not begin", func(t *testing.T) {
		l := begin(t)
		wantResult(t, rollBack(t, l, false), deploy.StageSuccess, "")
		l.wantRuns(0)
	})
}
