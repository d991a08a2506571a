package kubernetes

import (
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Names of the stages that only Kubernetes has.
const (
	StageSync            = deploy.StageK8sSync
	StagePrimaryRollout  = "K8S_PRIMARY_ROLLOUT"
	StageCanaryRollout   = "K8S_CANARY_ROLLOUT"
	StageCanaryClean     = "K8S_CANARY_CLEAN"
	StageBaselineRollout = "K8S_BASELINE_ROLLOUT"
	StageBaselineClean   = "K8S_BASELINE_CLEAN"
	StageTrafficRouting  = "K8S_TRAFFIC_ROUTING"
)

// StageOptions returns the options of the stages that only Kubernetes has, by
// stage name, each as a pointer that holds the defaults. Once an application is
// read, they hold the values that are in force.
func StageOptions() map[string]any {
	return map[string]any{
		StageSync:            &SyncStageOptions{},
		StagePrimaryRollout:  &PrimaryRolloutOptions{},
		StageCanaryRollout:   &CanaryRolloutOptions{Replicas: Replicas{Number: 1}},
		StageCanaryClean:     &CleanOptions{},
		StageBaselineRollout: &BaselineRolloutOptions{Replicas: Replicas{Number: 1}},
		StageBaselineClean:   &CleanOptions{},
		StageTrafficRouting:  &TrafficRoutingOptions{},
	}
}

// SyncStageOptions are those of K8S_SYNC in a pipeline. What is not written is
// as spec.quickSync and spec.readyThreshold have it.
type SyncStageOptions struct {
	SyncOptions    `yaml:",inline"`
	ReadyThreshold strict.Percent `yaml:"readyThreshold" json:"readyThreshold"`
}

// PrimaryRolloutOptions are those of K8S_PRIMARY_ROLLOUT.
type PrimaryRolloutOptions struct {
	// Suffix is behind the name of the extra Service; the variant label's
	// primaryValue when not written.
	Suffix                    string         `yaml:"suffix" json:"suffix"`
	CreateService             bool           `yaml:"createService" json:"createService"`
	AddVariantLabelToSelector bool           `yaml:"addVariantLabelToSelector" json:"addVariantLabelToSelector"`
	Prune                     bool           `yaml:"prune" json:"prune"`
	ReadyThreshold            strict.Percent `yaml:"readyThreshold" json:"readyThreshold"` // spec.readyThreshold when not written
}

// CanaryRolloutOptions are those of K8S_CANARY_ROLLOUT.
type CanaryRolloutOptions struct {
	Replicas Replicas `yaml:"replicas" json:"replicas"`
	// Suffix is behind the names of the canary's objects; the variant label's
	// canaryValue when not written.
	Suffix         string         `yaml:"suffix" json:"suffix"`
	CreateService  bool           `yaml:"createService" json:"createService"`
	Patches        []Patch        `yaml:"patches" json:"patches,omitempty"`
	ReadyThreshold strict.Percent `yaml:"readyThreshold" json:"readyThreshold"` // spec.readyThreshold when not written
}

// BaselineRolloutOptions are those of K8S_BASELINE_ROLLOUT.
type BaselineRolloutOptions struct {
	Replicas Replicas `yaml:"replicas" json:"replicas"`
	// Suffix is behind the names of the baseline's objects; the variant label's
	// baselineValue when not written.
	Suffix         string         `yaml:"suffix" json:"suffix"`
	CreateService  bool           `yaml:"createService" json:"createService"`
	ReadyThreshold strict.Percent `yaml:"readyThreshold" json:"readyThreshold"` // spec.readyThreshold when not written
}

// CleanOptions are those of K8S_CANARY_CLEAN and K8S_BASELINE_CLEAN: none.
type CleanOptions struct{}

// TrafficRoutingOptions are those of K8S_TRAFFIC_ROUTING. Once an application is
// read, the three shares are filled in and sum to 100; with Steps they are those
// of the last step.
type TrafficRoutingOptions struct {
	All      Variant        `yaml:"all" json:"all,omitempty"`
	Primary  strict.Percent `yaml:"primary" json:"primary"`
	Canary   strict.Percent `yaml:"canary" json:"canary"`
	Baseline strict.Percent `yaml:"baseline" json:"baseline"`
	// Steps are shares of the canary, one after another with Interval between.
	Steps    []strict.Percent `yaml:"steps" json:"steps,omitempty"`
	Interval strict.Duration  `yaml:"interval" json:"interval,omitempty"`
}

// Variant names a variant of the application's workloads.
type Variant string

// The variants.
const (
	Primary  Variant = "primary"
	Canary   Variant = "canary"
	Baseline Variant = "baseline"
)

// Values lists the variants.
func (Variant) Values() []string { return []string{string(Primary), string(Canary), string(Baseline)} }
