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
	SyncOptions `yaml:",inline"`
	// ReadyThreshold is the share of a workload's pods that must be available for its rollout to
	// be complete.
	// Default: `readyThreshold` of the application. Not in PipeCD.
	ReadyThreshold strict.Percent `yaml:"readyThreshold" json:"readyThreshold"`
}

// PrimaryRolloutOptions are those of K8S_PRIMARY_ROLLOUT.
type PrimaryRolloutOptions struct {
	// Suffix is appended to the name of the extra Service.
	// Default: `variantLabel.primaryValue`.
	Suffix string `yaml:"suffix" json:"suffix"`
	// CreateService also creates a Service that selects only the primary. It needs the variant
	// label on the primary's pods. A quick sync creates it, too.
	CreateService bool `yaml:"createService" json:"createService"`
	// AddVariantLabelToSelector adds the variant label of the primary to the selector and pod
	// template of every workload. Set it for `quickSync`, too.
	AddVariantLabelToSelector bool `yaml:"addVariantLabelToSelector" json:"addVariantLabelToSelector"`
	// Prune deletes what the application applied and Git no longer declares.
	Prune bool `yaml:"prune" json:"prune"`
	// ReadyThreshold is the share of a workload's pods that must be available.
	// Default: `readyThreshold` of the application. Not in PipeCD.
	ReadyThreshold strict.Percent `yaml:"readyThreshold" json:"readyThreshold"`
}

// CanaryRolloutOptions are those of K8S_CANARY_ROLLOUT.
type CanaryRolloutOptions struct {
	// Replicas is the number of pods, or a percentage of the primary's, rounded up, at least one.
	// The percentage is of what Git declares; where an autoscaler decides, of the live number.
	Replicas Replicas `yaml:"replicas" json:"replicas"`
	// Suffix is appended to the names of the canary's objects, after a dash.
	// Default: `variantLabel.canaryValue`.
	Suffix string `yaml:"suffix" json:"suffix"`
	// CreateService also creates a Service for the canary: a copy of `service.name`, or of every
	// Service that selects the workloads. The copy is of type ClusterIP, without the addresses and
	// node ports of the original.
	CreateService bool `yaml:"createService" json:"createService"`
	// Patches change objects of the canary. A patch that changes nothing is an error.
	// Default: none.
	Patches []Patch `yaml:"patches" json:"patches,omitempty"`
	// ReadyThreshold is the share of a workload's pods that must be available.
	// Default: `readyThreshold` of the application. Not in PipeCD.
	ReadyThreshold strict.Percent `yaml:"readyThreshold" json:"readyThreshold"`
}

// BaselineRolloutOptions are those of K8S_BASELINE_ROLLOUT.
type BaselineRolloutOptions struct {
	// Replicas is the number of pods, or a percentage of the primary's, as in
	// `K8S_CANARY_ROLLOUT`.
	Replicas Replicas `yaml:"replicas" json:"replicas"`
	// Suffix is appended to the names of the baseline's objects, after a dash. It must differ from
	// the canary's.
	// Default: `variantLabel.baselineValue`.
	Suffix string `yaml:"suffix" json:"suffix"`
	// CreateService also creates a Service for the baseline, as in `K8S_CANARY_ROLLOUT`.
	CreateService bool `yaml:"createService" json:"createService"`
	// ReadyThreshold is the share of a workload's pods that must be available.
	// Default: `readyThreshold` of the application. Not in PipeCD.
	ReadyThreshold strict.Percent `yaml:"readyThreshold" json:"readyThreshold"`
}

// CleanOptions are those of K8S_CANARY_CLEAN and K8S_BASELINE_CLEAN: none.
type CleanOptions struct{}

// TrafficRoutingOptions are those of K8S_TRAFFIC_ROUTING. Once an application is
// read, the three shares are filled in and sum to 100; with Steps they are those
// of the last step.
type TrafficRoutingOptions struct {
	// All sends all traffic to one variant. It excludes the other options.
	// Default: none.
	All Variant `yaml:"all" json:"all,omitempty"`
	// Primary is the share of the primary. The three shares must sum to 100.
	// Default: what the others leave.
	Primary strict.Percent `yaml:"primary" json:"primary"`
	// Canary is the share of the canary.
	// Default: `0`.
	Canary strict.Percent `yaml:"canary" json:"canary"`
	// Baseline is the share of the baseline.
	// Default: `0`.
	Baseline strict.Percent `yaml:"baseline" json:"baseline"`
	// Steps are rising shares of the canary, set one after another in one stage. The primary has
	// the rest.
	// Default: none. Type: list of percents. Not in PipeCD.
	Steps []strict.Percent `yaml:"steps" json:"steps,omitempty"`
	// Interval is the time from one step to the next.
	// Required with `steps`. Not in PipeCD.
	Interval strict.Duration `yaml:"interval" json:"interval,omitempty"`
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
