package githost

import (
	"context"
	"encoding/json"

	"github.com/google/go-github/v60/github"

	"github.com/c785c783/piped/piped/deploy"
)

// DeploymentState is GitHub's state of a deployment in an environment.
type DeploymentState string

// The states of a deployment. DeploymentSuccess makes the earlier deployments of the
// environment inactive.
const (
	DeploymentInProgress DeploymentState = "in_progress"
	DeploymentSuccess    DeploymentState = "success"
	DeploymentFailure    DeploymentState = "failure"
	DeploymentInactive   DeploymentState = "inactive"
)

// Deployed is a deployment as shown by GitHub.
type Deployed struct {
	ID          string // idempotency key: GitHub has one deployment per ID
	Commit      string // full hash
	Environment string
	State       DeploymentState
	Description string // truncated to GitHub's limit
	URL         string // of the deployed environment, "" for none
	LogURL      string // of the deployment's details, "" for none
}

// HasDeployments reports whether the host has deployments, as GitHub does.
func (a *API) HasDeployments() bool {
	_, ok := a.hosting.(gitHubAPI)
	return ok
}

// SetDeployment sets the state of a deployment, which it creates if necessary. The error
// is of kind Invalid for a host without deployments.
func (a *API) SetDeployment(ctx context.Context, remote string, d Deployed) error {
	return a.at(remote, "set the state of deployment "+d.ID, func(path string) error {
		h, ok := a.hosting.(gitHubAPI)
		if !ok {
			return deploy.Errorf(deploy.Invalid, "the host has no deployments")
		}
		return h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
			id, err := gitHubDeployment(ctx, c, owner, name, d)
			if err != nil {
				return err
			}
			_, _, err = c.Repositories.CreateDeploymentStatus(ctx, owner, name, id, &github.DeploymentStatusRequest{
				State: github.String(string(d.State)), Description: github.String(cut(d.Description, gitHubDescription)),
				EnvironmentURL: optional(d.URL), LogURL: optional(d.LogURL), AutoInactive: github.Bool(true),
			})
			return err
		})
	})
}

// EndEnvironment makes all deployments of this agent in an environment inactive. The error is of
// kind Invalid for a host without deployments.
func (a *API) EndEnvironment(ctx context.Context, remote, environment, description string) error {
	return a.at(remote, "end environment "+environment, func(path string) error {
		h, ok := a.hosting.(gitHubAPI)
		if !ok {
			return deploy.Errorf(deploy.Invalid, "the host has no deployments")
		}
		return h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
			query := &github.DeploymentsListOptions{Environment: environment, ListOptions: github.ListOptions{PerPage: perPage}}
			there, _, err := c.Repositories.ListDeployments(ctx, owner, name, query)
			for _, t := range there {
				var payload gitHubPayload
				if json.Unmarshal(t.Payload, &payload) != nil || payload.ID == "" {
					continue
				}
				if _, _, err := c.Repositories.CreateDeploymentStatus(ctx, owner, name, t.GetID(), &github.DeploymentStatusRequest{
					State: github.String(string(DeploymentInactive)), Description: github.String(cut(description, gitHubDescription)),
				}); err != nil {
					return err
				}
			}
			return err
		})
	})
}

// gitHubPayload is stored with a GitHub deployment to find it by ID.
type gitHubPayload struct {
	ID string `json:"pipedDeploymentID"`
}

// gitHubDeployment returns GitHub's ID of a deployment, which it creates if there is none.
// It searches first, so that a deployment whose response was lost is not created again.
func gitHubDeployment(ctx context.Context, c *github.Client, owner, name string, d Deployed) (int64, error) {
	query := &github.DeploymentsListOptions{SHA: d.Commit, Environment: d.Environment, ListOptions: github.ListOptions{PerPage: perPage}}
	there, _, err := c.Repositories.ListDeployments(ctx, owner, name, query)
	if err != nil {
		return 0, err
	}
	for _, t := range there {
		var payload gitHubPayload
		if json.Unmarshal(t.Payload, &payload) == nil && payload.ID == d.ID {
			return t.GetID(), nil
		}
	}
	// By default GitHub requires all commit statuses to succeed, including this agent's.
	made, _, err := c.Repositories.CreateDeployment(ctx, owner, name, &github.DeploymentRequest{
		Ref: &d.Commit, Environment: &d.Environment, Description: github.String(cut(d.Description, gitHubDescription)), Payload: gitHubPayload{d.ID},
		AutoMerge: github.Bool(false), RequiredContexts: &[]string{},
	})
	return made.GetID(), err
}
