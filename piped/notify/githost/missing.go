package githost

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// lastAsked is the attempt with which nothing is waited for any more that a commit may
// deploy: so that an application that waits for long, as for a cluster that does not
// answer, holds the comments of its repository back for some seconds only.
const lastAsked = 5

// missing is an application of a commit that has no deployment of it.
type missing struct {
	name    string
	at      deploy.GitPath
	state   string // why
	awaited bool   // it may have one soon
}

func awaited(without []missing) (n int) {
	for _, m := range without {
		if m.awaited {
			n++
		}
	}
	return n
}

// missing returns what of d's commit has no deployment and keeps it from being live as
// a whole, ordered by name: the repository's applications whose configuration cannot
// be used at the commit, those that the trigger has not decided about, and those of
// deployment chains that the commit began. What chains deploy in other repositories or
// from other commits is not the commit's. Of are the deployments of the commit.
//
// One that cannot be used since an earlier commit counts, too: nobody knows what the
// commit brings it. One that was mended since, and said the same before the commit, is
// not found.
func (c comments) missing(ctx context.Context, d *deploy.Deployment, of []deploy.Deployment) ([]missing, error) {
	apps, _, err := c.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: d.Git.RepoID})
	if err != nil {
		return nil, err
	}
	out, err := c.chained(ctx, apps, of)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, f := range of {
		has[f.ApplicationID] = true
	}
	deciding := current(d.Trigger.Commit.Hash, apps, has)
	apps = slices.DeleteFunc(apps, func(a deploy.Application) bool { // those without
		return has[a.ID] || slices.ContainsFunc(out, func(m missing) bool { return m.at == a.Git })
	})
	failed, err := c.failedAt(ctx, d.Trigger.Commit.Hash, apps)
	if err != nil {
		return nil, err
	}
	began := slices.MinFunc(of, func(a, b deploy.Deployment) int { return a.CreatedAt.Compare(b.CreatedAt) }).CreatedAt
	for _, a := range apps {
		reason, told := failed[a.ID]
		invalid := a.Sync.Status == deploy.SyncInvalidConfig
		switch {
		case told:
			out = append(out, missing{name: a.Name, at: a.Git, state: refused(reason)})
		case a.EvaluatedCommit == d.Trigger.Commit.Hash: // nothing of it has changed
		case invalid && (deciding || !a.Sync.At.After(began)):
			out = append(out, missing{name: a.Name, at: a.Git, state: refused(a.Sync.Reason)})
		case deciding:
			out = append(out, missing{name: a.Name, at: a.Git, state: "not decided yet", awaited: true})
		}
	}
	slices.SortFunc(out, func(a, b missing) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.at.ConfigPath(), b.at.ConfigPath()))
	})
	return out, nil
}

func refused(reason string) string { return "not deployed: " + code(reason) }

// failedAt returns why the configurations of applications cannot be used at a commit,
// as was told of it.
func (c comments) failedAt(ctx context.Context, commit string, apps []deploy.Application) (map[string]string, error) {
	var keys []string
	for _, a := range apps {
		keys = append(keys, deploy.TriggerFailedKey(a.ID, commit))
	}
	events, err := c.Store.EventsByKey(ctx, keys...)
	out := map[string]string{}
	for _, e := range events {
		out[e.ApplicationID] = e.Details().Reason
	}
	return out, err
}

// current reports whether the trigger may still be deciding what a commit deploys:
// whether none of the applications that it has deployed was decided about at another
// one, for a trigger is done with one head before it goes on to the next.
func current(commit string, apps []deploy.Application, has map[string]bool) bool {
	found := false
	for _, a := range apps {
		if has[a.ID] && a.EvaluatedCommit != commit {
			return false
		}
		found = found || has[a.ID]
	}
	return found
}

// chained returns those of the applications for which a chain of the deployments has
// asked and that have no deployment by it: not yet, or because it was refused.
func (c comments) chained(ctx context.Context, apps []deploy.Application, of []deploy.Deployment) ([]missing, error) {
	byID := map[string]deploy.Application{}
	for _, a := range apps {
		byID[a.ID] = a
	}
	var out []missing
	read := map[string]bool{"": true}
	for _, d := range newest(of) {
		if read[d.ChainID] {
			continue
		}
		read[d.ChainID] = true
		chain, err := c.Store.Chain(ctx, d.ChainID)
		if deploy.IsKind(err, deploy.NotFound) {
			continue // not kept any more
		}
		if err != nil {
			return nil, err
		}
		for _, b := range chain.Blocks {
			for _, n := range b.Nodes {
				a, ours := byID[n.ApplicationID]
				switch {
				case !ours || n.DeploymentID != "":
				case n.Status == deploy.Pending:
					out = append(out, missing{name: a.Name, at: a.Git, state: "waits for its block of the deployment chain", awaited: true})
				default:
					out = append(out, missing{name: a.Name, at: a.Git, state: refused(n.Reason)})
				}
			}
		}
	}
	return out, nil
}
