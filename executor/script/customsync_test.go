package script

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// customSync returns a plan with a CUSTOM_SYNC and rollback stages.
func customSync(lastCommit string, rollback ...deploy.Stage) deploy.Plan {
	return deploy.Plan{
		RunningCommit: lastCommit, Stages: append([]deploy.Stage{{ID: "s", Name: deploy.StageCustomSync}}, rollback...),
	}
}

// back returns a rollback stage that runs a script of the last success.
func back(script string) deploy.Stage {
	return deploy.Stage{ID: "back", Name: deploy.StageCustomSyncRollback, Rollback: true, Metadata: map[string]string{
		deploy.MetaBaseStage: "s", deploy.MetaOnRollback: script, deploy.MetaScriptEnv: `{"WHAT": "old"}`,
	}}
}

// TestCustomSync: it runs like another script, and logs a warning when nothing can undo
// it.
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
			f := newFixture(t)
			f.planned(sync, tt.plan)
			f.startStage("s")
			wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", false)), deploy.StageSuccess, "")
			if diff := cmp.Diff(append(tt.printed, "new false", "hello from the commit"), f.log.printed()); diff != "" {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCustomSyncIsRunAgain: a rollback runs the script of the last success once, with
// that commit's files, unless the stage to undo did not begin.
func TestCustomSyncIsRunAgain(t *testing.T) {
	begin := func(t *testing.T) *fixture {
		f := newFixture(t)
		f.planned(options{Run: "false"}, customSync(lastHash, back("echo $WHAT $SR_IS_ROLLBACK $SR_TRIGGERED_COMMIT_HASH; cat hello.txt; printf x >> "+f.count)))
		return f
	}
	rollBack := func(t *testing.T, f *fixture, resumed bool) deploy.StageResult {
		return f.executor.Execute(t.Context(), f.stageRun("back", resumed))
	}
	t.Run("after a failure", func(t *testing.T) {
		f := begin(t)
		f.startStage("s")
		f.update(func(d *deploy.Deployment) error { return d.FinishStage("s", deploy.StageFailure, "", d.CreatedAt) })
		f.update(func(d *deploy.Deployment) error { return d.BeginRollback(deploy.Failure, "", d.CreatedAt) })
		f.startStage("back")
		wantResult(t, rollBack(t, f, false), deploy.StageSuccess, "")
		if diff := cmp.Diff([]string{"old true " + lastHash, "hello from the last success"}, f.log.printed()); diff != "" {
			t.Errorf("printed (-want +got):\n%s", diff)
		}
		wantResult(t, rollBack(t, f, true), deploy.StageSuccess, "")
		f.wantRuns(1)
	})
	t.Run("of what did not begin", func(t *testing.T) {
		f := begin(t)
		wantResult(t, rollBack(t, f, false), deploy.StageSuccess, "")
		f.wantRuns(0)
	})
}
