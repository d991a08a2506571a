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

// Store is what the receivers read.
type Store interface {
	Deployment(ctx context.Context, id string) (deploy.Deployment, error)
	ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error)
	ListDeployments(ctx context.Context, q store.DeploymentQuery) ([]deploy.Deployment, string, error)
	Rollouts(ctx context.Context, q store.RolloutQuery) ([]deploy.Rollout, error)
	EventsByKey(ctx context.Context, keys ...string) ([]deploy.Event, error)
	Chain(ctx context.Context, id string) (deploy.Chain, error)
	PlanPreview(ctx context.Context, commandID string) (deploy.PlanPreview, error)
}

// Config is what Receivers needs.
type Config struct {
	Host  config.GitHost
	API   *githost.API
	Store Store
	// Remote returns where a watched repository is fetched from, "" for any other. It
	// is safe for concurrent use.
	Remote func(repoID string) string
	// Agent tells the comments of this agent from those of others, such as its
	// project and its ID.
	Agent string
}

// Receivers returns what tells one Git host what its configuration asks for. Each is a
// receiver of its own, so that what the token may not do keeps nothing else back.
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
	return out
}

// name is that of a receiver of the host.
func (c Config) name(what string) string { return c.Host.Host + " " + what }

// about returns the application's place in Git that a notice is about, and whether it
// is on this host.
func (c Config) about(n notify.Notice) (deploy.GitPath, bool) {
	var at deploy.GitPath
	switch {
	case n.Deployment != nil:
		at = n.Deployment.Git
	case n.Application != nil:
		at = n.Application.Git
	}
	return at, at.Remote != "" && c.API.Serves(at.Remote)
}

// label returns how an application is named beside others of its repository: by its
// name, and where it is when another one has the same.
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

// defaultConfigFile is what most configurations are called.
const defaultConfigFile = "app.pipecd.yaml"

// now returns the deployment that a notice is about as it is by now; nil if it is not
// kept any more, or has moved on since, so that a later event tells what is to be
// told.
func (c Config) now(ctx context.Context, n notify.Notice) (*deploy.Deployment, error) {
	d, err := c.Store.Deployment(ctx, n.Event.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	told := deploy.Status(n.Details.To)
	if n.Event.StageID != "" {
		told = deploy.Running // what is told of a stage is told while its deployment runs
	}
	if d.Status != told {
		return nil, nil
	}
	return &d, nil
}

func oneOf(n notify.Notice, kinds ...deploy.EventType) bool {
	return slices.Contains(kinds, n.Event.Type)
}
