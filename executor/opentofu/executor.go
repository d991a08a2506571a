package opentofu

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	config "github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/opentofu"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// Keys of Stage.Metadata: what a plan does, its digest, and that its apply was about to start.
const (
	MetaPlan   = "plan"
	MetaDigest = "planDigest"
	metaIntent = "applyIntent"
)

// Config contains the dependencies and settings of an Executor.
type Config struct {
	Store    *store.Store
	Kind     string // of the applications
	Files    func(ctx context.Context, at deploy.GitPath, commit string) (source.Files, error)
	Provider func(name string) (*config.Provider, error)
	Programs *opentofu.Programs
	Dir      string // where the runs are; it belongs to the executor alone
	// RetryAfter is the pause before a failed apply is repeated; default 10 s.
	RetryAfter time.Duration
	// LockEvery is the pause before a locked state is tried again; default 3 s.
	LockEvery time.Duration
	// ScanEvery is the interval in which Run looks for requests to release a lock, as a fallback for
	// missed changes; default 15 s.
	ScanEvery time.Duration
	Applied   func(applicationID string) // called after an apply; may be nil
	Kept      bool                       // Dir is used already, and is not cleaned
	Logger    *slog.Logger
	Now       func() time.Time
}

// Executor runs the stages. It is safe for concurrent use.
type Executor struct {
	Config
	recordings sync.Map // of *sync.Mutex, by application
}

// New returns an Executor. It first kills the processes and removes the files that a killed agent
// left behind.
func New(c Config) *Executor {
	c.RetryAfter, c.LockEvery = cmp.Or(c.RetryAfter, 10*time.Second), cmp.Or(c.LockEvery, 3*time.Second)
	c.ScanEvery = cmp.Or(c.ScanEvery, 15*time.Second)
	if c.Applied == nil {
		c.Applied = func(string) {}
	}
	clean := Clean
	if c.Kept {
		clean = func(dir string) error { return os.MkdirAll(dir, 0o700) }
	}
	if err := clean(c.Dir); err != nil {
		c.Logger.Error("stages will fail until the directory of their runs can be used", "error", err)
	}
	return &Executor{Config: c}
}

// Stage runs one stage. It implements scheduler.Executor.
type Stage func(ctx context.Context, run deploy.StageRun) deploy.StageResult

// Execute implements scheduler.Executor.
func (s Stage) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	return s(ctx, run)
}

// failure is a final error of a stage: it is not retried, and with noRollback the deployment is not
// rolled back.
type failure struct {
	error
	noRollback bool
}

func (f failure) Unwrap() error { return f.error }

// stage returns a stage that runs do in a session. That of a rollback has the files of the last
// successful commit.
func (e *Executor) stage(do func(ctx context.Context, run deploy.StageRun, s *session) (deploy.StageStatus, error)) Stage {
	return func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
		status, err := e.inSession(ctx, run, do)
		if err == nil {
			return deploy.StageResult{Status: status}
		}
		if why := deploy.Stopped(ctx); why != "" {
			return deploy.StageResult{Status: why.Status(), Reason: err.Error()}
		}
		var f failure
		_ = errors.As(err, &f)
		return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error(), NoRollback: f.noRollback, Interrupted: deploy.StoreUnavailable(err)}
	}
}

func (e *Executor) inSession(ctx context.Context, run deploy.StageRun, do func(context.Context, deploy.StageRun, *session) (deploy.StageStatus, error)) (deploy.StageStatus, error) {
	d := run.Deployment
	at, commit := d.Git, d.Trigger.Commit.Hash
	if run.Stage.Rollback {
		at, commit = d.RunningGit(), d.RunningCommit
	}
	s, err := e.open(ctx, run.Application.Kind, d.Provider, at, commit, run.Log)
	if err != nil {
		return "", err
	}
	defer s.close()
	run.Log = s.log
	if err := s.Init(ctx); err != nil {
		return "", s.redactor.Error(err)
	}
	status, err := do(ctx, run, s)
	var f failure
	if errors.As(err, &f) {
		return status, failure{s.redactor.Error(f.error), f.noRollback}
	}
	return status, s.redactor.Error(err)
}

// Plan returns the stage TERRAFORM_PLAN: it makes the plan that later stages apply.
func (e *Executor) Plan() Stage {
	return e.stage(func(ctx context.Context, run deploy.StageRun, s *session) (deploy.StageStatus, error) {
		var options config.PlanOptions
		if err := json.Unmarshal(run.Stage.Options, &options); err != nil {
			return "", fmt.Errorf("read the options of the stage: %w", err)
		}
		plan, err := e.plan(ctx, run, s)
		if err != nil {
			return "", err
		}
		if err := e.keep(ctx, run, s, plan); err != nil {
			return "", err
		}
		if plan.IsEmpty && options.ExitOnNoChanges {
			run.Log.Successf("No changes: the deployment ends here (exitOnNoChanges)")
			return deploy.StageExited, e.conclude(ctx, run, s)
		}
		run.Log.Successf("Plan %s: %s", short(plan.Digest), plan.Summary())
		return deploy.StageSuccess, nil
	})
}

// plan makes a plan, as soon as the state is not locked.
func (e *Executor) plan(ctx context.Context, run deploy.StageRun, s *session) (plan opentofu.Plan, err error) {
	err = e.whileLocked(ctx, run, s, func() (err error) {
		plan, err = s.Plan(ctx)
		return err
	})
	return plan, err
}

// whileLocked calls do again as long as it fails because the state is locked: another deployment
// or user has it, or a run that was killed has left the lock behind. It says which, once.
func (e *Executor) whileLocked(ctx context.Context, run deploy.StageRun, s *session, do func() error) error {
	requests := e.Store.Watch(deploy.TopicCommand)
	defer requests.Close()
	for said := ""; ; {
		err := do()
		var lock *opentofu.Locked
		if !errors.As(err, &lock) {
			if err == nil && said != "" {
				run.Log.Infof("The state is not locked any more")
			}
			return err
		}
		if said != lock.ID {
			said = lock.ID
			run.Log.Infof("Waiting: %v. To release it: pipectl deployment release-lock --deployment-id=%s --lock-id=%s", lock, run.Deployment.ID, lock.ID)
		}
		if err := e.release(ctx, run, s, lock); err != nil && ctx.Err() == nil {
			e.Logger.Error("cannot answer the requests to release a lock; trying again", "deployment", run.Deployment.ID, "error", err)
		}
		select {
		case <-ctx.Done():
			return lock
		case <-requests.C():
			requests.Take()
		case <-time.After(e.LockEvery):
		}
	}
}

// release answers the requests to release a lock of the deployment.
func (e *Executor) release(ctx context.Context, run deploy.StageRun, s *session, lock *opentofu.Locked) error {
	commands, err := e.Store.OpenCommands(ctx, deploy.CommandReleaseStateLock)
	if err != nil {
		return err
	}
	for _, c := range commands {
		if c.DeploymentID != run.Deployment.ID {
			continue
		}
		status, reason := deploy.CommandSucceeded, ""
		if c.LockID != lock.ID {
			status, reason = deploy.CommandFailed, fmt.Sprintf("the deployment waits for lock %s, and not for %s", lock.ID, c.LockID)
		} else if err := s.ReleaseLock(ctx, lock.ID); err != nil {
			status, reason = deploy.CommandFailed, s.redactor.Text(err.Error())
		} else {
			run.Log.Infof("%s has released lock %s of %s", c.Commander, lock.ID, lock.Who)
		}
		err := e.Store.FinishCommand(ctx, c.ID, status, map[string]string{deploy.MetaReason: reason})
		if err != nil && !deploy.IsKind(err, deploy.Conflict) {
			return err
		}
	}
	return nil
}

// keep stores a plan with the deployment, and describes it in the metadata and the log.
func (e *Executor) keep(ctx context.Context, run deploy.StageRun, s *session, plan opentofu.Plan) error {
	kept, err := e.record(ctx, run.Deployment.ID)
	if err != nil {
		return err
	}
	changes := shownChanges(plan, s.redactor.Text)
	kept.Plan = &SavedPlan{Stage: run.Stage.ID, Digest: plan.Digest, Summary: plan.Summary(), Data: plan.Data, Changes: changes}
	if err := e.save(ctx, deploy.AppliedSet{ApplicationID: run.Deployment.ApplicationID, DeploymentID: run.Deployment.ID, Commit: run.Deployment.Trigger.Commit.Hash}, kept); err != nil {
		return err
	}
	return run.SaveMetadata(ctx, map[string]string{
		MetaDigest: plan.Digest, MetaPlan: plan.Summary(), deploy.MetaSubject: fmt.Sprintf("plan %s of stage %s: %s", short(plan.Digest), run.Stage.ID, plan.Summary()),
	})
}

func short(digest string) string { return digest[:min(len(digest), 12)] }

// Apply returns the stage TERRAFORM_APPLY: it applies the plan of an earlier stage; without one
// it makes it, too.
func (e *Executor) Apply() Stage {
	return e.stage(func(ctx context.Context, run deploy.StageRun, s *session) (deploy.StageStatus, error) {
		kept, err := e.record(ctx, run.Deployment.ID)
		if err != nil {
			return "", err
		}
		planned := plannedBefore(run)
		if planned == nil {
			return deploy.StageSuccess, e.sync(ctx, run, s)
		}
		if kept.Plan == nil || kept.Plan.Stage != planned.ID || kept.Plan.Digest != planned.Metadata[MetaDigest] {
			return "", fmt.Errorf("the plan of stage %s is not stored any more; sync again", planned.ID)
		}
		if kept.applied(run) {
			return deploy.StageSuccess, nil
		}
		if err := s.restore(*kept.Plan); err != nil {
			return "", err
		}
		return deploy.StageSuccess, e.apply(ctx, run, s, false)
	})
}

// plannedBefore returns the last stage before this one that has made a plan, nil if none has. A
// plan that was applied by a stage in between does not count: the configuration forbids it.
func plannedBefore(run deploy.StageRun) (out *deploy.Stage) {
	for i, s := range run.Deployment.Stages {
		if s.ID == run.Stage.ID {
			return out
		}
		if s.Name == config.StagePlan && s.Metadata[MetaDigest] != "" {
			out = &run.Deployment.Stages[i]
		}
	}
	return nil
}

// Sync returns the stage TERRAFORM_SYNC: it makes a plan and applies it.
func (e *Executor) Sync() Stage {
	return e.stage(func(ctx context.Context, run deploy.StageRun, s *session) (deploy.StageStatus, error) {
		return deploy.StageSuccess, e.sync(ctx, run, s)
	})
}

// sync makes a plan and applies it. After an interruption it goes on with the plan of before.
func (e *Executor) sync(ctx context.Context, run deploy.StageRun, s *session) error {
	if run.Stage.Metadata[metaIntent] != "" {
		kept, err := e.record(ctx, run.Deployment.ID)
		if err != nil {
			return err
		}
		if kept.Plan == nil || kept.Plan.Stage != run.Stage.ID {
			return fmt.Errorf("the apply was interrupted, and its plan is not stored any more: look at the resources, and sync again")
		}
		if kept.applied(run) {
			return nil
		}
		if err := s.restore(*kept.Plan); err != nil {
			return err
		}
		return e.apply(ctx, run, s, false)
	}
	for attempt := 1; ; attempt++ {
		err := e.planAndApply(ctx, run, s, attempt < maxStale)
		if !errors.Is(err, opentofu.ErrStale) || attempt == maxStale {
			return err
		}
		run.Log.Infof("Another run has changed the state since the plan was made; planning again")
	}
}

// maxStale is how many plans of a sync may be outdated by other runs.
const maxStale = 3

// planAndApply makes a plan and applies it. replan is as in apply.
func (e *Executor) planAndApply(ctx context.Context, run deploy.StageRun, s *session, replan bool) error {
	plan, err := e.plan(ctx, run, s)
	if err != nil {
		return err
	}
	if err := e.keep(ctx, run, s, plan); err != nil {
		return err
	}
	if plan.IsEmpty {
		run.Log.Successf("No changes")
		return e.conclude(ctx, run, s)
	}
	run.Log.Infof("Plan %s: %s", short(plan.Digest), plan.Summary())
	return e.apply(ctx, run, s, replan)
}

// Rollback returns the stage ROLLBACK: it applies the last successful commit, as PipeCD does.
func (e *Executor) Rollback() Stage {
	return e.stage(func(ctx context.Context, run deploy.StageRun, s *session) (deploy.StageStatus, error) {
		plan, err := e.plan(ctx, run, s)
		if err != nil {
			return "", err
		}
		if plan.IsEmpty {
			run.Log.Successf("Nothing to undo: the resources are as commit %s declares them", deploy.ShortHash(run.Deployment.RunningCommit))
			return deploy.StageSuccess, e.conclude(ctx, run, s)
		}
		run.Log.Infof("Plan %s: %s", short(plan.Digest), plan.Summary())
		if err := e.whileLocked(ctx, run, s, func() error { return s.Run.Apply(ctx) }); err != nil {
			return "", err
		}
		run.Log.Successf("Applied commit %s again", deploy.ShortHash(run.Deployment.RunningCommit))
		return deploy.StageSuccess, e.conclude(ctx, run, s)
	})
}
