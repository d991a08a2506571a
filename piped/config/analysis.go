package config

import (
	"time"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/config/strict"
)

// AnalysisOptions are those of ANALYSIS.
type AnalysisOptions struct {
	analysis.Options `yaml:",inline"`
	// SkipOn is another place for the stage's `skipOn`. Same keys as `skipOn`.
	// Default: none.
	SkipOn SkipOptions `yaml:"skipOn" json:"-"`
}

func (o *AnalysisOptions) common() (*time.Duration, *SkipOptions) { return nil, &o.SkipOn }

func (o *AnalysisOptions) complete(d *strict.Document, at string) { o.Complete(d, at) }
