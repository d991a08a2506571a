package planner

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/source"
	sourcekube "github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
	"github.com/c785c783/piped/planner/kubernetes"
)

const manyApplications = 1000

// BenchmarkManyApplications measures the time from 1,000 deployments of one commit
// until all are planned. Each plan loads the target and the running state, and is a
// pipeline because the image changed.
func BenchmarkManyApplications(b *testing.B) {
	up := gittest.New(b)
	commits := []string{up.Push(b, "before", manyFiles("v1")), up.Push(b, "after", manyFiles("v2"))}
	repo, err := git.Open(git.Config{ID: "r", Remote: up.Dir, Branch: gittest.Branch, Dir: b.TempDir(), Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer repo.Close()
	if _, _, err := repo.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		s := storetest.New(b, nil)
		if _, errs := s.PutApplications(b.Context(), manyApps()); errs[0] != nil {
			b.Fatal(errs[0])
		}
		createMany(b, s, "before", commits[0])
		succeedMany(b, s, "before")
		loader := &source.Loader{Kinds: config.Kinds{config.Kubernetes()}, Renderers: map[string]render.Renderer{deploy.KindKubernetes: sourcekube.New(sourcekube.Config{})}, Tree: func(_, commit string) (fs.FS, error) { return repo.At(commit) }, CacheBytes: 8 << 20}
		p := New(Config{Store: s, Sources: loader, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
			Deciders: map[string]Decider{deploy.KindKubernetes: kubernetes.Decider{}}})
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		rescan := time.NewTicker(10 * time.Millisecond)
		go func() { ended <- p.Run(ctx) }()

		b.StartTimer()
		createMany(b, s, "after", commits[1])
		for pending := 1; pending > 0; {
			<-rescan.C
			ds, _, err := s.ListDeployments(b.Context(), store.DeploymentQuery{Statuses: []deploy.Status{deploy.Pending}, Limit: 1})
			if err != nil {
				b.Fatal(err)
			}
			pending = len(ds)
		}
		b.StopTimer()

		rescan.Stop()
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		d, err := s.Deployment(b.Context(), "after-7")
		if err != nil || d.Strategy != deploy.StrategyPipeline || d.Summary != "Pipeline: image web is updated from v1 to v2" {
			b.Fatalf("%s because %q, %v", d.Strategy, d.Summary, err)
		}
		b.StartTimer()
	}
}

func manyGit(i int) deploy.GitPath {
	return deploy.GitPath{RepoID: "r", Dir: fmt.Sprintf("apps/team-%d/app-%d", i%20, i), ConfigFile: "app.pipecd.yaml"}
}

func manyFiles(version string) map[string]string {
	out := map[string]string{}
	for i := range manyApplications {
		dir := manyGit(i).Dir + "/"
		out[dir+"app.pipecd.yaml"] = fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec: {name: app-%d, pipeline: {stages: [{name: K8S_SYNC}]}}
`, i)
		out[dir+"web.yaml"] = fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: app-%[1]d}
spec:
  selector: {matchLabels: {app: app-%[1]d}}
  template:
    metadata: {labels: {app: app-%[1]d}}
    spec: {containers: [{name: web, image: "example.com/web:%[2]s", envFrom: [{configMapRef: {name: web}}]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {a: b}
`, i, version)
	}
	return out
}

func manyApps() []deploy.Application {
	out := make([]deploy.Application, manyApplications)
	for i := range out {
		id := fmt.Sprintf("app-%d", i)
		out[i] = deploy.Application{ID: id, Name: id, Kind: deploy.KindKubernetes, Git: manyGit(i)}
	}
	return out
}

// createMany creates a deployment of a commit for every application.
func createMany(b *testing.B, s *store.Store, prefix, commit string) {
	ns := make([]store.NewDeployment, manyApplications)
	for i := range ns {
		app := fmt.Sprintf("app-%d", i)
		ns[i].Deployment = deploy.Deployment{
			ID: fmt.Sprintf("%s-%d", prefix, i), ApplicationID: app, ApplicationName: app, Git: manyGit(i), Status: deploy.Pending,
			Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now(), Strategy: deploy.StrategyAuto, Commit: deploy.Commit{Hash: commit}},
		}
	}
	_, errs := s.CreateDeployments(b.Context(), ns)
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// succeedMany moves all deployments to SUCCESS.
func succeedMany(b *testing.B, s *store.Store, prefix string) {
	for i := range manyApplications {
		for _, move := range []func(*deploy.Deployment) error{
			func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, time.Now()) },
			func(d *deploy.Deployment) error { return d.Start(time.Now()) },
			func(d *deploy.Deployment) error { return d.Complete(deploy.Success, "done", time.Now()) },
		} {
			if _, err := s.UpdateDeployment(b.Context(), fmt.Sprintf("%s-%d", prefix, i), move); err != nil {
				b.Fatal(err)
			}
		}
	}
}
