package kubernetes

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

const workload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {spec: {containers: [{name: web, image: "registry.example/web:v2"}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
`

// loadApp loads an application; spec is YAML below spec.
func loadApp(t *testing.T, spec string) (deploy.GitPath, *source.Source) {
	t.Helper()
	files := fstest.MapFS{
		"web/app.pipecd.yaml": {Data: []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n" + spec)},
		"web/d.yaml":          {Data: []byte(workload)},
	}
	loader := &source.Loader{Tree: func(string, string) (fs.FS, error) { return files, nil }}
	git := deploy.GitPath{RepoID: "r", Dir: "web", ConfigFile: "app.pipecd.yaml"}
	s, err := loader.Load(t.Context(), git, "c0ffee0")
	if err != nil {
		t.Fatal(err)
	}
	return git, s
}

// TestDecide states the plan of a deployment.
func TestDecide(t *testing.T) {
	success := &deploy.DeploymentRef{DeploymentID: "before"}
	type want struct {
		Summary           string
		Stages            []string
		Timeout, Rollback time.Duration
	}
	cases := []struct {
		name     string
		spec     string
		last     *deploy.DeploymentRef
		strategy deploy.Strategy
		want     want
	}{
		{"a first deployment has nothing to return to", "", nil, deploy.StrategyAuto,
			want{"Quick sync: first deployment of 2 manifests", []string{"K8S_SYNC"}, 6 * time.Hour, 6 * time.Hour}},
		{"a later one has", "", success, deploy.StrategyAuto,
			want{"Quick sync: no pipeline is configured", []string{"K8S_SYNC", "ROLLBACK"}, 6 * time.Hour, 6 * time.Hour}},
		{"unless the application forbids it", "  planner: {autoRollback: false}\n", success, deploy.StrategyAuto,
			want{"Quick sync: no pipeline is configured", []string{"K8S_SYNC", "ROLLBACK"}, 6 * time.Hour, 6 * time.Hour}},
		{"or so in input", "  input: {autoRollback: false}\n", success, deploy.StrategyAuto,
			want{"Quick sync: no pipeline is configured", []string{"K8S_SYNC", "ROLLBACK"}, 6 * time.Hour, 6 * time.Hour}},
		{"timeouts", "  timeout: 10m\n  rollback: {timeout: 3m}\n", success, deploy.StrategyAuto,
			want{"Quick sync: no pipeline is configured", []string{"K8S_SYNC", "ROLLBACK"}, 10 * time.Minute, 3 * time.Minute}},
		{"a quick sync that was asked for", "", success, deploy.StrategyQuickSync,
			want{"Sync by hand", []string{"K8S_SYNC", "ROLLBACK"}, 6 * time.Hour, 6 * time.Hour}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			git, target := loadApp(t, c.spec)
			d := deploy.Deployment{ID: "d", Git: git, Trigger: deploy.Trigger{Strategy: c.strategy, StrategySummary: "Sync by hand"}}
			plan, err := Decider{}.Decide(t.Context(), deploy.Application{LastSuccessful: c.last}, d, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := want{Summary: plan.Summary, Timeout: plan.Timeout, Rollback: plan.RollbackTimeout}
			for _, s := range plan.Stages {
				got.Stages = append(got.Stages, s.Name)
				if s.Rollback != (s.Name == deploy.StageRollback) || s.Visible == s.Rollback {
					t.Errorf("stage %s: rollback %v, visible %v", s.Name, s.Rollback, s.Visible)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if v := fmt.Sprint(plan.Versions); !strings.Contains(v, "registry.example/web:v2") {
				t.Errorf("versions: %s", v)
			}
		})
	}
}

// TestPipelineIsRefused: a strategy the application cannot follow is the user's
// to change.
func TestPipelineIsRefused(t *testing.T) {
	git, target := loadApp(t, "")
	_, err := Decider{}.Decide(t.Context(), deploy.Application{}, deploy.Deployment{Git: git, Trigger: deploy.Trigger{Strategy: deploy.StrategyPipeline}}, target, nil)
	if want := "a pipeline was asked for, but web/app.pipecd.yaml has no spec.pipeline: "; !deploy.IsKind(err, deploy.Invalid) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
