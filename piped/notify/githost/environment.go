package githost

import (
	"cmp"
	"context"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/notify"
)

// labelEnv is the application label with the name of the environment.
const labelEnv = "env"

// environments reports deployments as GitHub deployments. Each application has its own
// environment, because a successful deployment makes the earlier ones of its
// environment inactive.
type environments struct{ Config }

// Name returns the name of the host and "deployments".
func (e environments) Name() string { return e.name("deployments") }

// Wants accepts the events of a deployment from its start on. A deployment that ends before it
// starts is not reported.
func (e environments) Wants(_ context.Context, n notify.Notice) bool {
	_, ours := e.location(n)
	if !ours || n.Deployment == nil {
		return false
	}
	ran := deploy.Status(n.Details.From).Phase() == deploy.PhaseRunning
	return oneOf(n, deploy.EventStarted) || ran && oneOf(n, deploy.EventRollingBack, deploy.EventSucceeded, deploy.EventFailed, deploy.EventCancelled)
}

// Order returns the application.
func (e environments) Order(n notify.Notice) string { return n.Event.ApplicationID }

// deploymentStates maps the status of a deployment to GitHub's state.
var deploymentStates = map[deploy.Status]githost.DeploymentState{
	deploy.Running: githost.DeploymentInProgress, deploy.RollingBack: githost.DeploymentInProgress,
	deploy.Success: githost.DeploymentSuccess, deploy.Failure: githost.DeploymentFailure, deploy.Cancelled: githost.DeploymentInactive,
}

// Deliver sets the current state of the deployment.
func (e environments) Deliver(ctx context.Context, n notify.Notice) error {
	d, err := e.current(ctx, n)
	if err != nil || d == nil {
		return err
	}
	label, err := e.label(ctx, d.ApplicationName, d.Git)
	if err != nil {
		return err
	}
	description := cmp.Or(causeFirst(d.StatusReason), d.Summary)
	if d.Status == deploy.Success {
		if description, err = e.rolloutTime(ctx, d.ID); err != nil {
			return err
		}
	}
	return e.API.SetDeployment(ctx, d.Git.Remote, githost.Deployed{
		ID: d.ID, Commit: d.Trigger.Commit.Hash, Environment: environment(d) + "/" + label,
		State: deploymentStates[d.Status], Description: description, URL: d.Metadata[deploy.MetaEnvironmentURL], LogURL: e.Page.Deployment(d.ID),
	})
}

// environment returns the environment of a deployment: the value of its label env, else its
// platform provider.
func environment(d *deploy.Deployment) string { return cmp.Or(d.Labels[labelEnv], d.Provider) }
