package planner

import (
	"context"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// Tenancy enforces the tenancy rules of the agent's configuration.
type Tenancy interface {
	// Tenant returns the rules for the application at a Git path.
	Tenant(at deploy.GitPath) config.Tenant
	// Signer returns the signer of a commit, "" when no rule requires one. The error is
	// of kind deploy.Invalid when the commit is not permitted.
	Signer(ctx context.Context, at deploy.GitPath, commit string) (string, error)
}

// checkTenancy rejects a deployment that the rules forbid, before its commit is read.
func (p *Planner) checkTenancy(ctx context.Context, d deploy.Deployment) error {
	if p.Tenancy == nil {
		return nil
	}
	if _, err := p.Tenancy.Signer(ctx, d.Git, d.Trigger.Commit.Hash); err != nil {
		return err
	}
	return p.Tenancy.Tenant(d.Git).CheckProvider(d.Provider)
}

// checkStages rejects stages that the rules forbid.
func (p *Planner) checkStages(d deploy.Deployment, stages []deploy.Stage) error {
	if p.Tenancy == nil {
		return nil
	}
	for _, s := range stages {
		switch s.Name {
		case deploy.StageScriptRun, deploy.StageScriptRunRollback, deploy.StageCustomSync, deploy.StageCustomSyncRollback:
		default:
			continue
		}
		if err := p.Tenancy.Tenant(d.Git).CheckScripts(s.ID); err != nil {
			return err
		}
	}
	return nil
}
