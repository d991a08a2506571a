package kubernetes

import (
	"slices"

	"github.com/c785c783/piped/piped/cluster/variant"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Primary runs K8S_PRIMARY_ROLLOUT: it applies the objects of the commit, as K8S_SYNC does,
// and ends when all rollouts have ended. The traffic shares do not change.
func (e *Executor) Primary() Stage {
	return e.stage(
		admit, openCluster, render, refuseUnlabelled, permitSet, limitPrune, storeSet,
		applyShares, preHooks, applySet, await, postHooks, prune,
	)
}

// primaryServices returns the extra Services that the stages of the pipeline make for the
// primary (createService). Every stage that applies the primary applies them, so that a
// quick sync does not prune them. Only K8S_PRIMARY_ROLLOUT fails if one would select no
// pods; other stages leave it out.
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

// primarySuffixes returns the name suffixes of the extra Services.
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

// withoutPrimaryServices returns objects without the extra Services, which variants do not
// copy.
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
