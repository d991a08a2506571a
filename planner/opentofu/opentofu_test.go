package opentofu

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// sourceOf returns an application with one file.
func sourceOf(t *testing.T, spec, text string) *source.Source {
	t.Helper()
	cfg, err := config.Kinds{config.Kubernetes(), config.OpenTofu()}.ParseApplication("app.pipecd.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: OpenTofuApp\nspec:\n  name: net\n"+spec))
	if err != nil {
		t.Fatal(err)
	}
	return &source.Source{Config: cfg, Objects: []manifest.Object{{Origin: manifest.Origin{File: "main.tf"}, Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "files.opentofu.piped/v1", "kind": "File", "metadata": map[string]any{"name": "main.tf"}, "text": text,
	}}}}}
}

const pipelined = "  pipeline: {stages: [{name: TERRAFORM_PLAN}, {name: WAIT_APPROVAL}, {name: TERRAFORM_APPLY}]}\n"

// TestDecide: the rules are PipeCD's.
func TestDecide(t *testing.T) {
	first, later := deploy.Application{Kind: deploy.KindOpenTofu}, deploy.Application{Kind: deploy.KindOpenTofu, LastSuccessful: &deploy.DeploymentRef{}}
	tests := map[string]struct {
		app      deploy.Application
		spec     string
		strategy deploy.Strategy
		want     string // the strategy, the stages, and whether it rolls back
		err      string
	}{
		"no pipeline":                {app: first, want: "QUICK_SYNC TERRAFORM_SYNC no rollback"},
		"no pipeline, later":         {app: later, want: "QUICK_SYNC TERRAFORM_SYNC ROLLBACK no rollback"},
		"rollbacks on":               {app: later, spec: "  input: {autoRollback: true}\n", want: "QUICK_SYNC TERRAFORM_SYNC ROLLBACK"},
		"rollbacks on, generic key":  {app: later, spec: "  planner: {autoRollback: true}\n", want: "QUICK_SYNC TERRAFORM_SYNC ROLLBACK"},
		"a pipeline, at first":       {app: first, spec: pipelined, want: "PIPELINE TERRAFORM_PLAN WAIT_APPROVAL TERRAFORM_APPLY no rollback"},
		"a pipeline, later":          {app: later, spec: pipelined, want: "PIPELINE TERRAFORM_PLAN WAIT_APPROVAL TERRAFORM_APPLY ROLLBACK no rollback"},
		"a quick sync on request":    {app: first, spec: pipelined, strategy: deploy.StrategyQuickSync, want: "QUICK_SYNC TERRAFORM_SYNC no rollback"},
		"a pipeline that is missing": {app: first, strategy: deploy.StrategyPipeline, err: "has no spec.pipeline"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Decider{func(context.Context, string, string, string, []string) (string, error) { return "tofu 1.12.6", nil }}
			plan, err := d.Decide(context.Background(), test.app, deploy.Deployment{Trigger: deploy.Trigger{Strategy: test.strategy}}, sourceOf(t, test.spec, ""), nil)
			if test.err != "" {
				if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := string(plan.Strategy)
			for i, s := range plan.Stages {
				got += " " + s.Name
				if s.Index != i {
					t.Errorf("stage %s has the index %d", s.Name, s.Index)
				}
			}
			if plan.NoAutoRollback {
				got += " no rollback"
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestDecideReadsTheFiles: the constraint on the program, and the modules from elsewhere.
func TestDecideReadsTheFiles(t *testing.T) {
	const text = `
terraform { required_version = ">= 1.9" }
module "vpc" {
  source  = "example/vpc/aws"
  version = "5.1.0"
}
module "own" { source = "../own" }
`
	var asked []string
	d := Decider{func(_ context.Context, _, _, _ string, required []string) (string, error) {
		asked = required
		return "tofu 1.12.6", nil
	}}
	plan, err := d.Decide(context.Background(), deploy.Application{}, deploy.Deployment{}, sourceOf(t, "", text), nil)
	if err != nil || strings.Join(asked, ",") != ">= 1.9" || len(plan.Versions) != 1 || plan.Versions[0].Name != "vpc" || plan.Versions[0].Version != "5.1.0" || plan.Versions[0].Kind != "TERRAFORM_MODULE" {
		t.Errorf("got %v, %v, asked for %v", plan.Versions, err, asked)
	}
	refuse := Decider{func(context.Context, string, string, string, []string) (string, error) {
		return "", deploy.Errorf(deploy.Invalid, "too old")
	}}
	if _, err := refuse.Decide(context.Background(), deploy.Application{}, deploy.Deployment{}, sourceOf(t, "", text), nil); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a program that does not fit was accepted: %v", err)
	}
}
