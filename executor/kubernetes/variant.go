package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/variant"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// primaryLabel returns the label of the primary.
func primaryLabel(l kubernetes.VariantLabel) variant.Label {
	return variant.Label{Key: l.Key, Value: l.PrimaryValue}
}

// makeVariant replaces the set by the set of a variant of its objects. A variant runs no
// hooks, and its set is not stored, because a rollback removes the variant. threshold is
// the share of pods that must become available.
func (w *work) makeVariant(ctx context.Context, v variant.Variant, threshold strict.Percent) error {
	k := w.spec()
	v.Workloads, v.Service, v.Label = k.Workloads, k.Service.Name, variant.Label{Key: k.VariantLabel.Key, Value: k.VariantLabel.CanaryValue}
	if v.Name == kubernetes.Baseline {
		v.Label.Value = k.VariantLabel.BaselineValue
	}
	var err error
	if v.Replicas.Percent {
		if v.Live, err = w.cluster.Autoscaled(ctx, w.set.Objects); err != nil {
			return err
		}
	}
	objects, err := v.Make(withoutPrimaryServices(w.config, w.set.Objects))
	if err != nil {
		return w.refuse(err)
	}
	spec := specOf(w.config)
	spec.ReadyThreshold, spec.Prune = int(threshold), false
	if len(w.hooks) > 0 {
		w.log.Infof("The hooks of the commit are not run for the %s: they run with the primary", v.Name)
		w.hooks = nil
	}
	w.set = set{Commit: w.set.Commit, Spec: spec, Objects: objects, Variant: v.Name, Value: v.Label.Value}
	for _, o := range objects {
		if pods, ok, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); ok {
			w.log.Infof("The %s of commit %s: %s with %s", v.Name, deploy.ShortHash(w.set.Commit), manifest.Ref(o.Unstructured), countPods(pods))
		}
	}
	return nil
}

func countPods(n int64) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// carryOver stores the set of the last success as the deployment's own. A stage that
// applies the primary replaces it. Without such a stage the primary stays unchanged, and
// later rollbacks still find its set.
func carryOver(ctx context.Context, w *work) error {
	d := w.run.Deployment
	if d.RunningDeploymentID == "" {
		return nil
	}
	if _, err := w.Store.AppliedSet(ctx, d.ID); err == nil {
		return nil // an earlier stage has applied the primary, or has carried the set over
	}
	applied, err := w.Store.AppliedSet(ctx, d.RunningDeploymentID)
	if err != nil {
		return ctx.Err() // no set is stored: a rollback renders it from Git
	}
	applied.DeploymentID = d.ID
	return w.Store.SaveAppliedSet(ctx, applied)
}

// refuseUnlabelled fails the stage, before the deployment applies anything, if the pipeline
// moves traffic by the selector of a Service but no label distinguishes the primary's pods
// from those of the other variants.
func refuseUnlabelled(_ context.Context, w *work) error {
	k := w.spec()
	if k.TrafficRouting.Method != kubernetes.PodSelector || !hasStage(w.config, func(s config.Stage) bool { return s.Name == kubernetes.StageTrafficRouting }) {
		return nil
	}
	workloads, err := variant.Workloads(w.set.Objects, k.Workloads)
	if err != nil {
		return w.refuse(err)
	}
	label := primaryLabel(k.VariantLabel)
	var problems []error
	for _, o := range slices.Concat(workloads, routedServices(w.set.Objects, k.Service.Name)) {
		switch {
		case label.Has(o):
		case o.GetKind() == "Service":
			problems = append(problems, fmt.Errorf("%s: Service %s does not select %s: %s; add that to its spec.selector", o.Origin, o.GetName(), label.Key, label.Value))
		case !hasStage(w.config, addsLabel):
			problems = append(problems, fmt.Errorf("%s: %s %s has no label %s: %s in its selector and in its pod template; add it to both, or set addVariantLabelToSelector for %s and for spec.quickSync",
				o.Origin, o.GetKind(), o.GetName(), label.Key, label.Value, kubernetes.StagePrimaryRollout))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return w.refuse(deploy.Errorf(deploy.Invalid, "trafficRouting.method %s moves traffic between variants by their label: %w", kubernetes.PodSelector, errors.Join(problems...)))
}

// routedServices returns the Service whose selector moves the traffic: the one with the
// name, or the first if the name is empty. It returns nil if there is none.
func routedServices(objects []manifest.Object, name string) []manifest.Object {
	i := slices.IndexFunc(objects, func(o manifest.Object) bool {
		return isService(o) && (name == "" || o.GetName() == name)
	})
	if i < 0 {
		return nil
	}
	return objects[i : i+1]
}

func hasStage(c *config.Application, is func(config.Stage) bool) bool {
	return c.Pipeline != nil && slices.ContainsFunc(c.Pipeline.Stages, is)
}

// addsLabel reports whether a stage puts the primary's label into selectors.
func addsLabel(s config.Stage) bool {
	switch o := s.With.(type) {
	case *kubernetes.SyncStageOptions:
		return o.AddVariantLabelToSelector
	case *kubernetes.PrimaryRolloutOptions:
		return o.AddVariantLabelToSelector
	}
	return false
}

// ofVariants returns the items of the inventory that belong to variants.
func ofVariants(inventory []deploy.InventoryItem, variants ...kubernetes.Variant) []deploy.InventoryItem {
	return slices.DeleteFunc(slices.Clone(inventory), func(i deploy.InventoryItem) bool { return !slices.Contains(variants, kubernetes.Variant(i.Variant)) })
}

// ofPrimary returns the items that belong to neither the canary nor the baseline.
func ofPrimary(inventory []deploy.InventoryItem) []deploy.InventoryItem {
	return slices.DeleteFunc(slices.Clone(inventory), func(i deploy.InventoryItem) bool {
		return slices.Contains([]kubernetes.Variant{kubernetes.Canary, kubernetes.Baseline}, kubernetes.Variant(i.Variant))
	})
}

// variantOf returns the variant whose objects a stage applies.
func variantOf(stage deploy.Stage) kubernetes.Variant {
	switch stage.Name {
	case kubernetes.StageCanaryRollout:
		return kubernetes.Canary
	case kubernetes.StageBaselineRollout:
		return kubernetes.Baseline
	}
	return kubernetes.Primary
}
