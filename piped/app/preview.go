package app

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/planner"
	"github.com/c785c783/piped/trigger"
)

// previews tells what a sync would do. It is the control API's Planner.
type previews struct {
	planner      *planner.Planner
	repositories *repositories
}

// Preview implements control.Planner.
func (p previews) Preview(ctx context.Context, app deploy.Application, hash string, strategy deploy.Strategy, subject string) (deploy.Deployment, string, error) {
	commit, err := p.commit(ctx, app.Git.RepoID, hash)
	if err != nil {
		return deploy.Deployment{}, "", err
	}
	return p.planner.Preview(ctx, deploy.Deployment{
		ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Labels: app.Labels, Status: deploy.Pending,
		Trigger: trigger.ByHand(commit, strategy, subject),
	})
}

// commit returns a commit of a repository, "" for the head that was last seen.
func (p previews) commit(ctx context.Context, repoID, hash string) (deploy.Commit, error) {
	mirror, err := p.repositories.mirror(repoID)
	if err != nil {
		return deploy.Commit{}, err
	}
	if hash != "" {
		return mirror.Commit(ctx, hash)
	}
	head, ok := mirror.Head()
	if !ok {
		return head, deploy.Errorf(deploy.Unavailable, "repository %q has not been read yet: try again", repoID)
	}
	return head, nil
}
