// Package kubernetes decides how Kubernetes applications are deployed. It
// decides from rendered manifests alone and never talks to a cluster.
package kubernetes

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// Decider implements planner.Decider. Its zero value is ready to use.
type Decider struct{}

// Decide plans a quick sync: one K8S_SYNC stage, and a ROLLBACK stage when there
// is a last success to return to and the application does not forbid it.
func (Decider) Decide(_ context.Context, app deploy.Application, d deploy.Deployment, target *source.Source) (deploy.Plan, error) {
	if d.Trigger.Strategy == deploy.StrategyPipeline {
		return deploy.Plan{}, deploy.Errorf(deploy.Invalid, "a pipeline was asked for, but %s has no spec.pipeline", d.Git.ConfigPath())
	}
	spec := target.Config
	return deploy.Plan{
		Summary:         summary(app, d, target),
		Versions:        manifest.Versions(target.Objects),
		Stages:          stages(spec.AutoRollback() && app.LastSuccessful != nil),
		Timeout:         spec.Timeout,
		RollbackTimeout: spec.Rollback.Timeout,
	}, nil
}

func stages(rollback bool) []deploy.Stage {
	out := []deploy.Stage{{
		ID: "K8sSync", Name: deploy.StageK8sSync, Desc: "Apply all manifests and wait until every workload has rolled out", Visible: true,
	}}
	if rollback {
		out = append(out, deploy.Stage{
			ID: "Rollback", Name: deploy.StageRollback, Desc: "Apply the last successful state again and wait for it", Rollback: true,
		})
	}
	return out
}

// summary says in one sentence why this way was taken.
func summary(app deploy.Application, d deploy.Deployment, target *source.Source) string {
	switch {
	case d.Trigger.Strategy == deploy.StrategyQuickSync:
		return d.Trigger.StrategySummary
	case app.LastSuccessful == nil:
		return fmt.Sprintf("Quick sync: first deployment of %d manifests", len(target.Objects))
	}
	return "Quick sync: no pipeline is configured"
}
