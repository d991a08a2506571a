package approval

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// party is someone who requested a deployment or committed what it deploys.
type party struct {
	role  string   // completes the sentence that begins with a name, such as "has requested this deployment"
	names []string // what the subject may be: subject, name, e-mail address
}

// roleOf returns the role of the first party that the subject is, "" if it is none.
func roleOf(subject string, parties []party) string {
	for _, p := range parties {
		if slices.ContainsFunc(p.names, func(name string) bool { return strings.EqualFold(strings.TrimSpace(name), subject) }) {
			return p.role
		}
	}
	return ""
}

// excluded returns the parties whose approvals do not count. It reads them before the first
// approval, and returns none for a stage without requireOther and for rejections.
func (w *waiting) excluded(ctx context.Context, c deploy.Command) ([]party, error) {
	if !w.options.RequireOther || c.Type != deploy.CommandApproveStage || w.partiesRead {
		return w.parties, nil
	}
	parties, err := w.readParties(ctx)
	if err != nil {
		err = fmt.Errorf("find out who requested and committed what deployment %s deploys: %w", w.run.Deployment.ID, err)
		if !w.reported && ctx.Err() == nil {
			w.run.Log.Errorf("Approvals cannot be counted yet; trying again: %v", err)
			w.reported = true
		}
		return nil, err
	}
	w.parties, w.partiesRead = parties, true
	return parties, nil
}

// readParties returns everyone who requested the deployment or committed what it deploys.
func (w *waiting) readParties(ctx context.Context) ([]party, error) {
	d := w.run.Deployment
	requester, err := w.requester(ctx)
	if err != nil {
		return nil, err
	}
	commits, err := w.commits(ctx)
	if err != nil {
		return nil, err
	}
	parties := []party{{role: "has requested this deployment", names: nonEmpty(requester)}}
	for _, c := range append([]deploy.Commit{d.Trigger.Commit}, commits...) {
		parties = append(parties,
			party{role: "is the author of commit " + c.Short(), names: namesOf(c.Author, c.AuthorEmail)},
			party{role: "is the committer of commit " + c.Short(), names: namesOf(c.Committer, c.CommitterEmail)})
	}
	return parties, nil
}

// requester returns the subject that requested the deployment, or the first one of its chain;
// "" if Git or drift caused it.
func (w *waiting) requester(ctx context.Context) (string, error) {
	d := w.run.Deployment
	if d.Trigger.Kind != deploy.OnChain {
		return d.Trigger.Commander, nil
	}
	chain, err := w.Store.Chain(ctx, d.ChainID)
	if err != nil || len(chain.Blocks) == 0 || len(chain.Blocks[0].Nodes) == 0 {
		return "", ignoreMissing(err)
	}
	first, err := w.Store.Deployment(ctx, chain.Blocks[0].Nodes[0].DeploymentID)
	return first.Trigger.Commander, ignoreMissing(err)
}

// commits returns the commits since the running one that changed the application's directory. It
// returns none if the running commit is no longer in the repository.
func (w *waiting) commits(ctx context.Context) ([]deploy.Commit, error) {
	d := w.run.Deployment
	if d.RunningCommit == "" || d.RunningCommit == d.Trigger.Commit.Hash {
		return nil, nil
	}
	dirs := []string{d.Git.Dir}
	if d.RunningDir != "" && d.RunningDir != d.Git.Dir {
		dirs = append(dirs, d.RunningDir)
	}
	commits, err := w.Commits.ChangedBy(ctx, d.Git.RepoID, d.RunningCommit, d.Trigger.Commit.Hash, dirs...)
	if deploy.IsKind(err, deploy.NotFound) {
		w.run.Log.Infof("Of the commits, requireOther considers only %s: %v", d.Trigger.Commit.Short(), err)
	}
	return commits, ignoreMissing(err)
}

// ignoreMissing returns err, or nil if it says that something does not exist any more.
func ignoreMissing(err error) error {
	if deploy.IsKind(err, deploy.NotFound) {
		return nil
	}
	return err
}

// namesOf returns the subjects that the author or committer of a commit can have: the name, the
// e-mail address, and the login in an address with which a Git host hides the real one, such as
// 12345+ann@users.noreply.github.com (GitHub) or 12345-ann@users.noreply.gitlab.com (GitLab).
func namesOf(name, email string) []string {
	local, domain, _ := strings.Cut(email, "@")
	if !strings.HasPrefix(strings.ToLower(domain), "users.noreply.") {
		return nonEmpty(name, email)
	}
	login := strings.TrimLeft(local, "0123456789")
	if login == local || login == "" || login[0] != '+' && login[0] != '-' {
		return nonEmpty(name, email, local)
	}
	return nonEmpty(name, email, local, login[1:])
}

func nonEmpty(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return strings.TrimSpace(name) == "" })
}
