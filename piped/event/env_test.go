package event

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// env is a store, repositories with mirrors, and a watcher's configuration.
type env struct {
	t      *testing.T
	store  *store.Store
	config Config

	mu       sync.Mutex
	settings Settings
	polled   []string
	tenant   config.Tenant
	refused  error // returned by Signer
}

func newEnv(t *testing.T) *env {
	t.Helper()
	l := &env{t: t, store: storetest.New(t, nil), settings: Settings{Author: "piped", Email: "piped@example.com"}}
	l.config = Config{
		Kinds: config.Kinds{config.Kubernetes()}, Store: l.store, Settings: l.get, Tenancy: l, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: time.Now,
		Poll: func(id string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.polled = append(l.polled, id)
		},
	}
	return l
}

func (l *env) get() Settings {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settings
}

func (l *env) Tenant(deploy.GitPath) config.Tenant { return l.tenant }

func (l *env) Signer(context.Context, deploy.GitPath, string) (string, error) { return "", l.refused }

// repository creates a repository with files and a synced mirror. Its remote is remote,
// or its path if that is "".
func (l *env) repository(id, remote string, files map[string]string) (*gittest.Repo, *git.Repo) {
	l.t.Helper()
	up := gittest.New(l.t)
	up.Push(l.t, "first", files)
	if remote == "" {
		remote = up.Dir
	}
	return up, l.watch(id, remote)
}

// watch adds a remote to the configured repositories.
func (l *env) watch(id, remote string) *git.Repo {
	l.t.Helper()
	mirror, err := git.Open(git.Config{ID: id, Remote: remote, Branch: gittest.Branch, Dir: l.t.TempDir(), Timeout: 5 * time.Minute})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = mirror.Close() })
	if _, _, err := mirror.Sync(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.settings.Repositories = append(l.settings.Repositories, Repository{ID: id, Branch: gittest.Branch, Git: mirror})
	return mirror
}

// application registers the application in dir.
func (l *env) application(repoID, dir string) deploy.Application {
	l.t.Helper()
	at := deploy.GitPath{RepoID: repoID, Branch: gittest.Branch, Dir: dir, ConfigFile: "app.pipecd.yaml"}
	a := deploy.Application{ID: deploy.ApplicationID(at), Name: dir, Kind: deploy.KindKubernetes, Git: at}
	if _, err := l.store.PutApplication(l.t.Context(), a); err != nil {
		l.t.Fatal(err)
	}
	return a
}

// register registers an event image-pushed.
func (l *env) register(id, data string, labels map[string]string) {
	l.t.Helper()
	_, err := l.store.RegisterEvent(l.t.Context(), deploy.RegisteredEvent{ID: id, Name: "image-pushed", Data: data, Labels: labels})
	if err != nil {
		l.t.Fatal(err)
	}
}

// run runs a watcher until done returns true.
func (l *env) run(done func() bool) {
	l.t.Helper()
	ctx, stop := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(l.config).Run(ctx) }()
	deadline := time.Now().Add(10 * time.Minute)
	for !done() && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		l.t.Error(err)
	}
	if !done() {
		events, _, _ := l.store.RegisteredEvents(context.WithoutCancel(ctx), store.RegisteredEventQuery{})
		l.t.Fatalf("not done in time: %+v", events)
	}
}

func (l *env) event(id string) deploy.RegisteredEvent {
	l.t.Helper()
	e, err := l.store.RegisteredEvent(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return e
}

// ended returns a function that reports whether the events have their final status.
func (l *env) ended(ids ...string) func() bool {
	return func() bool {
		for _, id := range ids {
			if l.event(id).Status == deploy.EventOpen {
				return false
			}
		}
		return true
	}
}

func (l *env) want(id string, status deploy.EventStatus, says string) deploy.RegisteredEvent {
	l.t.Helper()
	e := l.event(id)
	if e.Status != status || !strings.Contains(e.StatusDescription, says) {
		l.t.Errorf("event %s is %s, %q; want %s, %q", id, e.Status, e.StatusDescription, status, says)
	}
	return e
}

// gitOutput runs git in a repository.
func gitOutput(t *testing.T, up *gittest.Repo, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", up.Dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func commits(t *testing.T, up *gittest.Repo) string {
	return gitOutput(t, up, "rev-list", "--count", gittest.Branch)
}

func content(t *testing.T, up *gittest.Repo, name string) string {
	return gitOutput(t, up, "show", gittest.Branch+":"+name)
}

// appConfig returns an app.pipecd.yaml with one rule for image-pushed, app web.
func appConfig(more string, replacements ...string) string {
	return fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: web
  eventWatcher:
    - matcher: {name: image-pushed, labels: {app: web}}
      handler:
        type: GIT_UPDATE
        config:
          %s
          replacements: [%s]
`, more, strings.Join(replacements, ", "))
}

const setTag = "{file: values.yaml, yamlField: $.tag}"

// web returns the files of an application whose tag is set by events.
func web(dir, tag string) map[string]string {
	return map[string]string{dir + "/app.pipecd.yaml": appConfig("", setTag), dir + "/values.yaml": "# of the shop\ntag: " + tag + " # by events\n"}
}

var appWeb = map[string]string{"app": "web"}

// racing is a mirror that runs before ahead of each push.
type racing struct {
	*git.Repo
	before func()
}

func (r *racing) Push(ctx context.Context, branch string, c git.Change) (string, error) {
	r.before()
	return r.Repo.Push(ctx, branch, c)
}
