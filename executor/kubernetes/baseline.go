package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/cluster/variant"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// Baseline runs K8S_BASELINE_ROLLOUT: it applies the workloads of the last success under
// other names, with the objects they use, and ends when their rollouts have ended. An
// analysis compares the canary with it, because the pods of both are new.
func (e *Executor) Baseline() Stage {
	return e.stage(
		admit, openCluster, render, refuseUnlabelled, needSuccess, carryOver, takeTrafficBack,
		restoreSet, makeBaseline, permitSet, applySet, await,
	)
}

// needSuccess refuses a baseline for an application without an earlier success.
func needSuccess(_ context.Context, w *work) error {
	if w.run.Deployment.RunningCommit != "" {
		return nil
	}
	return w.refuse(deploy.Errorf(deploy.Invalid, "there is no earlier success to make a baseline of: a first deployment cannot have one, so sync it with the strategy QUICK_SYNC"))
}

// makeBaseline replaces the set of the last success by the set of its baseline.
func makeBaseline(ctx context.Context, w *work) error {
	var o kubernetes.BaselineRolloutOptions
	if err := readOptions(w.run.Stage, &o); err != nil {
		return err
	}
	return w.makeVariant(ctx, variant.Variant{
		Name: kubernetes.Baseline, Suffix: o.Suffix, Replicas: o.Replicas, CreateService: o.CreateService,
	}, o.ReadyThreshold)
}
