package analysis

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// Sources reads the configurations of applications; *source.Loader implements it.
type Sources interface {
	Config(ctx context.Context, at deploy.GitPath, commit string) (*config.Application, error)
}

// Providers returns analysis providers by name; *provider.Set implements it. Errors are
// of kind deploy.Invalid.
type Providers interface {
	Metrics(name string) (provider.Metrics, error)
	Logs(name string) (provider.Logs, error)
}

// Config contains the dependencies and settings of an Executor.
type Config struct {
	Store     *store.Store
	Tree      source.Tree // to find templates at a commit
	Sources   Sources
	Providers Providers
	Logger    *slog.Logger
	// Now is the time of provider queries. The duration of an analysis is measured by
	// the monotonic clock; after a restart Now determines the time that is left.
	Now func() time.Time
}

// Executor runs ANALYSIS stages. It is safe for concurrent use.
type Executor struct {
	Config
	http *http.Client
}

// New returns an Executor.
func New(c Config) *Executor { return &Executor{c, newClient()} }

// Close closes idle connections. It returns nil.
func (e *Executor) Close() error {
	e.http.CloseIdleConnections()
	return nil
}

// Execute runs the stage's analysis. It implements scheduler.Executor.
func (e *Executor) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	var o analysis.Options
	if err := json.Unmarshal(run.Stage.Options, &o); err != nil {
		return failure(deploy.Errorf(deploy.Invalid, "read the options of %s: %w", run.Stage.Name, err))
	}
	err := e.Analyze(ctx, run, "", o, run.Stage.StartedAt)
	switch why := deploy.Stopped(ctx); {
	case err == nil:
		return deploy.StageResult{Status: deploy.StageSuccess}
	case why != "":
		return deploy.StageResult{Status: why.Status(), Reason: err.Error()}
	}
	return failure(err)
}

func failure(err error) deploy.StageResult {
	return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error(), Interrupted: deploy.StoreUnavailable(err)}
}

// Analyze runs an analysis for a stage. It returns nil when o.Duration is over and no
// check has exceeded its failure limit. It returns an error, suitable as the stage's
// reason, as soon as a check fails, if the options are invalid, and when ctx is
// cancelled.
//
// Name identifies the analysis within its stage, "" if it is the only one. Since is its
// start time: when the stage is resumed (run.Resumed), an analysis with the same name
// and since resumes, too.
func (e *Executor) Analyze(ctx context.Context, run deploy.StageRun, name string, o analysis.Options, since time.Time) error {
	if o.Empty() {
		run.Log.Infof("There is nothing to check: the analysis has no metrics, logs or https")
		return nil
	}
	a := &session{Executor: e, run: run, name: name, duration: time.Duration(o.Duration), since: since}
	if err := a.prepare(ctx, o); err != nil {
		if deploy.Stopped(ctx) != "" {
			return a.unfinished()
		}
		return err
	}
	return a.runChecks(ctx)
}
