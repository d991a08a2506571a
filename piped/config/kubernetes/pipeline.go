package kubernetes

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/platform"
	"github.com/c785c783/piped/piped/config/strict"
)

// stageOptions is implemented by the values of StageOptions.
type stageOptions interface {
	// complete fills what the options take from the spec and reports to d what
	// makes no sense in them; at is their path.
	complete(d *strict.Document, at string, s *Spec)
}

func (s *Spec) completeStages(d *strict.Document, stages []platform.Stage) {
	for _, stage := range stages {
		if o, ok := stage.Options.(stageOptions); ok {
			o.complete(d, stage.At+".with", s)
		}
	}
	s.checkSMI(d, stages)
	checkOrder(d, stages)
	checkSuffixes(d, stages)
	s.checkSelectors(d, stages)
	s.checkWorkloads(d, stages)
}

// checkSMI refuses the stages that would share traffic by SMI. Without any the method
// has no effect.
func (s *Spec) checkSMI(d *strict.Document, stages []platform.Stage) {
	if s.TrafficRouting.Method != SMI {
		return
	}
	shared := false
	for _, stage := range stages {
		if stage.Name == StageTrafficRouting {
			d.Problemf(stage.At+".name", "trafficRouting.method %s is not supported; use %s, %s, %s or %s", SMI, PodSelector, IstioMethod, HTTPRouteMethod, GRPCRouteMethod)
			shared = true
		}
	}
	if !shared {
		d.Warnf("trafficRouting.method", "%s is not supported by this version, and has no effect without a stage %s", SMI, StageTrafficRouting)
		s.TrafficRouting.Method = PodSelector
	}
}

func (o *SyncStageOptions) complete(d *strict.Document, at string, s *Spec) {
	inherit(d, at+".prune", &o.Prune, s.QuickSync.Prune)
	inherit(d, at+".addVariantLabelToSelector", &o.AddVariantLabelToSelector, s.QuickSync.AddVariantLabelToSelector)
	completeThreshold(d, at, &o.ReadyThreshold, s)
}

func (o *PrimaryRolloutOptions) complete(d *strict.Document, at string, s *Spec) {
	inherit(d, at+".suffix", &o.Suffix, s.VariantLabel.PrimaryValue)
	if o.CreateService {
		checkSuffix(d, at, o.Suffix)
	}
	completeThreshold(d, at, &o.ReadyThreshold, s)
}

func (o *CanaryRolloutOptions) complete(d *strict.Document, at string, s *Spec) {
	inherit(d, at+".suffix", &o.Suffix, s.VariantLabel.CanaryValue)
	checkSuffix(d, at, o.Suffix)
	completeThreshold(d, at, &o.ReadyThreshold, s)
	for i := range o.Patches {
		o.Patches[i].complete(d, fmt.Sprintf("%s.patches[%d]", at, i))
	}
}

func (o *BaselineRolloutOptions) complete(d *strict.Document, at string, s *Spec) {
	inherit(d, at+".suffix", &o.Suffix, s.VariantLabel.BaselineValue)
	checkSuffix(d, at, o.Suffix)
	completeThreshold(d, at, &o.ReadyThreshold, s)
}

func (o *CleanOptions) complete(*strict.Document, string, *Spec) {}

// inherit sets a value that is not written to that of another field.
func inherit[T any](d *strict.Document, field string, value *T, from T) {
	if !d.Has(field) {
		*value = from
	}
}

func completeThreshold(d *strict.Document, at string, p *strict.Percent, s *Spec) {
	if field := at + ".readyThreshold"; d.Has(field) {
		checkThreshold(d, field, *p)
		return
	}
	*p = s.ReadyThreshold
}

func checkThreshold(d *strict.Document, field string, p strict.Percent) {
	if p < 1 || p > 100 {
		d.Problemf(field, "expected a percentage from 1 to 100, found %d", p)
	}
}

func checkSuffix(d *strict.Document, at, suffix string) {
	for _, why := range validation.IsDNS1123Label(suffix) {
		d.Problemf(at+".suffix", "%q cannot stand at the end of an object's name: %s", suffix, why)
	}
}

// checkOrder reports stages that need another one before them.
func checkOrder(d *strict.Document, stages []platform.Stage) {
	there := map[string]bool{}            // rollout stages whose variant is there
	shares := map[string]strict.Percent{} // what of the traffic that gets
	for _, stage := range stages {
		switch o := stage.Options.(type) {
		case *CanaryRolloutOptions, *BaselineRolloutOptions:
			there[stage.Name] = true
		case *CleanOptions:
			rollout := rolloutOf(stage.Name)
			switch {
			case !there[rollout]:
				d.Problemf(stage.At+".name", "%s has nothing to remove; expected a %s before it", stage.Name, rollout)
			case shares[rollout] > 0:
				d.Problemf(stage.At+".name", "%s removes pods that get %d%% of the traffic; expected a %s before it that takes it from them", stage.Name, shares[rollout], StageTrafficRouting)
			}
			there[rollout] = false
		case *TrafficRoutingOptions:
			shares = map[string]strict.Percent{StageCanaryRollout: o.Canary, StageBaselineRollout: o.Baseline}
			for _, rollout := range []string{StageCanaryRollout, StageBaselineRollout} {
				if shares[rollout] > 0 && !there[rollout] {
					d.Problemf(stage.At+".with", "sends traffic to pods that are not there; expected a %s before it", rollout)
				}
			}
		}
	}
	for _, rollout := range []string{StageCanaryRollout, StageBaselineRollout} {
		if last := len(stages) - 1; there[rollout] && shares[rollout] > 0 {
			d.Warnf(stages[last].At, "the pipeline ends while %d%% of the traffic goes to what %s rolled out, and the next deployment takes it back; expected a %s that gives all of it to the primary", shares[rollout], rollout, StageTrafficRouting)
		}
	}
}

// checkSelectors warns of a label that one way of deploying puts into selectors and
// the other does not.
func (s *Spec) checkSelectors(d *strict.Document, stages []platform.Stage) {
	for _, stage := range stages {
		if o, ok := stage.Options.(*PrimaryRolloutOptions); ok && o.AddVariantLabelToSelector != s.QuickSync.AddVariantLabelToSelector {
			d.Warnf(stage.At+".with.addVariantLabelToSelector", "is %t, and quickSync.addVariantLabelToSelector is %t: the selector of a workload cannot be changed, "+
				"so that the way of deploying that comes second fails; write the same in both", o.AddVariantLabelToSelector, s.QuickSync.AddVariantLabelToSelector)
		}
	}
}

func rolloutOf(clean string) string {
	if clean == StageBaselineClean {
		return StageBaselineRollout
	}
	return StageCanaryRollout
}

// checkSuffixes reports variants whose objects would have the names of another one's.
func checkSuffixes(d *strict.Document, stages []platform.Stage) {
	taken := map[string]Variant{}
	for _, stage := range stages {
		v, suffix := suffixOf(stage)
		switch other, ok := taken[suffix]; {
		case v == "":
		case ok && other != v:
			d.Problemf(stage.At+".with.suffix", "%q is the suffix of the %s too; the variants must differ", suffix, other)
		default:
			taken[suffix] = v
		}
	}
}

// suffixOf returns which variant gets objects of its own in a stage, and what is behind
// their names; "" for none.
func suffixOf(stage platform.Stage) (v Variant, suffix string) {
	switch o := stage.Options.(type) {
	case *CanaryRolloutOptions:
		return Canary, o.Suffix
	case *BaselineRolloutOptions:
		return Baseline, o.Suffix
	case *PrimaryRolloutOptions:
		if o.CreateService {
			return Primary, o.Suffix
		}
	}
	return "", ""
}

// VariantKinds are the kinds of workload that can have a canary and a baseline.
func VariantKinds() []string { return []string{"Deployment", "StatefulSet"} }

// checkWorkloads reports workloads that cannot have the variants that the stages
// roll out.
func (s *Spec) checkWorkloads(d *strict.Document, stages []platform.Stage) {
	i := slices.IndexFunc(stages, func(stage platform.Stage) bool {
		return stage.Name == StageCanaryRollout || stage.Name == StageBaselineRollout
	})
	if i < 0 {
		return
	}
	for n, w := range s.Workloads {
		if !slices.Contains(VariantKinds(), w.Kind) {
			d.Problemf(fmt.Sprintf("workloads[%d].kind", n), "expected %s, which %s can make a variant of; found %q",
				strict.Alternatives(VariantKinds()), stages[i].Name, w.Kind)
		}
	}
}
