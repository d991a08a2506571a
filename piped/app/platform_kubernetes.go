package app

import (
	"context"

	"github.com/c785c783/piped/executor/analysis"
	"github.com/c785c783/piped/executor/kubernetes"
	"github.com/c785c783/piped/piped/config"
	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/source"
	sourcekube "github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/planner"
	plankube "github.com/c785c783/piped/planner/kubernetes"
	"github.com/c785c783/piped/scheduler"
)

// kubernetesPlatform deploys Kubernetes applications. Its platform providers are the
// clusters.
type kubernetesPlatform struct {
	platformEnv
	running
	comparedClusters
	liveObjects

	connected *clusters
	renderer  *sourcekube.Renderer
	remover   *kubernetes.Remover
}

func openKubernetes(env platformEnv) platform {
	live := env.app.live
	remover := kubernetes.NewRemover(kubernetes.RemoverConfig{
		Store: env.store, Clusters: live.clusters, Tenancy: live.tenants, PipedID: env.cfg.PipedID,
		Logger: env.options.Logger.With("component", "removal"), Now: env.options.Now,
	})
	if !env.app.worker() {
		env.app.parts.add("removal", remover.Run)
	}
	return &kubernetesPlatform{
		remover:          remover,
		platformEnv:      env,
		running:          running{sources: env.sources.loader, clusters: live.clusters, tenants: live.tenants, pipedID: env.cfg.PipedID},
		comparedClusters: comparedClusters{live.clusters, live.tenants},
		liveObjects:      liveObjects{liveStates{env.store, live.clusters, live.tenants, env.options.Now}, env.cfg.PipedID},
		connected:        live.clusters,
		renderer:         sourcekube.New(sourcekube.Config{Charts: env.sources.charts, Capabilities: env.sources.serves.For, Remotes: env.sources.remotes}),
	}
}

// Use implements platform. The connections to clusters are planned before they are used,
// since a plan can fail: see live.
func (k *kubernetesPlatform) Use([]config.PlatformProvider) {}

// Providers implements platform.
func (k *kubernetesPlatform) Providers() []string { return k.connected.Names() }

// Renderer implements platform.
func (k *kubernetesPlatform) Renderer() render.Renderer { return k.renderer }

// Decider implements platform.
func (k *kubernetesPlatform) Decider() planner.Decider { return plankube.Decider{} }

// Changes implements platform.
func (k *kubernetesPlatform) Changes(ctx context.Context, d deploy.Deployment, running, target *source.Source) deploy.Effect {
	return deploy.Effect{Changes: plankube.Changes(d, k.connected.withPlaced(ctx, d.Provider, running), k.connected.withPlaced(ctx, d.Provider, target))}
}

// Stages implements platform.
func (k *kubernetesPlatform) Stages(analyses *analysis.Executor) map[string]scheduler.Executor {
	exec := kubernetes.New(kubernetes.Config{
		Store: k.platformEnv.store, Sources: k.platformEnv.sources.loader, Clusters: stageClusters{k.connected}, Tenancy: k.app.live.tenants, Analyzer: analyses,
		PipedID: k.cfg.PipedID, Policy: k.options.RolloutPolicy, Metrics: k.app.metrics.stages, Now: k.options.Now,
	})
	return map[string]scheduler.Executor{
		deploy.StageK8sSync:             exec.Sync(),
		deploy.StageRollback:            exec.Rollback(),
		kubeconfig.StagePrimaryRollout:  exec.Primary(),
		kubeconfig.StageCanaryRollout:   exec.Canary(),
		kubeconfig.StageCanaryClean:     exec.CleanCanary(),
		kubeconfig.StageBaselineRollout: exec.Baseline(),
		kubeconfig.StageBaselineClean:   exec.CleanBaseline(),
		kubeconfig.StageTrafficRouting:  exec.TrafficRouting(),
	}
}

// Removals implements control.Remover.
func (k *kubernetesPlatform) Removals(ctx context.Context, app deploy.Application) ([]deploy.InventoryItem, error) {
	return k.remover.Removals(ctx, app)
}

// Expected implements platform.
func (k *kubernetesPlatform) Expected(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (drift.Expected, error) {
	return expectation(set, d, inventory)
}
