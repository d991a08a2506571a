package script

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// rerun is the value of onInterrupted that repeats an interrupted script.
const rerun = "rerun"

// options are the options of SCRIPT_RUN and of CUSTOM_SYNC, which names its environment
// differently. Planning evaluates timeout and onRollback.
type options struct {
	Run           string            `json:"run"`
	Env           map[string]string `json:"env"`
	Envs          map[string]string `json:"envs"`
	OnInterrupted string            `json:"onInterrupted"`
}

// job is the script of a stage.
type job struct {
	script   string
	commit   string // of the files
	dir      string // working directory within the files
	env      map[string]string
	rollback bool
	rerun    bool   // repeat after an interruption
	nothing  string // why there is nothing to run, "" if there is
}

// jobOf returns the job of a stage.
func jobOf(run deploy.StageRun) (job, error) {
	switch run.Stage.Name {
	case deploy.StageScriptRunRollback, deploy.StageCustomSyncRollback:
		return rollbackJob(run)
	}
	var o options
	if len(run.Stage.Options) > 0 {
		if err := json.Unmarshal(run.Stage.Options, &o); err != nil {
			return job{}, deploy.Errorf(deploy.Invalid, "read the options of %s: %w", run.Stage.Name, err)
		}
	}
	j := job{script: o.Run, commit: run.Deployment.Trigger.Commit.Hash, dir: run.Deployment.Git.Dir, env: o.Env, rerun: o.OnInterrupted == rerun}
	if run.Stage.Name == deploy.StageCustomSync {
		j.env = o.Envs
	}
	if j.script == "" {
		j.nothing = "The stage has no script to run"
	}
	return j, nil
}

// rollbackJob returns the job that undoes a stage: the rollback script of a SCRIPT_RUN, or
// for a CUSTOM_SYNC the script and files of the last success. If the stage did not begin
// there is nothing to run.
func rollbackJob(run deploy.StageRun) (job, error) {
	m := run.Stage.Metadata
	base := run.Deployment.Stage(m[deploy.MetaBaseStage])
	if base == nil {
		return job{}, deploy.Errorf(deploy.Internal, "the deployment has no stage %q whose script could be rolled back; please report it", m[deploy.MetaBaseStage])
	}
	j := job{
		script: m[deploy.MetaOnRollback], commit: run.Deployment.Trigger.Commit.Hash, dir: run.Deployment.Git.Dir, rollback: true, rerun: m[deploy.MetaOnInterrupted] == rerun,
	}
	if run.Stage.Name == deploy.StageCustomSyncRollback {
		j.commit, j.dir = run.Deployment.RunningCommit, run.Deployment.RunningGit().Dir
	}
	switch {
	case !began(base):
		j.nothing = fmt.Sprintf("There is nothing to roll back: stage %s did not run", base.ID)
	case j.script == "":
		j.nothing = fmt.Sprintf("Stage %s has no onRollback script", base.ID)
	case m[deploy.MetaScriptEnv] != "":
		if err := json.Unmarshal([]byte(m[deploy.MetaScriptEnv]), &j.env); err != nil {
			return job{}, deploy.Errorf(deploy.Internal, "read the environment of the rollback script: %w", err)
		}
	}
	return j, nil
}

// began reports whether a stage may have effects to undo. A stage skipped before its
// script's start has none.
func began(s *deploy.Stage) bool {
	return s.Metadata[metaIntent] != "" || !s.StartedAt.IsZero() && s.Status != deploy.StageSkipped
}

// sayIrrevocable logs a warning for a CUSTOM_SYNC that no rollback stage undoes.
func sayIrrevocable(run deploy.StageRun) {
	if run.Stage.Name != deploy.StageCustomSync || slices.ContainsFunc(run.Deployment.RollbackStages(), func(s deploy.Stage) bool {
		return s.Name == deploy.StageCustomSyncRollback
	}) {
		return
	}
	why := "the application has no earlier success"
	if d := run.Deployment; d.RunningCommit != "" {
		why = fmt.Sprintf("the last success, commit %s, has no CUSTOM_SYNC that can be run again", deploy.ShortHash(d.RunningCommit))
	}
	run.Log.Infof("If the deployment fails, what this stage does is not undone: %s", why)
}
