package app

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/executor/analysis"
	"github.com/c785c783/piped/executor/opentofu"
	"github.com/c785c783/piped/piped/config"
	tofuconfig "github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	drifttofu "github.com/c785c783/piped/piped/drift/opentofu"
	"github.com/c785c783/piped/piped/manifest"
	programs "github.com/c785c783/piped/piped/opentofu"
	"github.com/c785c783/piped/piped/source"
	sourcetofu "github.com/c785c783/piped/piped/source/opentofu"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/planner"
	plantofu "github.com/c785c783/piped/planner/opentofu"
	"github.com/c785c783/piped/scheduler"
)

// openTofuPlatform deploys OpenTofu or Terraform applications. Its platform providers say which
// program runs, and how.
type openTofuPlatform struct {
	platformEnv
	kind     string
	programs *programs.Programs
	executor *opentofu.Executor
	watcher  *drifttofu.Watcher

	mu        sync.Mutex
	providers map[string]*tofuconfig.Provider
}

func openOpenTofu(kind config.Kind) func(platformEnv) platform {
	return func(env platformEnv) platform {
		p := &openTofuPlatform{platformEnv: env, kind: kind.Name, programs: &programs.Programs{}, providers: map[string]*tofuconfig.Provider{}}
		log := env.options.Logger.With("component", strings.ToLower(kind.Name))
		dir := filepath.Join(env.cfg.DataDir, strings.ToLower(kind.Name))
		if abs, err := filepath.Abs(dir); err == nil {
			dir = abs
		}
		p.executor = opentofu.New(opentofu.Config{
			Store: env.store, Kind: kind.Name, Files: env.sources.loader.Files, Provider: p.provider, Programs: p.programs, Dir: dir, Applied: p.applied, Logger: log, Now: env.options.Now,
			Kept: env.app.worker(), // an earlier worker of this process may still end its runs
		})
		p.watcher = drifttofu.New(drifttofu.Config{
			Store: env.store, Kind: kind.Name, Enabled: p.detectsDrift, Interval: p.driftInterval, Refresh: p.refresh, Rights: env.app.rights, Wake: env.wake, Mark: opentofu.AppliedMark, PipedID: env.cfg.PipedID,
			Logger: log, Now: env.options.Now,
		})
		env.app.parts.add(strings.ToLower(kind.Name)+" drift", p.watcher.Run)
		if !env.app.worker() { // the replica that has the database finishes what stages have left
			env.app.parts.add(strings.ToLower(kind.Name)+" stages", p.executor.Run)
		}
		return p
	}
}

// Use implements platform.
func (p *openTofuPlatform) Use(providers []config.PlatformProvider) {
	next := map[string]*tofuconfig.Provider{}
	for _, provider := range providers {
		next[provider.Name] = provider.Config.(*tofuconfig.Provider)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.providers = next
}

// Providers implements platform.
func (p *openTofuPlatform) Providers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.providers))
}

func (p *openTofuPlatform) provider(name string) (*tofuconfig.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if provider := p.providers[name]; provider != nil {
		return provider, nil
	}
	return nil, deploy.Errorf(deploy.Invalid, "the platform provider %q is no longer in the agent's configuration", name)
}

// detectsDrift reports whether a platform provider compares its applications.
func (p *openTofuPlatform) detectsDrift() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, provider := range p.providers {
		if provider.DriftDetectionEnabled {
			return true
		}
	}
	return false
}

func (p *openTofuPlatform) driftInterval(name string) (time.Duration, bool) {
	provider, err := p.provider(name)
	if err != nil || !provider.DriftDetectionEnabled {
		return 0, false
	}
	return provider.DriftInterval, true
}

// Renderer implements platform.
func (p *openTofuPlatform) Renderer() render.Renderer { return sourcetofu.Renderer{} }

// Decider implements platform.
func (p *openTofuPlatform) Decider() planner.Decider { return plantofu.Decider{Program: p.program} }

// program checks that the program serves an application, and returns its name with its version.
func (p *openTofuPlatform) program(ctx context.Context, kind, name, wanted string, required []string) (string, error) {
	provider, err := p.provider(name)
	if err != nil {
		return "", err
	}
	found, err := p.programs.Find(ctx, kind, provider, wanted, required)
	return filepath.Base(found.Path) + " " + found.Version, err
}

// Stages implements platform.
func (p *openTofuPlatform) Stages(*analysis.Executor) map[string]scheduler.Executor {
	return map[string]scheduler.Executor{
		tofuconfig.StagePlan: p.executor.Plan(), tofuconfig.StageApply: p.executor.Apply(), tofuconfig.StageSync: p.executor.Sync(),
		deploy.StageRollback: p.executor.Rollback(),
	}
}

// Changes implements platform. Once a deployment has a plan, its changes are the plan's. Before a
// deployment exists they are those of a new plan where the platform provider permits it. Otherwise
// they are the differences of the files, since a plan runs what the files say.
func (p *openTofuPlatform) Changes(ctx context.Context, d deploy.Deployment, running, target *source.Source) deploy.Effect {
	if d.ID != "" {
		if set, err := p.store.AppliedSet(ctx, d.ID); err == nil {
			if record, err := opentofu.RecordOf(set); err == nil && record.Plan != nil {
				return deploy.Effect{Changes: opentofu.Planned(d.Git, record.Plan.Changes), Summary: record.Plan.Summary, Digest: record.Plan.Digest}
			}
		}
		note := "the deployment has made no plan yet: these are the differences of the files"
		if d.Status.Completed() {
			note = "no plan of this deployment is stored: these are the differences of the files"
		}
		return deploy.Effect{Changes: fileChanges(running, target), Note: note}
	}
	if provider, err := p.provider(d.Provider); err != nil || !provider.PreviewPlans {
		return deploy.Effect{Changes: fileChanges(running, target), Note: "no plan was made, since the platform provider does not have previewPlans: these are the differences of the files"}
	}
	changes, summary, err := p.previewed(ctx, d, target)
	if err != nil {
		p.options.Logger.Warn("cannot make a plan for a preview; the files are compared instead", "app", d.ApplicationName, "error", err)
		return deploy.Effect{Changes: fileChanges(running, target), Note: "no plan could be made, so these are the differences of the files: " + err.Error()}
	}
	return deploy.Effect{Changes: opentofu.Planned(d.Git, changes), Summary: summary}
}

// previewed makes a plan for a deployment that does not exist, of a commit or of a proposed change.
func (p *openTofuPlatform) previewed(ctx context.Context, d deploy.Deployment, target *source.Source) ([]opentofu.ShownChange, string, error) {
	var files source.Files
	var err error
	if target.Tree != nil {
		files, err = p.sources.loader.FilesFrom(ctx, target.Tree, d.Git)
	} else {
		files, err = p.sources.loader.Files(ctx, d.Git, d.Trigger.Commit.Hash)
	}
	if err != nil {
		return nil, "", err
	}
	return p.executor.Preview(ctx, p.kind, d, files)
}

// fileChanges compares the files of two commits.
func fileChanges(running, target *source.Source) (out []deploy.PlannedChange) {
	var before []manifest.Object
	if running != nil {
		before = running.Objects
	}
	there := func(objects []manifest.Object, ref deploy.ObjectRef) bool {
		return slices.ContainsFunc(objects, func(o manifest.Object) bool { return manifest.Ref(o.Unstructured) == ref })
	}
	for _, diff := range manifest.Compare(before, target.Objects) {
		action := deploy.PlannedUpdate
		switch {
		case !there(before, diff.Ref()):
			action = deploy.PlannedCreate
		case !there(target.Objects, diff.Ref()):
			action = deploy.PlannedDelete
		}
		out = append(out, deploy.PlannedChange{Object: diff.Ref(), Action: action, Diff: diff.Hunks()})
	}
	return out
}

// RunningCommits implements trigger.Live: resources do not say which commit they are of.
func (p *openTofuPlatform) RunningCommits(context.Context, string, deploy.GitPath, string) ([]string, error) {
	return nil, nil
}

// Foreign implements trigger.Live: what is in the state belongs to the application.
func (p *openTofuPlatform) Foreign(context.Context, string, deploy.Application, string) ([]deploy.AdoptedObject, error) {
	return nil, nil
}

// applied is called after an apply.
func (p *openTofuPlatform) applied(applicationID string) {
	p.watcher.Applied(applicationID)
	p.wake(applicationID)
}

// refresh compares the resources of an application with its state.
func (p *openTofuPlatform) refresh(ctx context.Context, app deploy.Application) (out []drifttofu.Difference, err error) {
	changes, err := p.executor.Refresh(ctx, app)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		d := drifttofu.Difference{Object: opentofu.Ref(app.LastSuccessful.At(app.Git), c.Resource), Missing: c.Action == programs.Delete}
		for _, a := range c.Attributes {
			d.Fields = append(d.Fields, deploy.FieldDrift{Path: a.Path, Git: a.Before, Live: a.After, Masked: a.Before == programs.Masked || a.After == programs.Masked})
		}
		out = append(out, d)
	}
	return out, nil
}

// Members implements drift.Clusters.
func (p *openTofuPlatform) Members(provider string) (drift.Members, time.Time, error) {
	if _, err := p.provider(provider); err != nil {
		return nil, time.Time{}, fmt.Errorf("the platform provider %q is not configured", provider)
	}
	return p.watcher.Members(provider), time.Time{}, nil
}

// Hold implements drift.Clusters.
func (p *openTofuPlatform) Hold(provider string, _ deploy.Application) (drift.Comparer, func(), error) {
	return p.watcher.Members(provider), func() {}, nil
}

// Refresh implements drift.Refresher.
func (p *openTofuPlatform) Refresh(ctx context.Context, app deploy.Application) {
	p.watcher.RefreshNow(ctx, app)
}

// Expected implements platform: the resources of the state after the deployment.
func (p *openTofuPlatform) Expected(set deploy.AppliedSet, d deploy.Deployment, _ []deploy.InventoryItem) (out drift.Expected, err error) {
	record, err := opentofu.RecordOf(set)
	if err != nil {
		return out, err
	}
	out.Commit = set.Commit
	if record.State == nil {
		return out, nil
	}
	for _, r := range record.State.Resources {
		ref := opentofu.Ref(d.Git, r.Resource)
		out.Objects = append(out.Objects, manifest.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": ref.Group + "/" + ref.Version, "kind": ref.Kind, "metadata": map[string]any{"namespace": ref.Namespace, "name": ref.Name},
		}}})
	}
	return out, nil
}

// LiveState implements platform: the resources and outputs of the last state. With children, the
// resources of a module are below it.
func (p *openTofuPlatform) LiveState(ctx context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error) {
	state := deploy.LiveState{ApplicationID: app.ID, ReadAt: p.options.Now()}
	if app.LastSuccessful == nil {
		return state, nil
	}
	set, err := p.store.AppliedSet(ctx, app.LastSuccessful.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	record, err := opentofu.RecordOf(set)
	if err != nil || record.State == nil {
		return state, err
	}
	at := app.LastSuccessful.At(app.Git)
	resources := p.liveResources(app, at, record.State.Resources)
	if children == deploy.NoChildren {
		for _, r := range resources {
			state.Objects = append(state.Objects, r.LiveObject)
		}
	} else {
		state.Objects = modulesOf(app.Provider, at, resources)
	}
	for _, output := range record.State.Outputs {
		state.Objects = append(state.Objects, deploy.LiveObject{
			Cluster: app.Provider, Object: opentofu.Ref(at, programs.Resource{Name: output.Name}), Variant: "primary", Declared: true, Health: deploy.Healthy,
			Reason: output.Value,
		})
	}
	for _, r := range resources {
		if state.Health == "" || r.Health.WorseThan(state.Health) {
			state.Health = r.Health
		}
	}
	return state, nil
}
