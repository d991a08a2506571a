package githost

import (
	"cmp"
	"context"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/notify"
)

// statuses sets commit statuses.
type statuses struct{ Config }

// Name returns the name of the host and "statuses".
func (s statuses) Name() string { return s.name("statuses") }

// Wants accepts status changes of deployments, approvals, and invalid configurations.
func (s statuses) Wants(_ context.Context, n notify.Notice) bool {
	_, ours := s.location(n)
	return ours && hashOf(n) != "" && oneOf(n, deploy.EventTriggered, deploy.EventPlanned, deploy.EventStarted, deploy.EventRollingBack,
		deploy.EventSucceeded, deploy.EventFailed, deploy.EventCancelled, deploy.EventWaitApproval, deploy.EventApproved, deploy.EventTriggerFailed)
}

// Order returns the application and the commit.
func (s statuses) Order(n notify.Notice) string { return n.Event.ApplicationID + "/" + hashOf(n) }

// hashOf returns the hash of the commit that n concerns, or "".
func hashOf(n notify.Notice) string {
	if c := n.Commit(); c != nil {
		return c.Hash
	}
	return ""
}

// Deliver sets the application's current status on the commit.
func (s statuses) Deliver(ctx context.Context, n notify.Notice) error {
	at, _ := s.location(n)
	status := githost.Status{State: githost.StateFailure, Description: n.Details.Reason, TargetURL: s.Page.Subject(n)} // of an invalid configuration
	if n.Event.Type != deploy.EventTriggerFailed {
		d, err := s.current(ctx, n)
		if err == nil && d != nil {
			status, err = s.statusOf(ctx, d)
		}
		if err != nil || d == nil {
			return err
		}
	}
	label, err := s.label(ctx, n.ApplicationName(), at)
	if err != nil {
		return err
	}
	status.Context = s.Host.ContextPrefix + "/" + label
	return s.API.SetStatus(ctx, at.Remote, hashOf(n), status)
}

// states maps the status of a deployment to a commit state. A cancelled deployment, for
// example one superseded by a newer commit, has neither succeeded nor failed.
var states = map[deploy.Status]githost.State{
	deploy.Pending: githost.StatePending, deploy.Planned: githost.StatePending,
	deploy.Running: githost.StateRunning, deploy.RollingBack: githost.StateRunning,
	deploy.Success: githost.StateSuccess, deploy.Failure: githost.StateFailure, deploy.Cancelled: githost.StateCancelled,
}

// statusOf returns the status for d. It links to the page, a success to the application's
// environment if that is configured.
func (s statuses) statusOf(ctx context.Context, d *deploy.Deployment) (githost.Status, error) {
	out := githost.Status{State: states[d.Status], TargetURL: s.Page.Deployment(d.ID)}
	switch d.Status {
	case deploy.Pending:
		out.Description = cmp.Or(d.StatusReason, "waiting to be planned")
	case deploy.Planned:
		out.Description = "planned: " + cmp.Or(d.Summary, d.StatusReason)
	case deploy.Running:
		out.Description = progress(d)
	case deploy.RollingBack:
		out.Description = "rolling back: " + causeFirst(d.StatusReason)
	case deploy.Success:
		seconds, err := s.rolloutTime(ctx, d.ID)
		if err != nil {
			return out, err
		}
		out.Description, out.TargetURL = "live: "+seconds, cmp.Or(d.Metadata[deploy.MetaEnvironmentURL], out.TargetURL)
	default:
		out.Description = causeFirst(d.StatusReason)
	}
	return out, nil
}

// progress describes the current step of a running deployment: the approval for which it
// waits, else "rolling out: " and the summary of its plan.
func progress(d *deploy.Deployment) string {
	for _, s := range d.Stages {
		if s.Name == deploy.StageWaitApproval && s.Status == deploy.StageRunning {
			return "waiting for approval: " + cmp.Or(s.Desc, "stage "+s.ID)
		}
	}
	return "rolling out: " + d.Summary
}
