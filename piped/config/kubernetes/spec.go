package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/platform"
	"github.com/c785c783/piped/piped/config/strict"
)

// Spec is what a KubernetesApp says beyond the generic part.
type Spec struct {
	// Input is where the objects come from.
	Input Input `yaml:"input"`
	// QuickSync is the options of `K8S_SYNC` in a quick sync.
	QuickSync SyncOptions `yaml:"quickSync"`
	// Workloads are the workloads whose changes decide for the pipeline.
	// Default: every Deployment.
	Workloads []Reference `yaml:"workloads"`
	// Service is the Service of the application: `createService` copies it, and `podselector`
	// switches it. Its kind is `Service`.
	// Default: none.
	Service Reference `yaml:"service"`
	// VariantLabel is the label and annotation of the variants.
	VariantLabel VariantLabel `yaml:"variantLabel"`

	// ReadyThreshold is the share of a workload's pods that must be available for its rollout to
	// be complete, rounded up, at least one pod.
	// Not in PipeCD.
	ReadyThreshold strict.Percent `yaml:"readyThreshold"`
	// Strict uses the rule of `kubectl rollout status`: every pod wanted at that moment must be
	// new and available.
	// Not in PipeCD.
	Strict bool `yaml:"strict"`
	// WaitTermination waits until the old pods of a Deployment are gone, not only stopping.
	// Kubernetes 1.35 and later count them.
	// Not in PipeCD.
	WaitTermination bool `yaml:"waitTermination"`
	// FailFast fails a rollout on image, configuration and crash errors without waiting for its
	// deadline.
	// Not in PipeCD.
	FailFast bool `yaml:"failFast"`
	// PruneKinds are those of Namespace, CustomResourceDefinition, PersistentVolume and
	// PersistentVolumeClaim that pruning may delete.
	// Default: none. Not in PipeCD.
	PruneKinds []string `yaml:"pruneKinds"`
	// TakeOver permits applying objects that another application owns, or has claimed for a
	// deployment that runs at the same time.
	// Not in PipeCD.
	TakeOver bool `yaml:"takeOver"`

	// TrafficRouting is how `K8S_TRAFFIC_ROUTING` shares traffic.
	TrafficRouting TrafficRouting `yaml:"trafficRouting"`
	// ResourceRoutes are refused in this version: deploying one application to several providers
	// is not supported.
	//
	// The first that matches an object counts.
	ResourceRoutes []ResourceRoute `yaml:"resourceRoutes"`
	// ConfigPropagation is how changed ConfigMaps and Secrets reach the pods.
	// Not in PipeCD.
	//
	// It is nil when not written.
	ConfigPropagation *ConfigPropagation `yaml:"configPropagation"`
	// HealthChecks are conditions of custom resources whose conditions have other names than the
	// usual ones.
	// Not in PipeCD.
	HealthChecks []HealthCheck `yaml:"healthChecks"`
}

// SyncOptions are the options of K8S_SYNC.
type SyncOptions struct {
	// Prune deletes what the application applied and Git no longer declares. A stage `K8S_SYNC`
	// without it takes the value of `quickSync`.
	Prune bool `yaml:"prune" json:"prune"`
	// AddVariantLabelToSelector adds the variant label of the primary to the selector and pod
	// template of every workload. A stage `K8S_SYNC` without it takes the value of `quickSync`.
	AddVariantLabelToSelector bool `yaml:"addVariantLabelToSelector" json:"addVariantLabelToSelector"`
}

// Reference names objects of the application. An empty Name means all of the
// kind.
type Reference struct {
	// Kind is the kind of the object. Of a patch's target: a workload, a ConfigMap or Secret that
	// its pods use, or its Service.
	Kind string `yaml:"kind" json:"kind,omitempty"`
	// Name is the name of the object in Git. Where it may be omitted, it is every object of the
	// kind.
	Name string `yaml:"name" json:"name,omitempty"`
}

// VariantLabel is the label that distinguishes the variants of a workload.
type VariantLabel struct {
	// Key is the key of the label.
	Key string `yaml:"key"`
	// PrimaryValue is its value of the primary.
	PrimaryValue string `yaml:"primaryValue"`
	// CanaryValue is its value of the canary.
	CanaryValue string `yaml:"canaryValue"`
	// BaselineValue is its value of the baseline.
	BaselineValue string `yaml:"baselineValue"`
}

// PrunableKinds are the kinds that are never pruned unless pruneKinds names
// them, because data or other people's objects go with them.
func PrunableKinds() []string {
	return []string{"Namespace", "CustomResourceDefinition", "PersistentVolume", "PersistentVolumeClaim"}
}

// DefaultSpec returns the defaults of every field.
func DefaultSpec() Spec {
	return Spec{
		VariantLabel: VariantLabel{
			Key: "pipecd.dev/variant", PrimaryValue: "primary", CanaryValue: "canary", BaselineValue: "baseline",
		},
		ReadyThreshold: 100,
		FailFast:       true,
		TrafficRouting: TrafficRouting{Method: PodSelector},
	}
}

// Ignored returns the keys of spec that are known but not read.
func Ignored() map[string]string {
	const version = "the tool is built in, so the version has no meaning here; ignored"
	return map[string]string{
		"input.kubectlVersion":   version,
		"input.helmVersion":      version,
		"input.kustomizeVersion": version,
	}
}

// RollbackSwitch returns input.autoRollback.
func (s *Spec) RollbackSwitch() (field string, written *bool) {
	return "input.autoRollback", s.Input.AutoRollback
}

// SpecOf returns the spec of an application of this kind, which holds it as its platform.
// It panics for an application of another kind.
func SpecOf(platform any) *Spec { return platform.(*Spec) }

// Complete fills what depends on other fields and reports every value that
// makes no sense to d; stages are those of the pipeline.
func (s *Spec) Complete(d *strict.Document, stages []platform.Stage) {
	s.Input.complete(d)
	for i := range s.Workloads {
		if s.Workloads[i].Kind == "" {
			s.Workloads[i].Kind = "Deployment"
		}
	}
	switch s.Service.Kind {
	case "":
	case "Service":
		d.Warnf("service.kind", "has no effect; it is always Service")
	default:
		d.Problemf("service.kind", "expected Service, found %q", s.Service.Kind)
	}
	checkThreshold(d, "readyThreshold", s.ReadyThreshold)
	for i, kind := range s.PruneKinds {
		if !slices.Contains(PrunableKinds(), kind) {
			d.Problemf(fmt.Sprintf("pruneKinds[%d]", i), "expected one of %s, found %q; every other kind is pruned without being named",
				strings.Join(PrunableKinds(), ", "), kind)
		}
	}
	s.VariantLabel.validate(d)
	s.TrafficRouting.complete(d, s.Service.Name)
	for i, r := range s.ResourceRoutes {
		r.complete(d, fmt.Sprintf("resourceRoutes[%d]", i))
	}
	if s.ConfigPropagation != nil {
		s.ConfigPropagation.complete(d)
	}
	for i := range s.HealthChecks {
		s.HealthChecks[i].complete(d, fmt.Sprintf("healthChecks[%d]", i))
	}
	s.completeStages(d, stages)
}

func (l VariantLabel) validate(d *strict.Document) {
	for _, why := range validation.IsQualifiedName(l.Key) {
		d.Problemf("variantLabel.key", "%q is not a label key: %s", l.Key, why)
	}
	values := []struct{ field, value string }{
		{"primaryValue", l.PrimaryValue}, {"canaryValue", l.CanaryValue}, {"baselineValue", l.BaselineValue},
	}
	seen := map[string]string{}
	for _, v := range values {
		if v.value == "" {
			d.Problemf("variantLabel."+v.field, "expected a label value, found an empty one")
			continue
		}
		for _, why := range validation.IsValidLabelValue(v.value) {
			d.Problemf("variantLabel."+v.field, "%q is not a label value: %s", v.value, why)
		}
		if other, taken := seen[v.value]; taken {
			d.Problemf("variantLabel."+v.field, "has the same value as variantLabel.%s; the variants must differ", other)
		}
		seen[v.value] = v.field
	}
}
