package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	cluster "github.com/c785c783/piped/piped/kubernetes"
	"github.com/c785c783/piped/piped/kubernetes/rollout"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// Sources loads an application as it is at a commit; *source.Loader does.
type Sources interface {
	Load(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error)
}

// Cluster is one cluster the stages work on: its API and the watch of its
// rollouts.
type Cluster struct {
	*cluster.Cluster
	Rollouts rollout.Observer
}

// Config is what the executors need.
type Config struct {
	Store    *store.Store
	Sources  Sources
	Clusters map[string]Cluster // by platform provider
	PipedID  string
	Policy   rollout.Policy // thresholds that applications do not set
	Now      func() time.Time
}

// Executor makes the executors of the stages. It is safe for concurrent use.
type Executor struct{ Config }

// New returns an Executor.
func New(c Config) *Executor { return &Executor{c} }

// Stage runs one kind of stage. It implements scheduler.Executor.
type Stage func(ctx context.Context, run deploy.StageRun) deploy.StageResult

// Execute runs the stage.
func (s Stage) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	return s(ctx, run)
}

// stage makes a Stage of steps: they share one work and run until one fails.
func (e *Executor) stage(steps ...func(context.Context, *work) error) Stage {
	return func(ctx context.Context, run deploy.StageRun) deploy.StageResult {
		w := &work{Executor: e, run: run, log: run.Log, rollouts: map[string]deploy.Rollout{}}
		for _, step := range steps {
			if err := step(ctx, w); err != nil {
				return failure(err)
			}
		}
		return deploy.StageResult{Status: deploy.StageSuccess}
	}
}

// openCluster finds the cluster to work on.
func openCluster(_ context.Context, w *work) error {
	name := w.run.Deployment.Provider
	var ok bool
	if w.cluster, ok = w.Clusters[name]; !ok {
		return fmt.Errorf("the platform provider %q is not configured; there are: %v", name, slices.Sorted(maps.Keys(w.Clusters)))
	}
	return nil
}
