package kubernetes

import (
	"context"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/kubernetes/variant"
	"github.com/c785c783/piped/piped/manifest"
)

// Primary runs K8S_PRIMARY_ROLLOUT: it makes the cluster hold what the commit
// declares, as K8S_SYNC does, while the traffic goes where it went.
func (e *Executor) Primary() Stage {
	return e.stage(admit, openCluster, render, refuseUnlabelled, permitSet, limitPrune, keep, keepTraffic, preHooks, apply, await, postHooks, prune)
}

// keepTraffic puts the shares into the set that the deployment has given to the
// variants. What is kept for later rollbacks has those of Git.
func keepTraffic(ctx context.Context, w *work) (err error) {
	w.set.Objects, err = w.overlay(ctx, w.set.Objects)
	return err
}

// primaryServices returns the extra Services that the stages of the pipeline make
// for the primary (createService). They are part of what the application consists
// of, whichever stage applies it: a quick sync does not take them away.
func primaryServices(c *config.Application, objects []manifest.Object) (out []manifest.Object, err error) {
	if c.Pipeline == nil {
		return nil, nil
	}
	for _, s := range c.Pipeline.Stages {
		o, ok := s.With.(*kubernetes.PrimaryRolloutOptions)
		if !ok || !o.CreateService {
			continue
		}
		k := c.Kubernetes
		v := variant.Variant{Name: kubernetes.Primary, Suffix: o.Suffix, Label: primaryLabel(k.VariantLabel), Workloads: k.Workloads, Service: k.Service.Name}
		services, err := v.Services(objects)
		if err != nil {
			return nil, err
		}
		out = append(out, services...)
	}
	return out, nil
}
