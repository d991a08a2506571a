package githost

import (
	"cmp"
	"context"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/notify"
)

// labelEnv is the label by which applications name their environment.
const labelEnv = "env"

// environments sets the states of GitHub's deployments. There is an environment for
// each application, so that one that has succeeded makes only that application's
// earlier ones inactive.
type environments struct{ Config }

// Name returns the name of the host and "deployments".
func (e environments) Name() string { return e.name("deployments") }

// Wants takes what moves a deployment from its start on. One that ends before it
// starts is none for GitHub.
func (e environments) Wants(_ context.Context, n notify.Notice) bool {
	_, ours := e.about(n)
	if !ours || n.Deployment == nil {
		return false
	}
	ran := deploy.Status(n.Details.From).Phase() == deploy.PhaseRunning
	return oneOf(n, deploy.EventStarted) || ran && oneOf(n, deploy.EventRollingBack, deploy.EventSucceeded, deploy.EventFailed, deploy.EventCancelled)
}

// Order keeps what is told of one application in its order.
func (e environments) Order(n notify.Notice) string { return n.Event.ApplicationID }

// deploymentStates are GitHub's by those of a deployment.
var deploymentStates = map[deploy.Status]githost.DeploymentState{
	deploy.Running: githost.DeploymentInProgress, deploy.RollingBack: githost.DeploymentInProgress,
	deploy.Success: githost.DeploymentSuccess, deploy.Failure: githost.DeploymentFailure, deploy.Cancelled: githost.DeploymentInactive,
}

// Deliver sets the state that the deployment has by now.
func (e environments) Deliver(ctx context.Context, n notify.Notice) error {
	d, err := e.now(ctx, n)
	if err != nil || d == nil {
		return err
	}
	label, err := e.label(ctx, d.ApplicationName, d.Git)
	if err != nil {
		return err
	}
	said := cmp.Or(causeFirst(d.StatusReason), d.Summary)
	if d.Status == deploy.Success {
		if said, err = e.took(ctx, d.ID); err != nil {
			return err
		}
	}
	return e.API.SetDeployment(ctx, d.Git.Remote, githost.Deployed{
		ID: d.ID, Commit: d.Trigger.Commit.Hash, Environment: environment(d) + "/" + label,
		State: deploymentStates[d.Status], Description: said, URL: d.Metadata[deploy.MetaEnvironmentURL],
	})
}

// environment names where a deployment goes: by the application's label, or by the
// platform provider.
func environment(d *deploy.Deployment) string { return cmp.Or(d.Labels[labelEnv], d.Provider) }
