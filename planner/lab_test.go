package planner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load and decide make a Sources and a Decider of functions.
type (
	load   func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error)
	decide func() (deploy.Plan, error)
)

func (f load) Load(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
	return f(ctx, git, commit)
}

func (f decide) Decide(context.Context, deploy.Application, deploy.Deployment, *source.Source, func(context.Context) (*source.Source, error)) (deploy.Plan, error) {
	return f()
}

// lab is a store and a planner on it, inside a bubble of testing/synctest, where
// it is always the same time at first: 2000-01-01 00:00 UTC, a Saturday.
type lab struct {
	t     *testing.T
	store *store.Store
	spec  map[string]string // by application, what its configuration says beyond its name
	load  load
	plan  decide
	rules Tenancy
	stop  context.CancelFunc
	ended chan error
	scan  time.Duration // 0 is the default
	said  bytes.Buffer  // what was logged, to be read when nothing runs
	ahead atomic.Int64  // by how much the planner's clock was set forward
}

func inBubble(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), storetest.Ready(t), store.Options{Key: storetest.Key()})
		if err != nil {
			t.Fatal(err)
		}
		l := &lab{t: t, store: s, spec: map[string]string{}, plan: func() (deploy.Plan, error) {
			return deploy.Plan{Summary: "Quick sync", Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}}}, nil
		}}
		l.load = l.read
		defer func() {
			l.shutdown()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, l)
	})
}

// read is what l.load is when a test does not set it.
func (l *lab) read(_ context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
	cfg, err := config.ParseApplication(git.ConfigPath(),
		[]byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: "+git.Dir+"\n"+l.spec[git.Dir]))
	return &source.Source{Commit: commit, Config: cfg}, err
}

func (l *lab) start() {
	p := New(Config{
		Store: l.store, Now: l.now, ScanEvery: l.scan, Logger: slog.New(slog.NewTextHandler(io.MultiWriter(l.t.Output(), &l.said), nil)),
		Sources: load(func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			return l.load(ctx, git, commit)
		}),
		Deciders: map[string]Decider{deploy.KindKubernetes: decide(func() (deploy.Plan, error) { return l.plan() })},
		Tenancy:  l.rules,
	})
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.ended = stop, make(chan error, 1)
	go func() { l.ended <- p.Run(ctx) }()
}

func (l *lab) now() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

func (l *lab) shutdown() {
	if l.stop == nil {
		return
	}
	l.stop()
	if err := <-l.ended; err != nil {
		l.t.Errorf("Run = %v", err)
	}
	l.stop = nil
}

// create stores a PENDING deployment of an application, asked for by a person
// unless with says otherwise.
func (l *lab) create(id, app string, at time.Time, with ...func(*store.NewDeployment)) {
	l.t.Helper()
	a := deploy.Application{ID: app, Name: app, Kind: deploy.KindKubernetes, Git: deploy.GitPath{RepoID: "r", Dir: app, ConfigFile: "app.pipecd.yaml"}}
	if app == "terraform" {
		a.Kind = "TERRAFORM"
	}
	if _, err := l.store.PutApplication(l.t.Context(), a); err != nil {
		l.t.Fatal(err)
	}
	n := store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: app, ApplicationName: app, Git: a.Git, Status: deploy.Pending, StatusReason: "new",
		Trigger: deploy.Trigger{Kind: deploy.OnCommand, At: at, Commit: deploy.Commit{Hash: "c0ffee0123456789-" + id}},
	}}
	for _, f := range with {
		f(&n)
	}
	if _, err := l.store.CreateDeployment(l.t.Context(), n); err != nil {
		l.t.Fatal(err)
	}
}

// byGit makes a deployment one that a commit triggered.
func byGit(n *store.NewDeployment) { n.Deployment.Trigger.Kind = deploy.OnCommit }

func (l *lab) get(id string) deploy.Deployment {
	l.t.Helper()
	d, err := l.store.Deployment(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// statuses returns "id STATUS" for each of these deployments.
func (l *lab) statuses(ids ...string) []string {
	l.t.Helper()
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprintf("%s %s", id, l.get(id).Status))
	}
	return out
}

// wait lets time pass until the planner has nothing to do.
func (l *lab) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// finish brings a deployment to its end, a PLANNED one for SUCCESS.
func (l *lab) finish(id string, end deploy.Status) {
	l.t.Helper()
	moves := []func(*deploy.Deployment) error{func(d *deploy.Deployment) error { return d.Complete(end, "as told", time.Now()) }}
	if end == deploy.Success {
		moves = append([]func(*deploy.Deployment) error{func(d *deploy.Deployment) error { return d.Start(time.Now()) }}, moves...)
	}
	for _, move := range moves {
		if _, err := l.store.UpdateDeployment(l.t.Context(), id, move); err != nil {
			l.t.Fatal(err)
		}
	}
}
