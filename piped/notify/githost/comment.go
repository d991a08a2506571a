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

// comments keeps one comment in each pull request: what it would deploy, and once it
// is merged where it is live.
type comments struct{ Config }

// Name returns the name of the host and "comments".
func (c comments) Name() string { return c.name("comments") }

// Wants takes the beginnings and ends of deployments that a commit led to, and
// previews of pull requests. Undoing drift and taking over what runs bring nothing new.
func (c comments) Wants(_ context.Context, n notify.Notice) bool {
	if n.Event.Type == deploy.EventPlanPreviewed {
		remote := c.Remote(previewed(n).Request.RepoID)
		return remote != "" && c.API.Serves(remote)
	}
	_, ours := c.about(n)
	d := n.Deployment
	return ours && d != nil && d.Trigger.Kind != deploy.OnOutOfSync && !d.Trigger.TakeOver &&
		oneOf(n, deploy.EventTriggered, deploy.EventSucceeded, deploy.EventFailed, deploy.EventCancelled)
}

func previewed(n notify.Notice) (p deploy.PlanPreviewed) {
	if json.Unmarshal(n.Event.Payload, &p) != nil {
		return deploy.PlanPreviewed{}
	}
	return p
}

// Order keeps what is told of one repository in its order: only the host knows which
// pull request brought a commit, and two that look for its comment at once would make
// two.
func (c comments) Order(n notify.Notice) string {
	if n.Event.Type == deploy.EventPlanPreviewed {
		return previewed(n).Request.RepoID
	}
	at, _ := c.about(n)
	return at.RepoID
}

// Deliver writes the comment that is due.
func (c comments) Deliver(ctx context.Context, n notify.Notice) error {
	if n.Event.Type == deploy.EventPlanPreviewed {
		return c.preview(ctx, previewed(n))
	}
	d, err := c.Store.Deployment(ctx, n.Event.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil
	}
	if err != nil || d.Status.Completed() && n.Event.Type == deploy.EventTriggered { // its end is told, too
		return err
	}
	return c.live(ctx, &d, n.Attempt >= lastAsked)
}

// preview tells an open pull request what it would deploy, unless it has a newer head
// by now, which is previewed, too.
func (c comments) preview(ctx context.Context, p deploy.PlanPreviewed) error {
	remote := c.Remote(p.Request.RepoID)
	if remote == "" {
		return nil // not watched any more
	}
	now, err := c.API.PullRequest(ctx, remote, p.Request.PullRequest)
	if err != nil || !now.Open || now.Head != p.Request.HeadCommit {
		return err
	}
	found, err := c.Store.PlanPreview(ctx, p.CommandID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil // too old to be of use
	}
	if err != nil {
		return err
	}
	return c.API.UpsertComment(ctx, remote, p.Request.PullRequest, c.marker(), previewText(c.marker(), p.Request, found))
}

// live tells the pull requests that brought a commit how its deployments ended, once
// all have and nothing more is to come. When one of them begins anew the comment says
// so. With final nothing is waited for that has no deployment yet: it is named.
func (c comments) live(ctx context.Context, d *deploy.Deployment, final bool) error {
	if early, err := c.early(ctx, d); err != nil || early {
		return err
	}
	of, ended, err := c.deploymentsOf(ctx, d)
	if err != nil || len(of) == 0 || !ended && (d.Status.Completed() || !told(of, d)) {
		return err
	}
	without, err := c.missing(ctx, d, of)
	if err != nil {
		return err
	}
	if n := awaited(without); n > 0 && ended && !final {
		return deploy.Errorf(deploy.Unavailable, "it is not decided yet whether commit %s deploys %d more applications: the comment is written once it is",
			d.Trigger.Commit.Short(), n)
	}
	merged, err := c.API.MergedBy(ctx, d.Git.Remote, d.Git.Branch, d.Trigger.Commit.Hash)
	if err != nil || len(merged) == 0 {
		return err
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

// early reports whether there is nothing to be said of d's commit before another of its
// deployments ends, whose event tells it then: so that a commit of many applications
// costs one comment, and a list of them only then.
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

// lastOf returns the deployment of d's commit that entered one of these statuses last;
// nil if there is none.
func (c comments) lastOf(ctx context.Context, d *deploy.Deployment, statuses ...deploy.Status) (*deploy.Deployment, error) {
	found, _, err := c.Store.ListDeployments(ctx, store.DeploymentQuery{Commit: d.Trigger.Commit.Hash, Statuses: statuses, Limit: 1})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// sameCommit reports whether f brings the commit of d, in the same repository.
func sameCommit(f, d *deploy.Deployment) bool {
	return f.Git.RepoID == d.Git.RepoID && f.Trigger.Kind != deploy.OnOutOfSync && !f.Trigger.TakeOver
}

// deploymentsOf returns all deployments of the repository's commit that d deploys, and
// whether each application's newest has ended.
func (c comments) deploymentsOf(ctx context.Context, d *deploy.Deployment) (of []deploy.Deployment, ended bool, err error) {
	found, _, err := c.Store.ListDeployments(ctx, store.DeploymentQuery{Commit: d.Trigger.Commit.Hash})
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

// told reports whether the comment may be there already: a deployment of the commit
// had ended before d was made.
func told(of []deploy.Deployment, d *deploy.Deployment) bool {
	for _, f := range of {
		if f.Status.Completed() && !f.CompletedAt.After(d.CreatedAt) {
			return true
		}
	}
	return false
}

// marker is what the agent's comments are found by. It is not shown.
func (c Config) marker() string {
	return "<!-- piped " + strings.ReplaceAll(c.Agent, "--", "- -") + " -->"
}
