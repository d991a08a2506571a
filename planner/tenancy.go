package planner

import (
	"context"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// Tenancy tells what the agent's configuration permits an application to do.
type Tenancy interface {
	// Tenant returns the rules for the application configured at a place.
	Tenant(at deploy.GitPath) config.Tenant
	// Signer returns who signed a commit for the application, "" when that is of no
	// interest. The error is of kind deploy.Invalid when the commit is not allowed.
	Signer(ctx context.Context, at deploy.GitPath, commit string) (string, error)
}

// permit refuses a deployment that the application may not have, before anything
// of its commit is read. Without rules everything is permitted.
func (p *Planner) permit(ctx context.Context, d deploy.Deployment) error {
	if p.Tenancy == nil {
		return nil
	}
	if _, err := p.Tenancy.Signer(ctx, d.Git, d.Trigger.Commit.Hash); err != nil {
		return err
	}
	return p.Tenancy.Tenant(d.Git).CheckProvider(d.Provider)
}

// permitStages refuses stages that the application may not have.
func (p *Planner) permitStages(d deploy.Deployment, stages []deploy.Stage) error {
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
