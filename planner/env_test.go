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
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load and decide are functions that implement Sources and Decider.
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

// env is a store with a planner, inside a testing/synctest bubble that starts at
// 2000-01-01 00:00 UTC, a Saturday.
type env struct {
	t      *testing.T
	store  *store.Store
	spec   map[string]string // by application: the spec beyond its name
	load   load
	plan   decide
	rules  Tenancy
	stop   context.CancelFunc
	ended  chan error
	scan   time.Duration // 0 is the default
	logged bytes.Buffer  // log output, to be read when nothing runs
	ahead  atomic.Int64  // offset of the planner's clock
	rights ownership.Rights
	rescan func() // of the running planner
}

func inBubble(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), storetest.Ready(t), store.Options{Key: storetest.Key()})
		if err != nil {
			t.Fatal(err)
		}
		e := &env{t: t, store: s, spec: map[string]string{}, plan: func() (deploy.Plan, error) {
			return deploy.Plan{Summary: "Quick sync", Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}}}, nil
		}}
		e.load = e.read
		defer func() {
			e.shutdown()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, e)
	})
}

// read is the default of load.
func (e *env) read(_ context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
	cfg, err := config.Kinds{config.Kubernetes()}.ParseApplication(git.ConfigPath(),
		[]byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: "+git.Dir+"\n"+e.spec[git.Dir]))
	return &source.Source{Commit: commit, Config: cfg}, err
}

func (e *env) start() {
	p := New(Config{
		Store: e.store, Now: e.now, ScanEvery: e.scan, Logger: slog.New(slog.NewTextHandler(io.MultiWriter(e.t.Output(), &e.logged), nil)),
		Sources: load(func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			return e.load(ctx, git, commit)
		}),
		Deciders: map[string]Decider{deploy.KindKubernetes: decide(func() (deploy.Plan, error) { return e.plan() })},
		Tenancy:  e.rules,
		Rights:   e.rights,
	})
	e.rescan = p.Rescan
	ctx, stop := context.WithCancel(context.Background())
	e.stop, e.ended = stop, make(chan error, 1)
	go func() { e.ended <- p.Run(ctx) }()
}

func (e *env) now() time.Time { return time.Now().Add(time.Duration(e.ahead.Load())) }

func (e *env) shutdown() {
	if e.stop == nil {
		return
	}
	e.stop()
	if err := <-e.ended; err != nil {
		e.t.Errorf("Run = %v", err)
	}
	e.stop = nil
}

// create stores a PENDING deployment of an application, by default requested by a user.
func (e *env) create(id, app string, at time.Time, with ...func(*store.NewDeployment)) {
	e.t.Helper()
	a := deploy.Application{ID: app, Name: app, Kind: deploy.KindKubernetes, Git: deploy.GitPath{RepoID: "r", Dir: app, ConfigFile: "app.pipecd.yaml"}}
	if app == "terraform" {
		a.Kind = "TERRAFORM"
	}
	if _, err := e.store.PutApplication(e.t.Context(), a); err != nil {
		e.t.Fatal(err)
	}
	n := store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: app, ApplicationName: app, Git: a.Git, Status: deploy.Pending, StatusReason: "new",
		Trigger: deploy.Trigger{Kind: deploy.OnCommand, At: at, Commit: deploy.Commit{Hash: "c0ffee0123456789-" + id}},
	}}
	for _, f := range with {
		f(&n)
	}
	if _, err := e.store.CreateDeployment(e.t.Context(), n); err != nil {
		e.t.Fatal(err)
	}
}

// byGit sets the trigger of a deployment to a commit.
func byGit(n *store.NewDeployment) { n.Deployment.Trigger.Kind = deploy.OnCommit }

func (e *env) get(id string) deploy.Deployment {
	e.t.Helper()
	d, err := e.store.Deployment(e.t.Context(), id)
	if err != nil {
		e.t.Fatal(err)
	}
	return d
}

// statuses returns "id STATUS" for each of these deployments.
func (e *env) statuses(ids ...string) []string {
	e.t.Helper()
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprintf("%s %s", id, e.get(id).Status))
	}
	return out
}

// wait advances the time by d and waits until the planner is idle.
func (e *env) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// finish completes a deployment, which is PLANNED before SUCCESS.
func (e *env) finish(id string, end deploy.Status) {
	e.t.Helper()
	moves := []func(*deploy.Deployment) error{func(d *deploy.Deployment) error { return d.Complete(end, "by the test", time.Now()) }}
	if end == deploy.Success {
		moves = append([]func(*deploy.Deployment) error{func(d *deploy.Deployment) error { return d.Start(time.Now()) }}, moves...)
	}
	for _, move := range moves {
		if _, err := e.store.UpdateDeployment(e.t.Context(), id, move); err != nil {
			e.t.Fatal(err)
		}
	}
}
