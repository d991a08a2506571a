package planner

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
)

// metaSupersededBy is the Deployment.Metadata key of a held deployment. It contains the ID
// of the last later deployment that was planned before it.
const metaSupersededBy = "OvertakenBy"

// markSuperseded records in the held deployments that the later deployment by is planned
// before them. It does nothing if by ends without a plan.
func (p *Planner) markSuperseded(ctx context.Context, held []deploy.Deployment, by deploy.Deployment, v verdict) error {
	if v.status != "" {
		return nil
	}
	for _, d := range held {
		_, err := p.Store.UpdateDeployment(ctx, d.ID, func(d *deploy.Deployment) error {
			if d.Status != deploy.Pending {
				return notPending(d)
			}
			if d.Metadata == nil {
				d.Metadata = map[string]string{}
			}
			d.Metadata[metaSupersededBy] = by.ID
			return nil
		})
		if err != nil && !deploy.IsKind(err, deploy.Conflict) {
			return err
		}
	}
	return nil
}

// outdated cancels a held deployment if a later one of another commit has succeeded:
// deploying it now would undo that commit. The zero verdict lets it proceed.
func (p *Planner) outdated(ctx context.Context, d deploy.Deployment) (verdict, error) {
	id := d.Metadata[metaSupersededBy]
	if id == "" {
		return verdict{}, nil
	}
	by, err := p.Store.Deployment(ctx, id)
	if deploy.IsKind(err, deploy.NotFound) {
		return verdict{}, nil
	}
	if err != nil || by.Status != deploy.Success || by.Trigger.Commit.Hash == d.Trigger.Commit.Hash {
		return verdict{}, err
	}
	return verdict{status: deploy.Cancelled, by: by.ID, reason: fmt.Sprintf(
		"Superseded while held: deployment %s of commit %s has succeeded, and this deployment would undo it; to deploy commit %s anyway, sync it manually",
		by.ID, by.Trigger.Commit.Short(), d.Trigger.Commit.Short())}, nil
}
