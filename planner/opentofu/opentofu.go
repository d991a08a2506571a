// Package opentofu decides how OpenTofu and Terraform applications are deployed, as PipeCD does:
// by the pipeline of the configuration if there is one, the first deployment too, and otherwise by
// one stage that plans and applies.
package opentofu

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	sourcetofu "github.com/c785c783/piped/piped/source/opentofu"
	"github.com/c785c783/piped/planner/stage"
)

// syncID is the ID of the only stage of a quick sync.
const syncID = "TerraformSync"

// versionKind is the kind of the version of a module, as in PipeCD.
const versionKind = "TERRAFORM_MODULE"

// Program checks that the program of a platform provider serves an application. wanted is
// input.terraformVersion, required the constraints of required_version. It returns the program for
// the summary.
type Program func(ctx context.Context, kind, provider, wanted string, required []string) (string, error)

// Decider implements planner.Decider.
type Decider struct{ Program Program }

// Decide plans a deployment of target.
func (d Decider) Decide(ctx context.Context, app deploy.Application, dep deploy.Deployment, target *source.Source, running func(context.Context) (*source.Source, error)) (deploy.Plan, error) {
	described, err := sourcetofu.Describe(target.Objects)
	if err != nil {
		return deploy.Plan{}, err
	}
	spec := opentofu.SpecOf(target.Config.Platform)
	program, err := d.Program(ctx, app.Kind, dep.Provider, spec.Input.TerraformVersion, described.Required)
	if err != nil {
		return deploy.Plan{}, err
	}
	strategy, reason, err := choose(dep, target.Config)
	if err != nil {
		return deploy.Plan{}, err
	}
	stages, err := stagesOf(ctx, strategy, app, target.Config, running)
	if err != nil {
		return deploy.Plan{}, err
	}
	return deploy.Plan{
		Strategy: strategy, Summary: fmt.Sprintf("%s (%s)", reason, program), Versions: versions(described), Stages: stages,
		Timeout: target.Config.Timeout, RollbackTimeout: target.Config.Rollback.Timeout,
		NoAutoRollback: !target.Config.AutoRollback(), EnvironmentURL: target.Config.EnvironmentURL,
	}, nil
}

// choose returns the strategy with its reason.
func choose(d deploy.Deployment, cfg *config.Application) (deploy.Strategy, string, error) {
	switch t := d.Trigger; {
	case t.Strategy == deploy.StrategyPipeline && cfg.Pipeline == nil:
		return "", "", deploy.Errorf(deploy.Invalid, "a pipeline was requested, but %s has no spec.pipeline: add one, or sync with the strategy AUTO or QUICK_SYNC", d.Git.ConfigPath())
	case t.Strategy == deploy.StrategyPipeline, t.Strategy == deploy.StrategyQuickSync:
		return t.Strategy, t.StrategySummary, nil
	case cfg.Pipeline == nil:
		return deploy.StrategyQuickSync, "Quick sync: no pipeline is configured", nil
	}
	return deploy.StrategyPipeline, "Pipeline: the stages of the configuration", nil
}

// stagesOf returns the stages of a deployment, then those of its rollback.
func stagesOf(ctx context.Context, strategy deploy.Strategy, app deploy.Application, cfg *config.Application, running func(context.Context) (*source.Source, error)) (out []deploy.Stage, err error) {
	rollback := deploy.Stage{ID: deploy.RollbackID, Name: deploy.StageRollback, Desc: "Apply the last successful commit again", Rollback: true}
	if strategy == deploy.StrategyQuickSync {
		options, err := json.Marshal(opentofu.SpecOf(cfg.Platform).QuickSync)
		if err != nil {
			return nil, fmt.Errorf("encode the options of quickSync: %w", err)
		}
		out = []deploy.Stage{{ID: syncID, Name: opentofu.StageSync, Desc: "Plan the changes and apply them", Visible: true, Options: options}}
		if app.LastSuccessful != nil {
			out = append(out, rollback)
		}
		return numbered(out), nil
	}
	if out, err = stage.OfPipeline(cfg.Pipeline); err != nil {
		return nil, err
	}
	if first := firstApply(cfg.Pipeline); app.LastSuccessful != nil && first != "" {
		rollback.Metadata = map[string]string{deploy.MetaBaseStage: first} // before it there is nothing to undo
		out = append(out, rollback)
	}
	lastSyncs, err := stage.LastCustomSyncs(ctx, app, cfg, running)
	if err != nil {
		return nil, err
	}
	undo, err := stage.UndoScripts(cfg.Pipeline, lastSyncs)
	return numbered(append(out, undo...)), err
}

func numbered(stages []deploy.Stage) []deploy.Stage {
	for i := range stages {
		stages[i].Index = i
	}
	return stages
}

// firstApply returns the ID of the first stage of a pipeline that changes resources, "" for none.
func firstApply(p *config.Pipeline) string {
	for _, s := range p.Stages {
		if s.Name == opentofu.StageApply || s.Name == opentofu.StageSync {
			return s.ID
		}
	}
	return ""
}

// versions returns the modules that are called from elsewhere.
func versions(d sourcetofu.Description) (out []deploy.ArtifactVersion) {
	for _, m := range d.Modules {
		if m.Source != "" && !m.IsLocal() {
			out = append(out, deploy.ArtifactVersion{Kind: versionKind, Name: m.Name, Version: m.Version, URL: m.Source})
		}
	}
	return out
}
