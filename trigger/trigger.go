package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/store"
)

// Repository is one watched repository.
type Repository struct {
	Config config.Repository
	Git    *git.Repo
}

// Config is what a Trigger needs.
type Config struct {
	Store        *store.Store
	Repositories []Repository
	Unwatched    map[string]error // why other configured repositories cannot be watched, by ID
	Providers    []string         // names of the configured platform providers
	Interval     time.Duration    // between two looks at a repository's head
	Logger       *slog.Logger
	Now          func() time.Time
	NewID        func() string
}

// Trigger is a component: call Run once.
type Trigger struct {
	Config
	watchers map[string]*watcher // by repository ID
}

// New returns a trigger that has not started.
func New(c Config) *Trigger {
	t := &Trigger{Config: c, watchers: map[string]*watcher{}}
	for _, r := range c.Repositories {
		t.watchers[r.Config.RepoID] = newWatcher(t, r)
	}
	return t
}

// Run watches all repositories and answers sync commands until ctx ends.
func (t *Trigger) Run(ctx context.Context) error {
	feed := t.Store.Watch(deploy.TopicCommand)
	defer feed.Close()
	var watching sync.WaitGroup
	for _, w := range t.watchers {
		watching.Go(func() { w.run(ctx) })
	}
	defer watching.Wait()

	retry := time.NewTicker(30 * time.Second)
	defer retry.Stop()
	for {
		feed.Take()
		if err := t.dispatch(ctx); err != nil && ctx.Err() == nil {
			t.Logger.Error("cannot read commands; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-feed.C():
		case <-retry.C:
		}
	}
}

// Look makes the agent look at a repository now instead of at the next
// interval: what a webhook asks for. Unknown repositories are ignored.
func (t *Trigger) Look(repoID string) {
	if w := t.watchers[repoID]; w != nil {
		w.wake(nil)
	}
}

// dispatch hands every open sync command to the watcher of its application's
// repository, and answers those that have none.
func (t *Trigger) dispatch(ctx context.Context) error {
	commands, err := t.Store.OpenCommands(ctx, deploy.CommandSync)
	if err != nil {
		return err
	}
	byRepo := map[string][]deploy.Command{}
	for _, c := range commands {
		repo, refusal, err := t.repositoryOf(ctx, c)
		if err != nil {
			return err
		}
		if refusal != "" {
			if err := t.refuse(ctx, c, refusal); err != nil {
				return err
			}
			continue
		}
		byRepo[repo] = append(byRepo[repo], c)
	}
	for repo, commands := range byRepo {
		t.watchers[repo].wake(commands)
	}
	return nil
}

// repositoryOf returns the repository whose watcher answers c, or why nobody can.
func (t *Trigger) repositoryOf(ctx context.Context, c deploy.Command) (repo, refusal string, err error) {
	app, err := t.Store.Application(ctx, c.ApplicationID)
	switch {
	case deploy.IsKind(err, deploy.NotFound), err == nil && app.Deleted:
		return "", fmt.Sprintf("application %s does not exist", c.ApplicationID), nil
	case err != nil:
		return "", "", err
	case app.Disabled:
		return "", fmt.Sprintf("application %s is disabled: enable it first", app.Name), nil
	case t.Unwatched[app.Git.RepoID] != nil:
		return "", fmt.Sprintf("repository %q of application %s cannot be watched: %v", app.Git.RepoID, app.Name, t.Unwatched[app.Git.RepoID]), nil
	case t.watchers[app.Git.RepoID] == nil:
		return "", fmt.Sprintf("repository %q of application %s is not in the agent's configuration", app.Git.RepoID, app.Name), nil
	}
	return app.Git.RepoID, "", nil
}

// refuse answers c with FAILED and the reason. A command answered meanwhile is
// left as it is.
func (t *Trigger) refuse(ctx context.Context, c deploy.Command, reason string) error {
	err := t.Store.FinishCommand(ctx, c.ID, deploy.CommandFailed, map[string]string{deploy.MetaReason: reason})
	if deploy.IsKind(err, deploy.Conflict) {
		return nil
	}
	if err == nil {
		t.Logger.Info("sync command refused", "command", c.ID, "reason", reason)
	}
	return err
}
