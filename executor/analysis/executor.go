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

// Sources read the configurations of applications; *source.Loader does.
type Sources interface {
	Config(ctx context.Context, at deploy.GitPath, commit string) (*config.Application, error)
}

// Providers find the analysis providers in effect by their names; *provider.Set
// does. Errors are of kind deploy.Invalid.
type Providers interface {
	Metrics(name string) (provider.Metrics, error)
	Logs(name string) (provider.Logs, error)
}

// Config is what an Executor needs.
type Config struct {
	Store     *store.Store
	Tree      source.Tree // finds the templates at a commit
	Sources   Sources
	Providers Providers
	Logger    *slog.Logger
	// Now tells providers the time; how long an analysis runs goes by the monotonic
	// clock, and after a restart by what Now had left of it.
	Now func() time.Time
}

// Executor runs ANALYSIS stages. It is safe for concurrent use.
type Executor struct {
	Config
	http *http.Client
}

// New returns an Executor.
func New(c Config) *Executor { return &Executor{c, newClient()} }

// Close closes the connections that nobody uses. It returns nil.
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
	return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
}

// Analyze carries out an analysis for a stage and returns nil when it was passed:
// when o.Duration is over, and no check has failed more often than it tolerates.
// It returns an error, fit to be the stage's reason, as soon as one has; if
// something of the analysis is missing or makes no sense; and when ctx is stopped.
//
// Name tells the analyses of a stage apart and is "" for its only one. Since is
// when this one began: when the stage runs again after a restart (run.Resumed),
// an analysis of the same name and since goes on where it was.
func (e *Executor) Analyze(ctx context.Context, run deploy.StageRun, name string, o analysis.Options, since time.Time) error {
	if o.Empty() {
		run.Log.Infof("There is nothing to check: the analysis has no metrics, logs or https")
		return nil
	}
	a := &process{Executor: e, run: run, name: name, duration: time.Duration(o.Duration), since: since}
	if err := a.prepare(ctx, o); err != nil {
		if deploy.Stopped(ctx) != "" {
			return a.notOver()
		}
		return err
	}
	return a.carryOut(ctx)
}
