package githost

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/store"
)

// Store is the part of *store.Store that the receivers use.
type Store interface {
	Deployment(ctx context.Context, id string) (deploy.Deployment, error)
	ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error)
	ListDeployments(ctx context.Context, q store.DeploymentQuery) ([]deploy.Deployment, string, error)
	Rollouts(ctx context.Context, q store.RolloutQuery) ([]deploy.Rollout, error)
	// SavePullRequestCommit records which pull request brought a commit.
	SavePullRequestCommit(ctx context.Context, c deploy.PullRequestCommit) error
	EventsByKey(ctx context.Context, keys ...string) ([]deploy.Event, error)
	Chain(ctx context.Context, id string) (deploy.Chain, error)
	PlanPreview(ctx context.Context, commandID string) (deploy.PlanPreview, error)
}

// Config holds the host, its API client and the common values of all receivers.
type Config struct {
	Host  config.GitHost
	API   *githost.API
	Store Store
	// Remote returns the fetch URL of a configured repository, "" for any other. It
	// must be safe for concurrent use.
	Remote func(repoID string) string
	// Page has the addresses that reports link to.
	Page notify.Page
	// Agent identifies the comments of this agent among those of others, for
	// example by project and piped ID.
	Agent string
}

// Receivers returns the receivers that the host's configuration enables. They are separate, so
// that a missing permission of the token blocks only one kind of report.
func Receivers(c Config) []notify.Receiver {
	var out []notify.Receiver
	if c.Host.CommitStatus {
		out = append(out, statuses{c})
	}
	if c.Host.Deployments {
		out = append(out, environments{c})
	}
	if c.Host.Comments {
		out = append(out, comments{c})
	}
	if c.Host.Workloads != nil {
		out = append(out, workloads{c})
	}
	return out
}

// name returns the name of a receiver of the host.
func (c Config) name(what string) string { return c.Host.Host + " " + what }

// location returns the Git path of the application that n concerns, and whether its
// repository is on this host. Previews of pull requests do not count: their commits exist only in
// the agent's mirror.
func (c Config) location(n notify.Notice) (deploy.GitPath, bool) {
	var at deploy.GitPath
	switch {
	case n.Deployment != nil:
		at = n.Deployment.Git
	case n.Application != nil:
		at = n.Application.Git
	}
	return at, at.Remote != "" && at.PullRequest == 0 && c.API.Serves(at.Remote)
}

// label returns the display name of an application: its name, followed by its directory
// or configuration file if another application of the repository has the same name.
func (c Config) label(ctx context.Context, name string, at deploy.GitPath) (string, error) {
	same, _, err := c.Store.ListApplications(ctx, store.ApplicationQuery{Name: name, RepoID: at.RepoID, IncludeAll: true, Limit: 2})
	if err != nil || len(same) < 2 {
		return name, err
	}
	if at.ConfigFile == defaultConfigFile {
		return name + " (" + at.Dir + ")", nil
	}
	return name + " (" + at.ConfigPath() + ")", nil
}

// defaultConfigFile is the usual name of an application's configuration file.
const defaultConfigFile = "app.pipecd.yaml"

// current returns the stored deployment that n concerns. It returns nil if the deployment was
// deleted, or if its status has changed since the event, because a later event reports that.
func (c Config) current(ctx context.Context, n notify.Notice) (*deploy.Deployment, error) {
	d, err := c.Store.Deployment(ctx, n.Event.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	want := deploy.Status(n.Details.To)
	if n.Event.StageID != "" {
		want = deploy.Running // events of stages are reported while the deployment runs
	}
	if d.Status != want {
		return nil, nil
	}
	return &d, nil
}

func oneOf(n notify.Notice, kinds ...deploy.EventType) bool {
	return slices.Contains(kinds, n.Event.Type)
}
