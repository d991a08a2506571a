package trigger

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// env is a repository, a store and a trigger between them. Its poll is one pass
// over the repository, done here and now.
type env struct {
	t        *testing.T
	store    *store.Store
	upstream *gittest.Repo
	config   config.Repository
	trigger  *Trigger
	feed     *store.Watch // what Run would watch
	mirrors  string       // the directory of the trigger's mirrors

	mu      sync.Mutex
	ids     int
	now     time.Time
	crashIn int // readings of the clock until crash is called; 0: never
	crash   func()
}

// kinds are the kinds of application in the tests.
var kinds = config.Kinds{config.Kubernetes()}

func newEnv(t *testing.T, edit ...func(*env, *Config)) *env {
	t.Helper()
	l := &env{t: t, upstream: gittest.New(t), now: time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)}
	l.store = storetest.New(t, l.clock)
	l.feed = l.store.Watch()
	t.Cleanup(l.feed.Close)
	l.config = config.Repository{RepoID: "apps", Remote: l.upstream.Dir, Branch: gittest.Branch, Discover: &config.Discover{}}
	l.restart(edit...)
	return l
}

// restart makes a new trigger with a new mirror on the same store.
func (l *env) restart(edit ...func(*env, *Config)) {
	l.t.Helper()
	c := Config{
		Store: l.store, Kinds: kinds, Providers: []string{"local"}, Interval: 20 * time.Millisecond, Patience: 3 * time.Minute,
		Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)), Now: l.clock, NewID: l.newID,
	}
	for _, f := range edit {
		f(l, &c)
	}
	l.mirrors = l.t.TempDir()
	c.Repositories = append(c.Repositories, Repository{Config: l.config, Git: openRepo(l.t, l.config, l.mirrors, remoteTimeout)})
	l.trigger = New(c)
}

// remoteTimeout is long: a busy machine may stop a test for seconds, and no server answers late.
const remoteTimeout = time.Minute

func openRepo(t *testing.T, c config.Repository, mirrors string, timeout time.Duration) *git.Repo {
	t.Helper()
	repo, err := git.Open(git.Config{ID: c.RepoID, Remote: c.Remote, Branch: c.Branch, Dir: mirrors, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := repo.Close(); err != nil {
			t.Error(err)
		}
	})
	return repo
}

// clock goes on by a second whenever it is read.
func (l *env) clock() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashIn--; l.crashIn == 0 {
		l.crash()
	}
	l.now = l.now.Add(time.Second)
	return l.now
}

// crashAt calls crash when the clock has been read n times more.
func (l *env) crashAt(n int, crash func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashIn, l.crash = n, crash
}

func (l *env) newID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids++
	return fmt.Sprintf("id-%d", l.ids)
}

// poll hands out what is open and does one pass over the repository.
func (l *env) poll() {
	l.t.Helper()
	l.trigger.react(l.t.Context(), l.feed.Take())
	l.trigger.scan(l.t.Context())
	l.trigger.watchers["apps"].poll(l.t.Context())
}

// push commits files and polls.
func (l *env) push(message string, files map[string]string) string {
	l.t.Helper()
	hash := l.upstream.Push(l.t, message, files)
	l.poll()
	return hash
}

// remove commits the removal of files and polls.
func (l *env) remove(names ...string) {
	l.t.Helper()
	if err := l.upstream.Remove(names...); err != nil {
		l.t.Fatal(err)
	}
	l.push("remove", nil)
}

// appFile is the configuration of an application; more is YAML of its spec.
func appFile(name string, more ...string) string {
	return "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: " + name + "\n" +
		strings.Join(append(slices.Clone(more), ""), "\n")
}

func appID(dir string) string {
	return deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: dir, ConfigFile: "app.pipecd.yaml"})
}

// app returns the application in a directory.
func (l *env) app(dir string) deploy.Application {
	l.t.Helper()
	app, err := l.store.Application(l.t.Context(), appID(dir))
	if err != nil {
		l.t.Fatal(err)
	}
	return app
}

// registered returns the directories of all registered applications.
func (l *env) registered() []string {
	l.t.Helper()
	apps, _, err := l.store.ListApplications(l.t.Context(), store.ApplicationQuery{IncludeAll: true})
	if err != nil {
		l.t.Fatal(err)
	}
	var dirs []string
	for _, a := range apps {
		dirs = append(dirs, a.Git.Dir)
	}
	slices.Sort(dirs)
	return dirs
}

// deployments returns what was made for an application, oldest first, as
// "message STATUS".
func (l *env) deployments(dir string) []string {
	l.t.Helper()
	var out []string
	for _, d := range l.all(dir) {
		out = append(out, fmt.Sprintf("%s %s", d.Trigger.Commit.Message, d.Status))
	}
	return out
}

func (l *env) all(dir string) []deploy.Deployment {
	l.t.Helper()
	ds, _, err := l.store.ListDeployments(l.t.Context(), store.DeploymentQuery{ApplicationIDs: []string{appID(dir)}})
	if err != nil {
		l.t.Fatal(err)
	}
	slices.SortFunc(ds, func(a, b deploy.Deployment) int { return a.Trigger.At.Compare(b.Trigger.At) })
	return ds
}

// run brings the newest deployment of an application to RUNNING.
func (l *env) run(dir string) deploy.Deployment {
	l.t.Helper()
	ds := l.all(dir)
	id := ds[len(ds)-1].ID
	for _, move := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, l.clock()) },
		func(d *deploy.Deployment) error { return d.Start(l.clock()) },
	} {
		if _, err := l.store.UpdateDeployment(l.t.Context(), id, move); err != nil {
			l.t.Fatal(err)
		}
	}
	d, err := l.store.Deployment(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// askSync stores a sync command for the application in a directory.
func (l *env) askSync(dir string) string {
	l.t.Helper()
	c, err := l.store.CreateCommand(l.t.Context(), deploy.Command{
		ID: l.newID(), Type: deploy.CommandSync, ApplicationID: appID(dir), Commander: "ann", Strategy: deploy.StrategyQuickSync,
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return c.ID
}

func (l *env) command(id string) deploy.Command {
	l.t.Helper()
	c, err := l.store.Command(context.Background(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// wantRefused fails unless the command failed for a reason that holds text.
func (l *env) wantRefused(id, text string) {
	l.t.Helper()
	c := l.command(id)
	if c.Status != deploy.CommandFailed || !strings.Contains(c.Metadata[deploy.MetaReason], text) {
		l.t.Errorf("the command is %s because %q, want FAILED because %q", c.Status, c.Metadata[deploy.MetaReason], text)
	}
}

// wantNoneOpen fails if a command waits for an answer.
func (l *env) wantNoneOpen() {
	l.t.Helper()
	open, err := l.store.OpenCommands(l.t.Context())
	if err != nil || len(open) > 0 {
		l.t.Errorf("open commands: %v %v", open, err)
	}
}

// wantInvalid fails unless the application's configuration is said to be
// invalid for a reason that holds text.
func (l *env) wantInvalid(dir, text string) {
	l.t.Helper()
	if s := l.app(dir).Sync; s.Status != deploy.SyncInvalidConfig || !strings.Contains(s.Reason, text) {
		l.t.Errorf("%s is %s because %q, want INVALID_CONFIG because %q", dir, s.Status, s.Reason, text)
	}
}
