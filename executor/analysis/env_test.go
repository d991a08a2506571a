package analysis

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"testing"
	"testing/fstest"
	"time"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/deploytest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// script implements provider queries as a function, for tests with virtual time.
type script func(ctx context.Context, query string, over provider.Window) ([]float64, error)

func (s script) Metrics(string) (provider.Metrics, error) { return scripted{s}, nil }

func (s script) Logs(string) (provider.Logs, error) { return scripted{s}, nil }

type scripted struct{ script }

func (s scripted) Query(ctx context.Context, query string, over provider.Window) (provider.Numbers, error) {
	points, err := s.script(ctx, query, over)
	return provider.Numbers{Points: points}, err
}

func (s scripted) Find(ctx context.Context, query string, over provider.Window) (provider.Lines, error) {
	points, err := s.script(ctx, query, over)
	return provider.Lines{Lines: make([]string, len(points))}, err
}

// commit is the deployed commit.
const commit = "c0ffee0123456789c0ffee0123456789c0ffee01"

// sources returns the configuration of the only application.
type sources struct{ namespace string }

func (s sources) Config(context.Context, deploy.GitPath, string) (*config.Application, error) {
	return &config.Application{Platform: &kubernetes.Spec{Input: kubernetes.Input{Namespace: s.namespace}}}, nil
}

// env is a store with a RUNNING deployment, d, that has an analysis stage "s".
type env struct {
	t         *testing.T
	store     *store.Store
	providers Providers
	tree      fstest.MapFS
	log       *deploytest.Log
	id        string // of the deployment
}

func newEnv(t *testing.T, providers Providers) *env {
	e := &env{t: t, store: storetest.New(t, nil), providers: providers, tree: fstest.MapFS{}, log: &deploytest.Log{}}
	e.deploy("d")
	return e
}

// deploy makes id the running deployment.
func (e *env) deploy(id string) {
	e.t.Helper()
	ctx := context.Background()
	at := deploy.GitPath{RepoID: "r", Dir: "apps/web", ConfigFile: "app.pipecd.yaml"}
	a := deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes, Provider: "one", Git: at}
	if _, err := e.store.PutApplication(ctx, a); err != nil {
		e.t.Fatal(err)
	}
	d := deploy.Deployment{
		ID: id, ApplicationID: "app", ApplicationName: "web", Git: at, Labels: map[string]string{"env": "prod"}, Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommand, Commit: deploy.Commit{Hash: commit}},
	}
	if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
		e.t.Fatal(err)
	}
	e.id = id
}

func (e *env) executor() *Executor {
	executor := New(Config{
		Store: e.store, Sources: sources{"shop"}, Providers: e.providers, Now: time.Now, Logger: slog.New(slog.NewTextHandler(e.t.Output(), nil)),
		Tree: func(repo, hash string) (fs.FS, error) {
			if repo != "r" || hash != commit {
				return nil, fmt.Errorf("no commit %s in %s", hash, repo)
			}
			return e.tree, nil
		},
	})
	e.t.Cleanup(func() { _ = executor.Close() }) // it returns nil
	return executor
}

// run returns the StageRun of a stage that began at a time.
func (e *env) run(o analysis.Options, began time.Time, resumed bool) deploy.StageRun {
	e.t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		e.t.Fatal(err)
	}
	d, err := e.store.Deployment(context.Background(), e.id)
	if err != nil {
		e.t.Fatal(err)
	}
	return deploy.StageRun{
		Application: deploy.Application{ID: "app", Name: "web"}, Deployment: d, Resumed: resumed, Log: e.log,
		Stage: deploy.Stage{ID: "s", Name: deploy.StageAnalysis, Options: options, StartedAt: began},
	}
}

// execute runs the stage to its end, and returns its result and duration.
func (e *env) execute(ctx context.Context, o analysis.Options) (deploy.StageResult, time.Duration) {
	e.t.Helper()
	began := time.Now()
	result := e.executor().Execute(ctx, e.run(o, began, false))
	return result, time.Since(began)
}

// samples returns the stored samples: check, position, verdict, and whether it counts.
func (e *env) samples() (out []string) {
	e.t.Helper()
	stored, err := e.store.AnalysisSamples(context.Background(), e.id, "s")
	if err != nil {
		e.t.Fatal(err)
	}
	for _, s := range stored {
		line := fmt.Sprintf("%s %d %s", s.Check, s.Position, s.Verdict)
		if s.Counted {
			line += " counted"
		}
		out = append(out, line)
	}
	return out
}

func seconds(n float64) strict.Duration { return strict.Duration(n * float64(time.Second)) }

func bound(v float64) *float64 { return &v }

// atMost returns a metric check that expects at most max.
func atMost(max float64, interval strict.Duration) analysis.Metric {
	return analysis.Metric{
		Check: analysis.Check{Name: "errors", Interval: interval, Timeout: seconds(5)}, Provider: "p", Query: "errors",
		Strategy: analysis.Threshold, Expected: analysis.Expected{Max: &max}, Deviation: analysis.Either,
	}
}

// options returns an analysis of metrics.
func options(duration strict.Duration, metrics ...analysis.Metric) analysis.Options {
	return analysis.Options{Duration: duration, Checks: analysis.Checks{Metrics: metrics}}
}
