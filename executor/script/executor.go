package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

// Keys of Stage.Metadata: the intent is stored before a script starts, the end after it
// has exited.
const (
	metaIntent    = "scriptIntent"
	metaEnd       = "scriptEnd" // a StageStatus
	metaEndReason = "scriptEndReason"
)

// recordTimeout bounds the attempts of a stopped stage to record that its script had
// already exited.
const recordTimeout = 10 * time.Second

// Config contains the dependencies and settings of an Executor.
type Config struct {
	Tree   source.Tree // finds the files of a commit
	Tenant Tenant      // nil permits every script
	// Scripts start with the first mode of Isolation that works on this machine. If none works,
	// stages with scripts fail. Dir and the directory of Isolation's users belong to the executor
	// alone.
	Isolation sandbox.Settings
	Dir       string        // where scripts run, such as <data directory>/scripts
	Grace     time.Duration // from SIGTERM to SIGKILL; default 10 s
	Logger    *slog.Logger
}

// Tenant returns the tenancy rules for the application at a Git path.
type Tenant func(at deploy.GitPath) config.Tenant

// Executor runs SCRIPT_RUN and CUSTOM_SYNC stages and those that undo them. It is
// safe for concurrent use.
type Executor struct {
	Config
	way     sandbox.Way
	refused error    // why scripts cannot run on this machine
	free    chan int // indexes of unused users; only with OtherUser
}

// New returns an Executor. It first kills the processes and removes the files that a killed
// agent left behind.
func New(c Config) (*Executor, error) {
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("make the directory of script stages: %w", err)
	}
	c.Dir = dir
	if err := openDir(dir); err != nil {
		return nil, err
	}
	if err := openUsersDir(c.Isolation.Users); err != nil {
		return nil, err
	}
	e := &Executor{Config: c}
	e.choose()
	return e, nil
}

// openUsersDir removes leftovers in the directory of other users. The later choice of a
// mode reports a directory with a wrong owner.
func openUsersDir(users sandbox.Users) error {
	if _, err := os.Lstat(users.Dir); users.UID == 0 || err != nil || users.Open() != nil {
		return nil
	}
	return openDir(users.Dir)
}

// choose selects the isolation of scripts, and logs it.
func (e *Executor) choose() {
	e.way, e.refused = sandbox.Choose(context.Background(), e.Dir, e.Isolation)
	log := e.Logger.With("isolation", e.way.Mode, "endedBy", e.way.EndedBy, "holds", e.way.Mode.Holds())
	switch {
	case e.refused != nil:
		e.Logger.Warn("stages that run scripts will fail", "error", e.refused)
	case e.way.Mode == sandbox.None:
		log.Warn("scripts are not isolated")
	default:
		log.Info("scripts are isolated")
	}
	if e.way.Mode == sandbox.OtherUser {
		e.free = make(chan int, e.Isolation.Users.Count)
		for n := range e.Isolation.Users.Count {
			e.free <- n
		}
	}
}

// State returns the isolation of scripts.
func (e *Executor) State() deploy.ScriptsState {
	if e.refused != nil {
		return deploy.ScriptsState{Error: e.refused.Error()}
	}
	return deploy.ScriptsState{Isolation: string(e.way.Mode), EndedBy: string(e.way.EndedBy), Holds: e.way.Mode.Holds()}
}

// Execute runs the stage's script. It implements scheduler.Executor. All processes of
// the script have ended when it returns.
func (e *Executor) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	j, err := jobOf(run)
	if err != nil {
		return failure(err)
	}
	if j.nothing != "" {
		run.Log.Infof("%s", j.nothing)
		return deploy.StageResult{Status: deploy.StageSuccess}
	}
	if result, ended := earlier(run, j); ended {
		return result
	}
	if e.Tenant != nil {
		if err := e.Tenant(run.Deployment.Git).CheckScripts(run.Stage.ID); err != nil {
			return failure(err)
		}
	}
	if e.refused != nil {
		return failure(e.refused)
	}
	result, err := e.attempt(ctx, run, j)
	if err != nil {
		if why := deploy.Stopped(ctx); why != "" {
			return deploy.StageResult{Status: why.Status(), Reason: err.Error()}
		}
		return failure(err)
	}
	return result
}

func failure(err error) deploy.StageResult {
	return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
}

// earlier returns the result of a run before a restart. ended is false if there was no such
// run, or if it may be repeated.
func earlier(run deploy.StageRun, j job) (_ deploy.StageResult, ended bool) {
	m := run.Stage.Metadata
	switch {
	case m[metaEnd] != "":
		run.Log.Infof("The script ran to its end before the agent was interrupted; it is not run again")
		return deploy.StageResult{Status: deploy.StageStatus(m[metaEnd]), Reason: m[metaEndReason]}, true
	case m[metaIntent] == "":
		return deploy.StageResult{}, false
	case j.rerun:
		run.Log.Infof("The script was interrupted when the agent ended; it is run again (onInterrupted: rerun)")
		return deploy.StageResult{}, false
	}
	return failure(errors.New("interrupted: the agent ended while the script ran, and its progress is unknown; " +
		"it is not run again (a SCRIPT_RUN that may be: onInterrupted: rerun)")), true
}

// attempt prepares a workspace, records the intent, and runs the script.
func (e *Executor) attempt(ctx context.Context, run deploy.StageRun, j job) (deploy.StageResult, error) {
	d := run.Deployment
	in, release, err := e.isolate(ctx, run.Log)
	if err != nil {
		return deploy.StageResult{}, err
	}
	defer release()
	ws, err := newWorkspace(in.dir)
	if err != nil {
		return deploy.StageResult{}, err
	}
	defer func() {
		if err := ws.remove(); err != nil {
			e.Logger.Error("cannot remove the directory of a script stage; the next start of the agent tries again",
				"app", d.ApplicationName, "deployment", d.ID, "stage", run.Stage.ID, "error", err)
		}
	}()
	sayIrrevocable(run)
	run.Log.Infof("Preparing the files of commit %s", deploy.ShortHash(j.commit))
	tree, err := e.Tree(d.Git.RepoID, j.commit)
	if err != nil {
		return deploy.StageResult{}, err
	}
	if err := source.Materialise(ctx, tree, ws.tree); err != nil {
		return deploy.StageResult{}, err
	}
	env, err := environment(ws, d, j)
	if err != nil {
		return deploy.StageResult{}, err
	}
	// The value is unique, so that of two agents only one starts the script.
	intent := "the script was about to start: " + uuid.NewString()
	if err := run.SwapMetadata(ctx, metaIntent, run.Stage.Metadata[metaIntent], intent); err != nil {
		return deploy.StageResult{}, fmt.Errorf("record that the script is about to start: %w", err)
	}
	c := command{script: j.script, dir: filepath.Join(ws.tree, filepath.FromSlash(j.dir)), env: env, grace: e.Grace}
	run.Log.Infof("Running the script in %s", j.dir)
	return e.conclude(ctx, run, c.run(ctx, run.Log, in, ws)), nil
}

// conclude returns the stage's result and records it, unless the script was stopped.
// The record survives if the agent dies before the stage's end is stored.
func (e *Executor) conclude(ctx context.Context, run deploy.StageRun, err error) deploy.StageResult {
	if why := deploy.Stopped(ctx); why != "" && err != nil {
		return deploy.StageResult{Status: why.Status(), Reason: "the script was stopped: " + ending(err)}
	}
	result := deploy.StageResult{Status: deploy.StageSuccess}
	if err != nil {
		result = deploy.StageResult{Status: deploy.StageFailure, Reason: "the script failed: " + ending(err)}
	}
	end := map[string]string{metaEnd: string(result.Status), metaEndReason: result.Reason}
	saving, done := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer done()
	if err := run.SaveMetadata(saving, end); err != nil {
		e.Logger.Warn("cannot record the end of a script", "deployment", run.Deployment.ID, "stage", run.Stage.ID, "error", err)
	}
	if result.Status == deploy.StageSuccess {
		run.Log.Successf("The script has ended successfully")
	}
	return result
}

// ending describes how a process ended.
func ending(err error) string {
	if errors.Is(err, context.Canceled) {
		return "it ended after SIGTERM"
	}
	return err.Error() // a *sandbox.Ended has its own text
}
