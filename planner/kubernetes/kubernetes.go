// Package kubernetes decides how Kubernetes applications are deployed: at once (quick
// sync) or by the stages of their pipeline. It decides from configuration and rendered
// manifests alone and never accesses a cluster.
//
//	rules.go    the rules and their order
//	compare.go  compares running and target objects
//	stages.go   the stages of a quick sync, a pipeline and a rollback
package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/planner/stage"
)

// Decider implements planner.Decider. Its zero value is ready to use.
type Decider struct{}

// Running loads the application as of its last success. The error is NotFound when the
// commit is missing.
type Running = func(context.Context) (*source.Source, error)

// Decide plans a deployment of target. It calls running only if the decision depends on
// it, and never for an application without a last success.
func (Decider) Decide(ctx context.Context, app deploy.Application, d deploy.Deployment, target *source.Source, running Running) (deploy.Plan, error) {
	q := input{app: app, deployment: d, target: target, running: running}
	c, err := choose(ctx, q)
	if err != nil {
		return deploy.Plan{}, err
	}
	var lastSyncs []config.Stage
	if c.strategy == deploy.StrategyPipeline {
		if lastSyncs, err = stage.LastCustomSyncs(ctx, app, target.Config, running); err != nil {
			return deploy.Plan{}, err
		}
	}
	stages, err := stagesOf(c.strategy, target.Config, app.LastSuccessful != nil, lastSyncs)
	if err != nil {
		return deploy.Plan{}, err
	}
	return deploy.Plan{
		Summary: c.reason, Strategy: c.strategy, Versions: manifest.Versions(target.Objects, target.Redactor.Text), Stages: stages,
		Timeout: target.Config.Timeout, RollbackTimeout: target.Config.Rollback.Timeout,
		NoAutoRollback: !target.Config.AutoRollback(), EnvironmentURL: target.Config.EnvironmentURL,
	}, nil
}
