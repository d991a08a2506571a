package planner

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
)

// metaOvertakenBy is the key of Deployment.Metadata that holds the ID of the last
// deployment that went before a held one although it was triggered after it.
const metaOvertakenBy = "OvertakenBy"

// overtake notes with the held deployments that a later one goes before them, if
// that is what becomes of it.
func (p *Planner) overtake(ctx context.Context, held []deploy.Deployment, by deploy.Deployment, v verdict) error {
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
			d.Metadata[metaOvertakenBy] = by.ID
			return nil
		})
		if err != nil && !deploy.IsKind(err, deploy.Conflict) {
			return err
		}
	}
	return nil
}

// outdated ends a deployment that was overtaken by one of another commit that has
// succeeded: to deploy it now would undo that one. The zero verdict leaves it.
func (p *Planner) outdated(ctx context.Context, d deploy.Deployment) (verdict, error) {
	id := d.Metadata[metaOvertakenBy]
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
	return verdict{status: deploy.Cancelled, reason: fmt.Sprintf(
		"Overtaken while it was held: deployment %s of commit %s has succeeded, and this one would undo it; to deploy commit %s all the same, sync by hand",
		by.ID, by.Trigger.Commit.Short(), d.Trigger.Commit.Short())}, nil
}
