package trigger

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Repository is one watched repository.
type Repository struct {
	Config config.Repository
	Git    *git.Repo
}

// Config contains the dependencies and settings of a Trigger.
type Config struct {
	Store        *store.Store
	Rights       ownership.Rights // of this replica to watch a repository, by its ID; nil: all
	Repositories []Repository
	Unwatched    map[string]error // why other configured repositories cannot be watched, by ID
	Kinds        config.Kinds     // kinds of application that are deployed
	Providers    []string         // names of the configured platform providers
	// ProviderKinds are the kinds of the providers, by name; nil: each serves every kind.
	ProviderKinds map[string]string
	Live          Live          // nil: every application counts as new
	Review        bool          // a user must permit what an application takes over
	Signatures    Signatures    // nil: every commit is accepted
	Interval      time.Duration // between two polls of a repository's head
	Patience      time.Duration // how long a pass waits for a call of Live; default of package background
	Logger        *slog.Logger
	Now           func() time.Time
	NewID         func() string
}

// Trigger is a component: call Run once. Its configuration is fixed: for other
// repositories or providers it is stopped, and another Trigger resumes its work.
type Trigger struct {
	Config
	shared   bool                // other replicas watch repositories, too
	watchers map[string]*watcher // by repository ID
	rescans  chan struct{}       // a watcher has got its repository: it needs the open work
}

// New returns a trigger that has not started. It touches neither the store nor a
// repository.
func New(c Config) *Trigger {
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
	_, alone := c.Rights.(ownership.All)
	t := &Trigger{Config: c, shared: !alone, watchers: map[string]*watcher{}, rescans: make(chan struct{}, 1)}
	for _, r := range c.Repositories {
		t.watchers[r.Config.RepoID] = newWatcher(t, r)
	}
	return t
}

// providersOf returns the names of the providers that applications of a kind can be
// deployed to.
func (t *Trigger) providersOf(kind string) []string {
	if t.ProviderKinds == nil {
		return t.Providers
	}
	return slices.DeleteFunc(slices.Clone(t.Providers), func(name string) bool { return t.ProviderKinds[name] != kind })
}

// scanInterval is the interval of scans of all open work, a fallback for missed changes.
const scanInterval = 30 * time.Second

// Run watches all repositories, answers sync commands and heals drifted applications until
// ctx ends. It returns nil after all watchers have stopped.
func (t *Trigger) Run(ctx context.Context) error {
	feed := t.Store.Watch(deploy.TopicCommand, deploy.TopicApplication, deploy.TopicDeployment, deploy.TopicRegistration, deploy.TopicPoll)
	defer feed.Close()
	var watching sync.WaitGroup
	for _, w := range t.watchers {
		watching.Go(func() { w.hold(ctx) })
	}
	defer watching.Wait()

	t.retry(ctx, "forget candidates", t.forgetCandidates(ctx))
	t.scan(ctx)
	scan := time.NewTicker(scanInterval)
	defer scan.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-feed.C():
			t.react(ctx, feed.Take())
		case <-t.rescans:
			t.retry(ctx, "forget candidates", t.forgetCandidates(ctx))
			t.scan(ctx)
		case <-scan.C:
			t.scan(ctx)
		}
	}
}

// Poll polls a repository now instead of at the next interval, as a webhook requests.
// Unknown repositories, and those of other replicas, are ignored: store.RequestPoll asks all replicas.
// Calls during a poll are batched into one further poll.
func (t *Trigger) Poll(repoID string) {
	if w := t.watchers[repoID]; w != nil {
		w.wake(nil)
	}
}

// Passed waits until the first pass over a repository has ended, and returns why it did not
// succeed.
func (t *Trigger) Passed(ctx context.Context, repoID string) error {
	w := t.watchers[repoID]
	if w == nil {
		return deploy.Errorf(deploy.NotFound, "repository %q is not watched", repoID)
	}
	select {
	case <-w.passed:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p := w.problem.Load(); p != nil {
		return p.Err
	}
	return nil
}

// Problem is the error of the last pass over a repository. It may concern only some of the
// repository's applications.
type Problem struct {
	Err   error
	Since time.Time // of the first of the consecutive failures
}

// Problem returns the problem of the last pass over a repository, nil if it succeeded or another
// replica watches the repository.
func (t *Trigger) Problem(repoID string) *Problem {
	if w := t.watchers[repoID]; w != nil {
		return w.problem.Load()
	}
	return nil
}

// Watches reports whether this replica watches a repository, and not another one.
func (t *Trigger) Watches(repoID string) bool {
	w := t.watchers[repoID]
	return !t.shared || w != nil && !w.isParked()
}

// scan dispatches all open work.
func (t *Trigger) scan(ctx context.Context) {
	t.retry(ctx, "read commands", t.dispatch(ctx))
	t.retry(ctx, "read drifted applications", t.dispatchDrift(ctx))
}

// react dispatches the work that changes of the store require.
func (t *Trigger) react(ctx context.Context, changes []deploy.Change) {
	commands, apps, registered := false, map[string]bool{}, map[string]bool{} // IDs of applications that changed, or that have a changed deployment
	for _, c := range changes {
		switch c.Topic {
		case deploy.TopicCommand:
			commands = true
		case deploy.TopicRegistration:
			registered[c.ApplicationID] = true
		case deploy.TopicPoll:
			t.pollNow(c.ID)
		case deploy.TopicApplication, deploy.TopicDeployment:
			apps[c.ApplicationID] = true
		}
	}
	for id := range registered {
		t.retry(ctx, "find out what was registered", t.dispatchRegistration(ctx, id))
	}
	if commands {
		t.retry(ctx, "read commands", t.dispatch(ctx))
	}
	if len(apps) == 0 {
		return
	}
	for _, w := range t.watchers {
		w.stale.Store(true)
	}
	t.retry(ctx, "read drifted applications", t.dispatchDrift(ctx, slices.Collect(maps.Keys(apps))...))
}

// pollNow is Poll, for all repositories if the ID is empty.
func (t *Trigger) pollNow(repoID string) {
	if repoID != "" {
		t.Poll(repoID)
		return
	}
	for _, w := range t.watchers {
		w.wake(nil)
	}
}

// retry logs an error, if any. The next scan repeats the failed work.
func (t *Trigger) retry(ctx context.Context, what string, err error) {
	if err != nil && !ownership.Over(ctx, err) {
		t.Logger.Error("cannot "+what+"; trying again", "error", err)
	}
}

// forgetCandidates removes the candidates of repositories that are not in the
// agent's configuration any more.
func (t *Trigger) forgetCandidates(ctx context.Context) error {
	candidates, err := t.Store.Candidates(ctx)
	if err != nil {
		return err
	}
	for _, c := range candidates {
		if t.watchers[c.Git.RepoID] != nil || t.Unwatched[c.Git.RepoID] != nil {
			continue
		}
		err := t.owned(ctx, c.Git.RepoID, func(ctx context.Context) error {
			_, err := t.Store.SetCandidates(ctx, c.Git.RepoID, nil)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// owned calls do with the right to a key, or leaves that to the replica that has it.
func (t *Trigger) owned(ctx context.Context, key string, do func(context.Context) error) error {
	right, ok := t.Rights.Own(ctx, key)
	if !ok {
		return nil
	}
	defer right.Done()
	return do(right.Context)
}

// dispatchDrift passes drifted applications to the watchers of their repositories: those
// with the given IDs, or all of them without IDs.
func (t *Trigger) dispatchDrift(ctx context.Context, ids ...string) error {
	apps, err := t.Store.DriftedApplications(ctx, ids...)
	if err != nil {
		return err
	}
	byRepo := map[string][]string{}
	for _, app := range apps {
		if !app.IsPreview() { // package pullpreview heals these
			byRepo[app.Git.RepoID] = append(byRepo[app.Git.RepoID], app.ID)
		}
	}
	for repo, ids := range byRepo {
		if w := t.watchers[repo]; w != nil {
			w.review(ids)
		}
	}
	return nil
}

// dispatch passes every open command to the watcher of its application's repository, and
// refuses those without a watcher.
func (t *Trigger) dispatch(ctx context.Context) error {
	commands, err := t.Store.OpenCommands(ctx, deploy.CommandSync, deploy.CommandRetry, deploy.CommandChainSync, deploy.CommandDecideAdoption)
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
			err := t.owned(ctx, cmp.Or(repo, c.ApplicationID), func(ctx context.Context) error { return t.refuse(ctx, c, refusal) })
			if err != nil {
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

// dispatchRegistration makes the watcher of an application's repository evaluate its
// applications again; "" means all watchers.
func (t *Trigger) dispatchRegistration(ctx context.Context, id string) error {
	if id == "" {
		for _, w := range t.watchers {
			w.reconsider()
		}
		return nil
	}
	app, err := t.Store.Application(ctx, id)
	if err != nil {
		return err
	}
	if w := t.watchers[app.Git.RepoID]; w != nil {
		w.reconsider()
	}
	return nil
}

// repositoryOf returns the repository whose watcher answers c, or why none can. The repository is ""
// if the application does not exist.
func (t *Trigger) repositoryOf(ctx context.Context, c deploy.Command) (repo, refusal string, err error) {
	app, err := t.Store.Application(ctx, c.ApplicationID)
	switch {
	case deploy.IsKind(err, deploy.NotFound), err == nil && app.Deleted:
		return "", deleted(c.ApplicationID), nil
	case err == nil && app.IsPreview():
		return app.Git.RepoID, fmt.Sprintf("application %s is the preview of pull request #%d: push a commit to the pull request to deploy it", app.Name, app.Git.PullRequest), nil
	case err != nil:
		return "", "", err
	case app.Disabled && c.Type != deploy.CommandDecideAdoption:
		return app.Git.RepoID, disabled(app), nil
	case t.Unwatched[app.Git.RepoID] != nil:
		return app.Git.RepoID, fmt.Sprintf("repository %q of application %s cannot be watched: %v", app.Git.RepoID, app.Name, t.Unwatched[app.Git.RepoID]), nil
	case t.watchers[app.Git.RepoID] == nil:
		return app.Git.RepoID, fmt.Sprintf("repository %q of application %s is not in the agent's configuration", app.Git.RepoID, app.Name), nil
	}
	return app.Git.RepoID, "", nil
}

// deleted returns the refusal of a command for a deleted or unknown application.
func deleted(id string) string { return fmt.Sprintf("application %s does not exist", id) }

// disabled returns the refusal of a command for a disabled application.
func disabled(app deploy.Application) string {
	return fmt.Sprintf("application %s is disabled: enable it first", app.Name)
}

// refuse answers c with FAILED and the reason, unless it was answered meanwhile.
func (t *Trigger) refuse(ctx context.Context, c deploy.Command, reason string) error {
	err := t.Store.FinishCommand(ctx, c.ID, deploy.CommandFailed, map[string]string{deploy.MetaReason: reason})
	if deploy.IsKind(err, deploy.Conflict) {
		return nil
	}
	if err == nil {
		t.Logger.Info("command refused", "command", c.ID, "reason", reason)
	}
	return err
}
