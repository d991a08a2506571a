package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/executor/analysis"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/planner"
	"github.com/c785c783/piped/scheduler"
	"github.com/c785c783/piped/trigger"
)

// entry is the entry of one kind of application in the table of kinds.
type entry struct {
	kind config.Kind
	open func(platformEnv) platform
}

// entries is the table of the kinds of application that the agent deploys.
func entries() []entry {
	return []entry{{config.Kubernetes(), openKubernetes}, {config.OpenTofu(), openOpenTofu(config.OpenTofu())}, {config.Terraform(), openOpenTofu(config.Terraform())}}
}

// Kinds returns the kinds of application that the agent deploys, as files have them.
func Kinds() config.Kinds { return Options{}.kinds() }

// entries returns the table with the platforms of the options.
func (o Options) entries() []entry { return append(entries(), o.platforms...) }

func (o Options) kinds() (kinds config.Kinds) {
	for _, e := range o.entries() {
		kinds = append(kinds, e.kind)
	}
	return kinds
}

// platformEnv is what a platform is opened with.
type platformEnv struct {
	app     *App
	cfg     *config.Piped
	options Options
	store   *store.Store
	sources sources // its loaders are complete when the agent runs
	// wake requests that an application is compared with Git, since a live object has
	// changed; "" means all applications.
	wake func(applicationID string)
}

// platform is what the agent needs to deploy the applications of one kind.
type platform interface {
	// Use makes the platform providers of the kind those of the configuration in effect.
	Use(providers []config.PlatformProvider)
	// Providers returns the names of the platform providers of the kind.
	Providers() []string

	Renderer() render.Renderer
	Decider() planner.Decider
	// Changes returns the effect of a planned or previewed deployment on each object that
	// differs between running, the state before (nil for none), and target. d has no ID if it
	// is not stored.
	Changes(ctx context.Context, d deploy.Deployment, running, target *source.Source) deploy.Effect
	// Stages returns what runs the stages of the kind, by stage name. ROLLBACK is one.
	Stages(analyses *analysis.Executor) map[string]scheduler.Executor

	// The trigger asks for what runs on a provider, the drift detector for its objects, and
	// the API for the live state of an application.
	trigger.Live
	drift.Clusters
	// Expected decodes the applied set of the successful deployment d; see drift.Config.
	Expected(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (drift.Expected, error)
	LiveState(ctx context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error)
}

// platforms dispatches by the kind of an application, or by the platform provider.
type platforms struct {
	kinds config.Kinds
	all   map[string]platform // by kind
}

func openPlatforms(env platformEnv) platforms {
	ps := platforms{kinds: env.options.kinds(), all: map[string]platform{}}
	for _, e := range env.options.entries() {
		ps.all[e.kind.Name] = e.open(env)
	}
	return ps
}

// of returns the platform of a kind, which is "" in what was stored before there were
// several. The error is of kind deploy.Invalid.
func (ps platforms) of(kind string) (platform, error) {
	if p := ps.all[cmp.Or(kind, ps.kinds[0].Name)]; p != nil {
		return p, nil
	}
	return nil, deploy.Errorf(deploy.Invalid, "this agent does not deploy applications of kind %s", kind)
}

// serving returns the platform of a provider; the first one if the provider is not
// configured.
func (ps platforms) serving(provider string) platform {
	for _, kind := range ps.kinds {
		if p := ps.all[kind.Name]; slices.Contains(p.Providers(), provider) {
			return p
		}
	}
	return ps.all[ps.kinds[0].Name]
}

// use makes the providers those of the configuration in effect.
func (ps platforms) use(providers []config.PlatformProvider) {
	for kind, p := range ps.all {
		p.Use(providersOf(providers, kind))
	}
}

// providersOf returns the platform providers of a kind.
func providersOf(all []config.PlatformProvider, kind string) []config.PlatformProvider {
	return slices.DeleteFunc(slices.Clone(all), func(p config.PlatformProvider) bool { return p.Type != kind })
}

// Names returns the names of all providers, sorted.
func (ps platforms) Names() (names []string) {
	for _, p := range ps.all {
		names = append(names, p.Providers()...)
	}
	slices.Sort(names)
	return names
}

// providerKinds returns the kind of each provider, by name.
func (ps platforms) providerKinds() map[string]string {
	out := map[string]string{}
	for kind, p := range ps.all {
		for _, name := range p.Providers() {
			out[name] = kind
		}
	}
	return out
}

func (ps platforms) renderers() map[string]render.Renderer {
	out := map[string]render.Renderer{}
	for kind, p := range ps.all {
		out[kind] = p.Renderer()
	}
	return out
}

func (ps platforms) deciders() map[string]planner.Decider {
	out := map[string]planner.Decider{}
	for kind, p := range ps.all {
		out[kind] = p.Decider()
	}
	return out
}

// addStages adds what runs the stages of the kinds.
func (ps platforms) addStages(all map[string]scheduler.Executor, analyses *analysis.Executor) {
	byName := map[string]map[string]scheduler.Executor{} // by stage name and kind
	for kind, p := range ps.all {
		for name, executor := range p.Stages(analyses) {
			if byName[name] == nil {
				byName[name] = map[string]scheduler.Executor{}
			}
			byName[name][kind] = executor
		}
	}
	for name, byKind := range byName {
		all[name] = stageByKind(byKind)
	}
}

// stageByKind runs a stage by the kind of the application.
type stageByKind map[string]scheduler.Executor

// Execute implements scheduler.Executor.
func (s stageByKind) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	executor := s[run.Application.Kind]
	if executor == nil {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: fmt.Sprintf("applications of kind %s have no stage %s", run.Application.Kind, run.Stage.Name)}
	}
	return executor.Execute(ctx, run)
}

// RunningCommits implements trigger.Live.
func (ps platforms) RunningCommits(ctx context.Context, provider string, git deploy.GitPath, commit string) ([]string, error) {
	return ps.serving(provider).RunningCommits(ctx, provider, git, commit)
}

// Foreign implements trigger.Live.
func (ps platforms) Foreign(ctx context.Context, provider string, app deploy.Application, commit string) ([]deploy.AdoptedObject, error) {
	return ps.serving(provider).Foreign(ctx, provider, app, commit)
}

// Members implements drift.Clusters.
func (ps platforms) Members(provider string) (drift.Members, time.Time, error) {
	return ps.serving(provider).Members(provider)
}

// Hold implements drift.Clusters.
func (ps platforms) Hold(provider string, app deploy.Application) (drift.Comparer, func(), error) {
	return ps.serving(provider).Hold(provider, app)
}

// Refresh implements drift.Refresher.
func (ps platforms) Refresh(ctx context.Context, app deploy.Application) {
	if r, ok := ps.serving(app.Provider).(drift.Refresher); ok {
		r.Refresh(ctx, app)
	}
}

// Expected decodes an applied set for the drift detector.
func (ps platforms) Expected(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (drift.Expected, error) {
	p, err := ps.of(d.Kind)
	if err != nil {
		return drift.Expected{}, err
	}
	return p.Expected(set, d, inventory)
}

// Removals implements control.Remover. Of a platform that does not, too, applications
// can only be deleted without their objects.
func (ps platforms) Removals(ctx context.Context, app deploy.Application) ([]deploy.InventoryItem, error) {
	p, err := ps.of(app.Kind)
	if err != nil {
		return nil, err
	}
	remover, ok := p.(control.Remover)
	if !ok {
		return nil, deploy.Errorf(deploy.Invalid, "the objects of applications of kind %s cannot be deleted by the agent: delete the application without them", app.Kind)
	}
	return remover.Removals(ctx, app)
}

// LiveState implements control.Live.
func (ps platforms) LiveState(ctx context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error) {
	p, err := ps.of(app.Kind)
	if err != nil {
		return deploy.LiveState{ApplicationID: app.ID}, err
	}
	return p.LiveState(ctx, app, children)
}

// objects returns what reads the live objects of an application. The error is of kind
// deploy.Invalid if its platform does not.
func (ps platforms) objects(app deploy.Application) (control.Objects, error) {
	p, err := ps.of(app.Kind)
	if err != nil {
		return nil, err
	}
	if objects, ok := p.(control.Objects); ok {
		return objects, nil
	}
	return nil, deploy.Errorf(deploy.Invalid, "the agent cannot read single objects of applications of kind %s", app.Kind)
}

// LiveObject implements control.Objects.
func (ps platforms) LiveObject(ctx context.Context, app deploy.Application, q deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	objects, err := ps.objects(app)
	if err != nil {
		return deploy.ObjectDetail{}, err
	}
	return objects.LiveObject(ctx, app, q)
}

// ObjectEvents implements control.Objects.
func (ps platforms) ObjectEvents(ctx context.Context, app deploy.Application, q deploy.EventQuery) (deploy.ObjectEvents, error) {
	objects, err := ps.objects(app)
	if err != nil {
		return deploy.ObjectEvents{}, err
	}
	return objects.ObjectEvents(ctx, app, q)
}

// PodLog implements control.Objects.
func (ps platforms) PodLog(ctx context.Context, app deploy.Application, q deploy.PodLogQuery, send func(deploy.PodLog) error) error {
	objects, err := ps.objects(app)
	if err != nil {
		return err
	}
	return objects.PodLog(ctx, app, q, send)
}

// OnLiveChange implements control.Objects. Changes of a platform that reports none are found
// when the live state is read again.
func (ps platforms) OnLiveChange(app deploy.Application, changed func()) (stop func()) {
	objects, err := ps.objects(app)
	if err != nil {
		return func() {}
	}
	return objects.OnLiveChange(app, changed)
}
