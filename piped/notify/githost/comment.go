package githost

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/store"
)

// comments maintains one comment in each pull request: the plan preview while the pull request
// is open, and the deployment state of its commit once it is merged.
type comments struct{ Config }

// Name returns the name of the host and "comments".
func (c comments) Name() string { return c.name("comments") }

// Wants accepts plan previews, and the start and end of deployments that a commit triggered.
// Deployments by self-healing and takeovers deploy no new commit and are not reported.
func (c comments) Wants(_ context.Context, n notify.Notice) bool {
	if n.Event.Type == deploy.EventPlanPreviewed {
		remote := c.Remote(previewed(n).Request.RepoID)
		return remote != "" && c.API.Serves(remote)
	}
	_, ours := c.location(n)
	d := n.Deployment
	return ours && d != nil && d.Trigger.Kind != deploy.OnOutOfSync && !d.Trigger.TakeOver &&
		oneOf(n, deploy.EventTriggered, deploy.EventSucceeded, deploy.EventFailed, deploy.EventCancelled)
}

// previewed returns the payload of a plan preview event.
func previewed(n notify.Notice) (p deploy.PlanPreviewed) {
	if json.Unmarshal(n.Event.Payload, &p) != nil {
		return deploy.PlanPreviewed{}
	}
	return p
}

// Order returns the repository ID, so that the comments of one repository are written one
// after another. Only the host knows which pull request a commit belongs to, and two
// concurrent deliveries would each create a comment in it.
func (c comments) Order(n notify.Notice) string {
	if n.Event.Type == deploy.EventPlanPreviewed {
		return previewed(n).Request.RepoID
	}
	at, _ := c.location(n)
	return at.RepoID
}

// Deliver writes the comment for n, if any.
func (c comments) Deliver(ctx context.Context, n notify.Notice) error {
	if n.Event.Type == deploy.EventPlanPreviewed {
		return c.preview(ctx, previewed(n))
	}
	d, err := c.Store.Deployment(ctx, n.Event.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil
	}
	if err != nil || d.Status.Completed() && n.Event.Type == deploy.EventTriggered { // the end of the deployment is reported by its own event
		return err
	}
	return c.live(ctx, &d, n.Attempt >= maxWaits)
}

// preview writes the plan preview into an open pull request. It does nothing if the pull
// request has a newer head, because another preview is built for that.
func (c comments) preview(ctx context.Context, p deploy.PlanPreviewed) error {
	remote := c.Remote(p.Request.RepoID)
	if remote == "" {
		return nil // no longer configured
	}
	now, err := c.API.PullRequest(ctx, remote, p.Request.PullRequest)
	if err != nil || !now.Open || now.Head != p.Request.HeadCommit {
		return err
	}
	found, err := c.Store.PlanPreview(ctx, p.CommandID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil // deleted, hence outdated
	}
	if err != nil {
		return err
	}
	return c.API.UpsertComment(ctx, remote, p.Request.PullRequest, c.marker(), previewText(c.marker(), c.Page.PlanPreview(p.CommandID), p.Request, found))
}

// live comments the merged pull requests of d's commit with the result of all deployments of
// the commit, once all have ended and no more are expected. When one of them is deployed
// again, it updates the comment. If final is set, it does not wait for applications without a
// deployment but lists them.
func (c comments) live(ctx context.Context, d *deploy.Deployment, final bool) error {
	if early, err := c.early(ctx, d); err != nil || early {
		return err
	}
	of, ended, err := c.deploymentsOf(ctx, d)
	if err != nil || len(of) == 0 || !ended && (d.Status.Completed() || !mayHaveComment(of, d)) {
		return err
	}
	without, err := c.missing(ctx, d, of)
	if err != nil {
		return err
	}
	if n := awaited(without); n > 0 && ended && !final {
		return deploy.Errorf(deploy.Unavailable, "the trigger has not decided yet whether commit %s deploys %d more applications; the comment follows its decision",
			d.Trigger.Commit.Short(), n)
	}
	merged, err := c.API.MergedBy(ctx, d.Git.Remote, d.Git.Branch, d.Trigger.Commit.Hash)
	if err != nil || len(merged) == 0 {
		return err
	}
	for _, p := range merged {
		at := deploy.CommitRef{RepoID: d.Git.RepoID, Hash: d.Trigger.Commit.Hash}
		if err := c.Store.SavePullRequestCommit(ctx, deploy.PullRequestCommit{CommitRef: at, Number: p.Number, Link: deploy.LinkMerged}); err != nil {
			return err
		}
	}
	text, err := c.liveText(ctx, d.Trigger.Commit, newest(of), without)
	if err != nil {
		return err
	}
	write := c.API.EditComment
	if ended {
		write = c.API.UpsertComment
	}
	var errs []error
	for _, p := range merged {
		errs = append(errs, write(ctx, d.Git.Remote, p.Number, c.marker(), text))
	}
	return errors.Join(errs...)
}

// early reports whether there is nothing to write for this event. At the end of d that is the
// case if another deployment of the commit is open or ended later: the event of that one
// reports the result, so that a commit of many applications needs only one comment. At the
// start of d it is the case if no deployment of the commit has ended, since there is no
// comment yet.
func (c comments) early(ctx context.Context, d *deploy.Deployment) (bool, error) {
	ended, err := c.lastOf(ctx, d, deploy.Success, deploy.Failure, deploy.Cancelled)
	if err != nil || !d.Status.Completed() {
		return ended == nil, err
	}
	if ended != nil && sameCommit(ended, d) && ended.CompletedAt.After(d.CompletedAt) {
		return true, nil
	}
	open, err := c.lastOf(ctx, d, deploy.Pending, deploy.Planned, deploy.Running, deploy.RollingBack)
	return open != nil && sameCommit(open, d), err
}

// lastOf returns the deployment of d's commit that was the last to enter one of statuses, or
// nil.
func (c comments) lastOf(ctx context.Context, d *deploy.Deployment, statuses ...deploy.Status) (*deploy.Deployment, error) {
	found, _, err := c.Store.ListDeployments(ctx, store.DeploymentQuery{Commits: []string{d.Trigger.Commit.Hash}, Statuses: statuses, Limit: 1})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// sameCommit reports whether f deploys the same commit into applications of the same
// repository as d, and is neither self-healing nor a takeover.
func sameCommit(f, d *deploy.Deployment) bool {
	return f.Git.RepoID == d.Git.RepoID && f.Trigger.Kind != deploy.OnOutOfSync && !f.Trigger.TakeOver
}

// deploymentsOf returns all deployments of d's commit and repository, and whether the
// newest of each application has ended.
func (c comments) deploymentsOf(ctx context.Context, d *deploy.Deployment) (of []deploy.Deployment, ended bool, err error) {
	found, _, err := c.Store.ListDeployments(ctx, store.DeploymentQuery{Commits: []string{d.Trigger.Commit.Hash}})
	for _, f := range found {
		if sameCommit(&f, d) {
			of = append(of, f)
		}
	}
	ended = true
	for _, f := range newest(of) {
		ended = ended && f.Status.Completed()
	}
	return of, ended, err
}

// mayHaveComment reports whether the comment may exist already: a deployment of the
// commit had ended before d was created.
func mayHaveComment(of []deploy.Deployment, d *deploy.Deployment) bool {
	for _, f := range of {
		if f.Status.Completed() && !f.CompletedAt.After(d.CreatedAt) {
			return true
		}
	}
	return false
}

// marker returns the invisible text that identifies this agent's comments.
func (c Config) marker() string {
	return "<!-- piped " + strings.ReplaceAll(c.Agent, "--", "- -") + " -->"
}
