package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/strict"
)

// Spec is what a KubernetesApp says beyond the generic part.
type Spec struct {
	Input        Input        `yaml:"input"`
	QuickSync    SyncOptions  `yaml:"quickSync"`
	Workloads    []Reference  `yaml:"workloads"` // empty: every Deployment
	Service      Reference    `yaml:"service"`
	VariantLabel VariantLabel `yaml:"variantLabel"`

	// ReadyThreshold is the share of a workload's pods, 1 to 100, that must be
	// available for its rollout to have ended.
	ReadyThreshold strict.Percent `yaml:"readyThreshold"`
	// Strict ends rollouts by the upstream rule of `kubectl rollout status`.
	Strict bool `yaml:"strict"`
	// WaitTermination waits until old pods are gone, not only stopping.
	WaitTermination bool `yaml:"waitTermination"`
	// FailFast fails a rollout on image and crash errors without waiting for
	// its deadline.
	FailFast bool `yaml:"failFast"`
	// PruneKinds names the kinds among PrunableKinds that pruning may delete.
	PruneKinds []string `yaml:"pruneKinds"`
	// TakeOver permits applying objects that another owner claims.
	TakeOver bool `yaml:"takeOver"`

	TrafficRouting    TrafficRouting     `yaml:"trafficRouting"`
	ResourceRoutes    []ResourceRoute    `yaml:"resourceRoutes"`    // the first that matches an object counts
	ConfigPropagation *ConfigPropagation `yaml:"configPropagation"` // nil when not written
	HealthChecks      []HealthCheck      `yaml:"healthChecks"`
}

// SyncOptions are the options of K8S_SYNC.
type SyncOptions struct {
	Prune                     bool `yaml:"prune" json:"prune"`
	AddVariantLabelToSelector bool `yaml:"addVariantLabelToSelector" json:"addVariantLabelToSelector"`
}

// Reference names objects of the application. An empty Name means all of the
// kind.
type Reference struct {
	Kind string `yaml:"kind" json:"kind,omitempty"`
	Name string `yaml:"name" json:"name,omitempty"`
}

// VariantLabel is the label that tells the variants of a workload apart.
type VariantLabel struct {
	Key           string `yaml:"key"`
	PrimaryValue  string `yaml:"primaryValue"`
	CanaryValue   string `yaml:"canaryValue"`
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

// Rules returns the keys of spec that are known but not read.
func Rules() strict.Rules {
	const version = "the tool is built in, so the version has no meaning here; ignored"
	return strict.Rules{
		Ignored: map[string]string{
			"input.kubectlVersion":   version,
			"input.helmVersion":      version,
			"input.kustomizeVersion": version,
		},
	}
}

// Complete fills what depends on other fields and reports every value that
// makes no sense to d; stages are those of the pipeline.
func (s *Spec) Complete(d *strict.Document, stages []Stage) {
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
