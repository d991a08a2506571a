package kubernetes

import (
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// ConfigPropagation is spec.configPropagation: how a changed ConfigMap or Secret
// reaches the pods that read it.
type ConfigPropagation struct {
	// Mode is what is done with the pods. The annotation `pipecd.dev/config-propagation` of a
	// workload overrides it.
	// Default: `auto`.
	Mode PropagationMode `yaml:"mode" json:"mode,omitempty"`
	// Scope is which objects count: `managed` are those of the application, `named` also those of
	// `named`.
	// Default: `managed`.
	Scope PropagationScope `yaml:"scope" json:"scope,omitempty"`
	// Named are, with `scope: named`, ConfigMaps and Secrets that are not in Git, in the
	// namespaces of the workloads.
	// Default: none.
	Named []Reference `yaml:"named" json:"named,omitempty"`
	// Nudge is when and how fast pods are annotated.
	Nudge PropagationNudge `yaml:"nudge" json:"nudge"`
}

// PropagationMode says what is done with the pods.
type PropagationMode string

// The modes. PropagateAuto nudges pods that read a volume and restarts others.
const (
	PropagateAuto    PropagationMode = "auto"
	PropagateNudge   PropagationMode = "nudge"
	PropagateRestart PropagationMode = "restart"
	PropagateOff     PropagationMode = "off"
)

// Values lists the modes.
func (PropagationMode) Values() []string {
	return []string{string(PropagateAuto), string(PropagateNudge), string(PropagateRestart), string(PropagateOff)}
}

// PropagationScope says which ConfigMaps and Secrets count.
type PropagationScope string

// The scopes: those of the application, or these and the ones of its workloads'
// namespaces that Named lists.
const (
	ScopeManaged PropagationScope = "managed"
	ScopeNamed   PropagationScope = "named"
)

// Values lists the scopes.
func (PropagationScope) Values() []string { return []string{string(ScopeManaged), string(ScopeNamed)} }

// PropagationNudge says how pods are annotated so that the kubelet syncs them at once.
type PropagationNudge struct {
	// Delay is the time from the applied change to the first nudge.
	// Default: `0s`.
	Delay time.Duration `yaml:"delay" json:"delay,omitempty"`
	// RepeatAfter is the time from the first nudge to the last. If it is more than 1 s, there is
	// also one after 1 s. With 0 there is only the first.
	// Default: `5s`.
	RepeatAfter time.Duration `yaml:"repeatAfter" json:"repeatAfter,omitempty"`
	// MaxPods is the greatest number of pods of a workload that are nudged. More are left to the
	// kubelet.
	// Default: `5000`.
	MaxPods int `yaml:"maxPods" json:"maxPods,omitempty"`
	// RatePerSecond is how many pods of a cluster are nudged per second.
	// Default: `50`.
	RatePerSecond int `yaml:"ratePerSecond" json:"ratePerSecond,omitempty"`
}

// Default implements strict.Defaulter.
func (p *ConfigPropagation) Default() { *p = DefaultConfigPropagation() }

// DefaultConfigPropagation is what an application has that does not say it.
func DefaultConfigPropagation() ConfigPropagation {
	return ConfigPropagation{
		Mode: PropagateAuto, Scope: ScopeManaged,
		Nudge: PropagationNudge{RepeatAfter: 5 * time.Second, MaxPods: 5000, RatePerSecond: 50},
	}
}

func (p *ConfigPropagation) complete(d *strict.Document) {
	const at = "configPropagation"
	if named := p.Scope == ScopeNamed; named != (len(p.Named) > 0) {
		d.Problemf(at+".named", "goes with scope: named, and only with it")
	}
	if p.Scope == ScopeNamed && p.Mode == PropagateRestart {
		d.Problemf(at+".mode", "restart goes with scope: managed only: pods are not restarted for what is not in Git; "+
			"use mode: auto, which notifies the pods that mount a named object, or declare the object in Git")
	}
	for i, o := range p.Named {
		item := fmt.Sprintf("%s.named[%d]", at, i)
		if o.Kind != "ConfigMap" && o.Kind != "Secret" {
			d.Problemf(item+".kind", "expected ConfigMap or Secret, found %q", o.Kind)
		}
		if o.Name == "" {
			d.Problemf(item+".name", "required")
		}
	}
	for field, v := range map[string]time.Duration{"delay": p.Nudge.Delay, "repeatAfter": p.Nudge.RepeatAfter} {
		if v < 0 {
			d.Problemf(at+".nudge."+field, "expected a duration of 0 or more, found %s", v)
		}
	}
	for field, n := range map[string]int{"maxPods": p.Nudge.MaxPods, "ratePerSecond": p.Nudge.RatePerSecond} {
		if n < 1 {
			d.Problemf(at+".nudge."+field, "expected 1 or more, found %d", n)
		}
	}
}
