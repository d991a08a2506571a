package githost

import (
	"context"
	"encoding/json"

	"github.com/google/go-github/v60/github"

	"github.com/c785c783/piped/piped/deploy"
)

// DeploymentState is what GitHub shows of a deployment in an environment.
type DeploymentState string

// The states of a deployment. One that has succeeded makes those before it in its
// environment inactive.
const (
	DeploymentInProgress DeploymentState = "in_progress"
	DeploymentSuccess    DeploymentState = "success"
	DeploymentFailure    DeploymentState = "failure"
	DeploymentInactive   DeploymentState = "inactive"
)

// Deployed is a deployment as GitHub shows it.
type Deployed struct {
	ID          string // ours; there is one deployment of each at GitHub
	Commit      string // its full hash
	Environment string
	State       DeploymentState
	Description string // cut to what GitHub takes
	URL         string // of what was deployed, "" for none
}

// HasDeployments reports whether the host has deployments that can be set: GitHub.
func (a *API) HasDeployments() bool {
	_, ok := a.hosting.(gitHubAPI)
	return ok
}

// SetDeployment sets the state of a deployment, which is made if there is none of
// that ID yet. The kind is Invalid for a host that has none.
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
				EnvironmentURL: optional(d.URL), AutoInactive: github.Bool(true),
			})
			return err
		})
	})
}

// gitHubPayload is what a deployment at GitHub carries, by which it is found again.
type gitHubPayload struct {
	ID string `json:"pipedDeploymentID"`
}

// gitHubDeployment returns GitHub's ID of a deployment, which it makes if there is
// none: a deployment whose answer was lost is there, and is not made again.
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
	// Without a list of required contexts GitHub requires all, our own among them.
	made, _, err := c.Repositories.CreateDeployment(ctx, owner, name, &github.DeploymentRequest{
		Ref: &d.Commit, Environment: &d.Environment, Description: github.String(cut(d.Description, gitHubDescription)), Payload: gitHubPayload{d.ID},
		AutoMerge: github.Bool(false), RequiredContexts: &[]string{},
	})
	return made.GetID(), err
}
