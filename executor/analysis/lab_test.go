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
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/deploytest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// script answers queries by a function instead of a server: for tests of time,
// whose clock no server shares.
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

// commit is the one that is deployed.
const commit = "c0ffee0123456789c0ffee0123456789c0ffee01"

// sources are the configuration of the one application.
type sources struct{ namespace string }

func (s sources) Config(context.Context, deploy.GitPath, string) (*config.Application, error) {
	app := &config.Application{}
	app.Kubernetes.Input.Namespace = s.namespace
	return app, nil
}

// lab is a store with a RUNNING deployment, d, that has an analysis stage "s".
type lab struct {
	t         *testing.T
	store     *store.Store
	providers Providers
	tree      fstest.MapFS
	log       *deploytest.Log
	id        string // of the deployment
}

func newLab(t *testing.T, providers Providers) *lab {
	l := &lab{t: t, store: storetest.New(t, nil), providers: providers, tree: fstest.MapFS{}, log: &deploytest.Log{}}
	l.deploy("d")
	return l
}

// deploy makes id the deployment that runs.
func (l *lab) deploy(id string) {
	l.t.Helper()
	ctx := context.Background()
	at := deploy.GitPath{RepoID: "r", Dir: "apps/web", ConfigFile: "app.pipecd.yaml"}
	a := deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes, Provider: "one", Git: at}
	if _, err := l.store.PutApplication(ctx, a); err != nil {
		l.t.Fatal(err)
	}
	d := deploy.Deployment{
		ID: id, ApplicationID: "app", ApplicationName: "web", Git: at, Labels: map[string]string{"env": "prod"}, Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommand, Commit: deploy.Commit{Hash: commit}},
	}
	if _, err := l.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
		l.t.Fatal(err)
	}
	l.id = id
}

func (l *lab) executor() *Executor {
	e := New(Config{
		Store: l.store, Sources: sources{"shop"}, Providers: l.providers, Now: time.Now, Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)),
		Tree: func(repo, hash string) (fs.FS, error) {
			if repo != "r" || hash != commit {
				return nil, fmt.Errorf("no commit %s in %s", hash, repo)
			}
			return l.tree, nil
		},
	})
	l.t.Cleanup(func() { _ = e.Close() }) // it returns nil
	return e
}

// run is what the scheduler hands over for a stage that began at a time.
func (l *lab) run(o analysis.Options, began time.Time, resumed bool) deploy.StageRun {
	l.t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		l.t.Fatal(err)
	}
	d, err := l.store.Deployment(context.Background(), l.id)
	if err != nil {
		l.t.Fatal(err)
	}
	return deploy.StageRun{
		Application: deploy.Application{ID: "app", Name: "web"}, Deployment: d, Resumed: resumed, Log: l.log,
		Stage: deploy.Stage{ID: "s", Name: deploy.StageAnalysis, Options: options, StartedAt: began},
	}
}

// execute runs the stage to its end, and returns how it ended and after how long.
func (l *lab) execute(ctx context.Context, o analysis.Options) (deploy.StageResult, time.Duration) {
	l.t.Helper()
	began := time.Now()
	result := l.executor().Execute(ctx, l.run(o, began, false))
	return result, time.Since(began)
}

// samples returns what is stored of the stage: check, position, verdict, and
// whether it counts.
func (l *lab) samples() (out []string) {
	l.t.Helper()
	stored, err := l.store.AnalysisSamples(context.Background(), l.id, "s")
	if err != nil {
		l.t.Fatal(err)
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

// atMost returns a metric that must be at most max, looked at each interval.
func atMost(max float64, interval strict.Duration) analysis.Metric {
	return analysis.Metric{
		Check: analysis.Check{Name: "errors", Interval: interval, Timeout: seconds(5)}, Provider: "p", Query: "errors",
		Strategy: analysis.Threshold, Expected: analysis.Expected{Max: &max}, Deviation: analysis.Either,
	}
}

// options are those of an analysis of metrics.
func options(duration strict.Duration, metrics ...analysis.Metric) analysis.Options {
	return analysis.Options{Duration: duration, Checks: analysis.Checks{Metrics: metrics}}
}
