package kubernetes

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/planner/stage"
)

// quickSyncID is the ID of the only stage of a quick sync.
const quickSyncID = "K8sSync"

// stagesOf returns the stages of a deployment in order, then those of its rollback. The
// rollback restores the last success, or only removes variants without one, and undoes
// scripts. lastSyncs are the CUSTOM_SYNC stages of the last success.
func stagesOf(strategy deploy.Strategy, cfg *config.Application, succeeded bool, lastSyncs []config.Stage) ([]deploy.Stage, error) {
	stages, err := forwardStages(strategy, cfg)
	if err != nil {
		return nil, err
	}
	rollback, err := rollbackStages(strategy, cfg, succeeded, lastSyncs)
	if err != nil {
		return nil, err
	}
	stages = append(stages, rollback...)
	for i := range stages {
		stages[i].Index = i
	}
	return stages, nil
}

// forwardStages returns the stages of a deployment without those of its rollback. Each
// requires the one before it.
func forwardStages(strategy deploy.Strategy, cfg *config.Application) ([]deploy.Stage, error) {
	if strategy == deploy.StrategyQuickSync {
		k := kubernetes.SpecOf(cfg.Platform)
		options, err := json.Marshal(kubernetes.SyncStageOptions{SyncOptions: k.QuickSync, ReadyThreshold: k.ReadyThreshold})
		return []deploy.Stage{{
			ID: quickSyncID, Name: deploy.StageK8sSync, Desc: "Apply all manifests and wait until every workload has rolled out",
			Visible: true, Options: options,
		}}, err
	}
	return stage.OfPipeline(cfg.Pipeline)
}

// rollbackStages returns the stages that run if the deployment fails; see stagesOf.
func rollbackStages(strategy deploy.Strategy, cfg *config.Application, succeeded bool, lastSyncs []config.Stage) ([]deploy.Stage, error) {
	var out []deploy.Stage
	rollback := deploy.Stage{ID: deploy.RollbackID, Name: deploy.StageRollback, Desc: "Apply the last successful state again and wait for it", Rollback: true}
	switch {
	case succeeded && (strategy == deploy.StrategyQuickSync || writesObjects(cfg.Pipeline)):
		out = append(out, rollback)
	case !succeeded && strategy == deploy.StrategyPipeline && makesVariants(cfg.Pipeline):
		rollback.Desc = "Remove the canary and the baseline"
		out = append(out, rollback)
	}
	if strategy == deploy.StrategyQuickSync {
		return out, nil
	}
	undo, err := stage.UndoScripts(cfg.Pipeline, lastSyncs)
	return append(out, undo...), err
}

// writesObjects reports whether a pipeline has a stage that writes to a cluster.
// ROLLBACK has nothing to restore after scripts alone.
func writesObjects(p *config.Pipeline) bool {
	return slices.ContainsFunc(p.Stages, func(s config.Stage) bool { return strings.HasPrefix(s.Name, "K8S_") })
}

// makesVariants reports whether a pipeline rolls out a canary or a baseline. ROLLBACK
// removes them even without an earlier success.
func makesVariants(p *config.Pipeline) bool {
	return slices.ContainsFunc(p.Stages, func(s config.Stage) bool {
		return s.Name == kubernetes.StageCanaryRollout || s.Name == kubernetes.StageBaselineRollout
	})
}
