package kubernetes

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/strict"
)

// ConfigPropagation is spec.configPropagation: how a changed ConfigMap or Secret
// reaches the pods that read it.
type ConfigPropagation struct {
	Mode    PropagationMode    `yaml:"mode"`
	Scope   PropagationScope   `yaml:"scope"`
	Objects []Reference        `yaml:"objects"` // with scope named
	Nudge   PropagationNudge   `yaml:"nudge"`
	Restart PropagationRestart `yaml:"restart"`
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

// The scopes: those of the application, all of its namespace that its workloads
// read, or its own and those that Objects names.
const (
	ScopeManaged   PropagationScope = "managed"
	ScopeNamespace PropagationScope = "namespace"
	ScopeNamed     PropagationScope = "named"
)

// Values lists the scopes.
func (PropagationScope) Values() []string {
	return []string{string(ScopeManaged), string(ScopeNamespace), string(ScopeNamed)}
}

// PropagationNudge says how pods are annotated so that the kubelet looks at once.
type PropagationNudge struct {
	Delay         time.Duration `yaml:"delay"`       // after the change
	RepeatAfter   time.Duration `yaml:"repeatAfter"` // once; 0 is never
	MaxPods       int           `yaml:"maxPods"`
	RatePerSecond int           `yaml:"ratePerSecond"` // pods
	Annotation    string        `yaml:"annotation"`
}

// PropagationRestart says how workloads are restarted.
type PropagationRestart struct {
	Via      RestartVia    `yaml:"via"`
	Debounce time.Duration `yaml:"debounce"` // collects changes
	// RespectStage leaves the restart to the stage that applies the workload.
	RespectStage bool `yaml:"respectStage"`
}

// RestartVia says what makes a workload restart.
type RestartVia string

// RestartViaTemplateHash writes a hash of the content into the pod template.
const RestartViaTemplateHash RestartVia = "templateHash"

// Values lists the ways.
func (RestartVia) Values() []string { return []string{string(RestartViaTemplateHash)} }

// Default implements strict.Defaulter.
func (p *ConfigPropagation) Default() {
	*p = ConfigPropagation{
		Mode:  PropagateAuto,
		Scope: ScopeManaged,
		Nudge: PropagationNudge{
			Delay: time.Second, RepeatAfter: 5 * time.Second, MaxPods: 5000, RatePerSecond: 50, Annotation: "pipecd.dev/config-sync",
		},
		Restart: PropagationRestart{Via: RestartViaTemplateHash, Debounce: 10 * time.Second, RespectStage: true},
	}
}

func (p *ConfigPropagation) complete(d *strict.Document) {
	const at = "configPropagation"
	if named := p.Scope == ScopeNamed; named != (len(p.Objects) > 0) {
		d.Problemf(at+".objects", "goes with scope: named, and only with it")
	}
	for i, o := range p.Objects {
		item := fmt.Sprintf("%s.objects[%d]", at, i)
		if o.Kind != "ConfigMap" && o.Kind != "Secret" {
			d.Problemf(item+".kind", "expected ConfigMap or Secret, found %q", o.Kind)
		}
		if o.Name == "" {
			d.Problemf(item+".name", "required")
		}
	}
	for field, v := range map[string]time.Duration{
		"nudge.delay": p.Nudge.Delay, "nudge.repeatAfter": p.Nudge.RepeatAfter, "restart.debounce": p.Restart.Debounce,
	} {
		if v < 0 {
			d.Problemf(at+"."+field, "expected a duration of 0 or more, found %s", v)
		}
	}
	for field, n := range map[string]int{"maxPods": p.Nudge.MaxPods, "ratePerSecond": p.Nudge.RatePerSecond} {
		if n < 1 {
			d.Problemf(at+".nudge."+field, "expected 1 or more, found %d", n)
		}
	}
	for _, why := range validation.IsQualifiedName(p.Nudge.Annotation) {
		d.Problemf(at+".nudge.annotation", "%q is not the key of an annotation: %s", p.Nudge.Annotation, why)
	}
}
