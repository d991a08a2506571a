package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/cluster/variant"
	"github.com/c785c783/piped/piped/config/kubernetes"
)

// Canary runs K8S_CANARY_ROLLOUT: it applies the workloads of the commit under other names,
// with the objects they use, and ends when their rollouts have ended.
func (e *Executor) Canary() Stage {
	return e.stage(
		admit, openCluster, render, refuseUnlabelled, carryOver, takeTrafficBack,
		makeCanary, permitSet, applySet, await,
	)
}

// makeCanary replaces the set of the commit by the set of its canary.
func makeCanary(ctx context.Context, w *work) error {
	var o kubernetes.CanaryRolloutOptions
	if err := readOptions(w.run.Stage, &o); err != nil {
		return err
	}
	return w.makeVariant(ctx, variant.Variant{
		Name: kubernetes.Canary, Suffix: o.Suffix, Replicas: o.Replicas, CreateService: o.CreateService, Patches: o.Patches,
	}, o.ReadyThreshold)
}
