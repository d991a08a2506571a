package kubernetes

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/cluster/variant"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
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
// of, whichever stage applies it: a quick sync does not take them away. Only
// K8S_PRIMARY_ROLLOUT insists on them where they would select no pods.
func (w *work) primaryServices(objects []manifest.Object) (out []manifest.Object, err error) {
	k := w.spec()
	for suffix := range primarySuffixes(w.config) {
		v := variant.Variant{Name: kubernetes.Primary, Suffix: suffix, Label: primaryLabel(k.VariantLabel), Workloads: k.Workloads, Service: k.Service.Name}
		services, err := v.Services(objects)
		if err != nil {
			return nil, err
		}
		for _, s := range services {
			switch {
			case variant.Reached(s, objects):
				out = append(out, s)
			case w.run.Stage.Name == kubernetes.StagePrimaryRollout:
				return nil, deploy.Errorf(deploy.Invalid, "createService: Service %s would select no pods, for no workload gives its pods the label %s: %s; "+
					"set addVariantLabelToSelector, for spec.quickSync too, or add the label to the workload", s.GetName(), v.Label.Key, v.Label.Value)
			}
		}
	}
	return out, nil
}

// primarySuffixes returns what the names of the extra Services end with.
func primarySuffixes(c *config.Application) map[string]bool {
	out := map[string]bool{}
	if c.Pipeline == nil {
		return out
	}
	for _, s := range c.Pipeline.Stages {
		if o, ok := s.With.(*kubernetes.PrimaryRolloutOptions); ok && o.CreateService {
			out[o.Suffix] = true
		}
	}
	return out
}

// withoutPrimaryServices returns objects without those extra Services: a variant has
// no copies of them.
func withoutPrimaryServices(c *config.Application, objects []manifest.Object) []manifest.Object {
	extra := map[string]bool{}
	for _, o := range objects {
		for suffix := range primarySuffixes(c) {
			extra[o.GetKind()+"/"+o.GetName()+"-"+suffix] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(objects), func(o manifest.Object) bool {
		return o.GetKind() == "Service" && extra["Service/"+o.GetName()]
	})
}
