package githost

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// maxWaits is the number of attempts after which a comment is written although the trigger has
// not decided yet. It limits how long one application, for example one whose cluster is
// unreachable, delays the comments of its repository.
const maxWaits = 5

// missing is an application that has no deployment of a commit.
type missing struct {
	app     deploy.Application
	state   string // the reason
	awaited bool   // a deployment may follow
}

// awaited returns the number of applications for which a deployment may follow.
func awaited(without []missing) (n int) {
	for _, m := range without {
		if m.awaited {
			n++
		}
	}
	return n
}

// missing returns the applications that should have a deployment of d's commit but have none,
// sorted by name: those of the repository whose configuration is invalid at the commit, those
// that the trigger has not evaluated, and those in deployment chains that the commit started.
// Applications that a chain deploys from other repositories or commits are excluded. of
// contains the deployments of the commit.
//
// It includes an application whose configuration was already invalid before the commit,
// because the effect of the commit on it is unknown. It does not find one that was fixed since
// and had the same error before the commit.
func (c comments) missing(ctx context.Context, d *deploy.Deployment, of []deploy.Deployment) ([]missing, error) {
	apps, _, err := c.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: d.Git.RepoID})
	if err != nil {
		return nil, err
	}
	apps = slices.DeleteFunc(apps, deploy.Application.IsPreview)
	out, err := c.chained(ctx, apps, of)
	if err != nil {
		return nil, err
	}
	has := map[string]bool{}
	for _, f := range of {
		has[f.ApplicationID] = true
	}
	deciding := mayBeDeciding(d.Trigger.Commit.Hash, apps, has)
	apps = slices.DeleteFunc(apps, func(a deploy.Application) bool { // keep those without a deployment
		return has[a.ID] || slices.ContainsFunc(out, func(m missing) bool { return m.app.ID == a.ID })
	})
	failed, err := c.failedAt(ctx, d.Trigger.Commit.Hash, apps)
	if err != nil {
		return nil, err
	}
	began := slices.MinFunc(of, func(a, b deploy.Deployment) int { return a.CreatedAt.Compare(b.CreatedAt) }).CreatedAt
	for _, a := range apps {
		reason, announced := failed[a.ID]
		invalid := a.Sync.Status == deploy.SyncInvalidConfig
		switch {
		case announced:
			out = append(out, missing{app: a, state: refused(reason)})
		case a.EvaluatedCommit == d.Trigger.Commit.Hash: // the commit does not change it
		case invalid && (deciding || !a.Sync.At.After(began)):
			out = append(out, missing{app: a, state: refused(a.Sync.Reason)})
		case deciding:
			out = append(out, missing{app: a, state: "not decided yet", awaited: true})
		}
	}
	slices.SortFunc(out, func(a, b missing) int {
		return cmp.Or(strings.Compare(a.app.Name, b.app.Name), strings.Compare(a.app.Git.ConfigPath(), b.app.Git.ConfigPath()))
	})
	return out, nil
}

func refused(reason string) string { return "not deployed: " + code(reason) }

// failedAt returns, by application, why its configuration is invalid at commit, from the
// stored events.
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

// mayBeDeciding reports whether the trigger may still be evaluating commit: no application
// with a deployment of it was evaluated at another commit. The trigger finishes one head
// before it starts the next.
func mayBeDeciding(commit string, apps []deploy.Application, has map[string]bool) bool {
	found := false
	for _, a := range apps {
		if has[a.ID] && a.EvaluatedCommit != commit {
			return false
		}
		found = found || has[a.ID]
	}
	return found
}

// chained returns the applications of the deployments' chains for which the chain has created
// no deployment, because the deployment is still to come or was rejected.
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
			continue // deleted
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
					out = append(out, missing{app: a, state: "waits for its block of the deployment chain", awaited: true})
				default:
					out = append(out, missing{app: a, state: refused(n.Reason)})
				}
			}
		}
	}
	return out, nil
}
