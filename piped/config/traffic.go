package config

import (
	"time"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
)

// TrafficRoutingOptions are those of K8S_TRAFFIC_ROUTING, with what is not
// Kubernetes' own.
type TrafficRoutingOptions struct {
	kubernetes.TrafficRoutingOptions `yaml:",inline"`
	// Analysis runs after each step. A failed one ends the stage. `analysis.duration` is
	// `interval` if it is not written. Same keys as `ANALYSIS`, without `skipOn`.
	// Default: none. Not in PipeCD.
	Analysis *analysis.Options `yaml:"analysis" json:"analysis,omitempty"`
}

func (o *TrafficRoutingOptions) common() (*time.Duration, *SkipOptions) { return nil, nil }

// complete gives the analysis that follows each step its duration.
func (o *TrafficRoutingOptions) complete(d *strict.Document, at string) {
	at += ".analysis"
	switch {
	case o.Analysis == nil:
	case len(o.Steps) == 0:
		d.Problemf(at, "needs steps, after each of which it runs; without them, use the stage ANALYSIS")
	case o.Analysis.Empty():
		d.Problemf(at, "expected at least one of metrics, logs and https")
	default:
		if !d.Has(at + ".duration") {
			o.Analysis.Duration = o.Interval
		}
		o.Analysis.Complete(d, at)
	}
}
