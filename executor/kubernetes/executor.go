package kubernetes

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// Sources loads an application at a commit. *source.Loader implements it.
type Sources interface {
	Load(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error)
}

// Cluster is one cluster that stages work on: its API and the watch of its rollouts.
type Cluster struct {
	*apply.Client
	Rollouts rollout.Observer
}

// Clusters returns the clusters of the platform providers, which may change while stages
// run.
type Clusters interface {
	// Hold returns a provider's cluster. It works until release is called, even if the
	// provider is replaced or removed meanwhile. The error explains why the cluster is not
	// available, and can be a stage's reason.
	Hold(provider string) (c Cluster, release func(), err error)
}

// Analyzer runs analyses. The executor of ANALYSIS implements it.
type Analyzer interface {
	// Analyze runs an analysis of a stage. It returns nil if the analysis passed, else an
	// error that can be the stage's reason. A resumed stage resumes the analysis that has the
	// same name and the same since, the time of its start.
	Analyze(ctx context.Context, run deploy.StageRun, name string, o analysis.Options, since time.Time) error
}

// Config contains the dependencies and settings of an Executor.
type Config struct {
	Store    *store.Store
	Sources  Sources
	Clusters Clusters
	Tenancy  Tenancy  // nil permits everything
	Analyzer Analyzer // for steps of K8S_TRAFFIC_ROUTING
	PipedID  string
	Policy   rollout.Policy // thresholds that applications do not set
	Metrics  Metrics        // optional
	Now      func() time.Time
	// NudgeWait bounds how long a stage waits until pods have been notified of their
	// changed configuration, so that its log can name them; 30 s by default. The agent
	// notifies the remaining pods after the stage.
	NudgeWait time.Duration
}

// Executor returns a Stage for each kind of stage. It is safe for concurrent use.
type Executor struct{ Config }

// New returns an Executor.
func New(c Config) *Executor {
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	if c.NudgeWait == 0 {
		c.NudgeWait = 30 * time.Second
	}
	return &Executor{c}
}

// Stage runs one kind of stage. It implements scheduler.Executor.
type Stage func(ctx context.Context, run deploy.StageRun) deploy.StageResult

// Execute runs the stage.
func (s Stage) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	return s(ctx, run)
}

// step is one part of a stage. Its error fails the stage.
type step func(ctx context.Context, w *work) error

// stage returns a Stage that runs steps on one work until one fails. A failed or stopped
// stage ends its open rollout records; see conclude. Those of an interrupted one stay open.
func (e *Executor) stage(steps ...step) Stage {
	return func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
		w := &work{Executor: e, run: run, log: run.Log, rollouts: map[string]deploy.Rollout{}, wrote: map[string]bool{}, restored: map[string]bool{}, release: func() {}}
		defer func() { w.release() }()
		for _, step := range steps {
			if err := step(ctx, w); err != nil {
				result := failure(err)
				result.Reason = w.hide.Text(result.Reason)
				if result.Interrupted = result.Interrupted && ctx.Err() == nil; result.Interrupted {
					return result
				}
				if err := w.conclude(ctx, result.Reason); err != nil {
					w.log.Errorf("Cannot record how the rollouts of the stage ended: %v", err)
				}
				return result
			}
		}
		return deploy.StageResult{Status: deploy.StageSuccess}
	}
}

// openCluster opens the cluster of the deployment's provider. If that fails in the first
// stage, the stage requests no rollback, because nothing was changed.
func openCluster(_ context.Context, w *work) error {
	c, release, err := w.Clusters.Hold(w.run.Deployment.Provider)
	if err != nil {
		return &stageError{reason: err.Error(), noRollback: w.run.First()}
	}
	w.cluster, w.release = c, release
	return w.impersonate()
}

// impersonate makes the cluster's client act as the service account that the tenancy rules
// name, if any.
func (w *work) impersonate() error {
	account, err := w.tenant().Account()
	if err != nil || account.User() == "" {
		return w.refuse(err)
	}
	w.log.Infof("Objects are read and written as service account %s", account)
	w.cluster.Client, err = w.cluster.As(account.User())
	return err
}
