package analysis

import (
	"fmt"
	"maps"

	"github.com/c785c783/piped/piped/config/strict"
)

// Options are those of an analysis: its checks run side by side until Duration
// has passed.
type Options struct {
	// Duration is how long the analysis takes.
	// Required.
	Duration strict.Duration `yaml:"duration" json:"duration"`
	// RestartThreshold has no effect.
	// Default: `0`.
	RestartThreshold int `yaml:"restartThreshold" json:"-"`
	Checks           `yaml:",inline"`
}

// Checks are the checks of an analysis.
type Checks struct {
	// Metrics are checks of numbers that a provider returns.
	// Default: none.
	Metrics []Metric `yaml:"metrics" json:"metrics,omitempty"`
	// Logs are queries that must find nothing.
	// Default: none.
	Logs []Log `yaml:"logs" json:"logs,omitempty"`
	// HTTPS are checks of answers to HTTP requests.
	// Default: none.
	HTTPS []HTTP `yaml:"https" json:"https,omitempty"`
}

// Empty reports whether nothing is checked.
func (c *Checks) Empty() bool { return len(c.Metrics)+len(c.Logs)+len(c.HTTPS) == 0 }

// SetDefaultArgs gives every check that names a template the arguments that it does not
// set itself.
func (c *Checks) SetDefaultArgs(args map[string]string) {
	for i := range c.Metrics {
		c.Metrics[i].Template.setDefaults(args)
	}
	for i := range c.Logs {
		c.Logs[i].Template.setDefaults(args)
	}
	for i := range c.HTTPS {
		c.HTTPS[i].Template.setDefaults(args)
	}
}

func (t *TemplateRef) setDefaults(args map[string]string) {
	if t.Name == "" {
		return
	}
	all := maps.Clone(args)
	maps.Copy(all, t.AppArgs)
	t.AppArgs = all
}

// Complete fills what depends on other fields and reports to d what makes no
// sense; at is the path of the options.
func (o *Options) Complete(d *strict.Document, at string) {
	if o.Duration <= 0 {
		d.Problemf(at+".duration", "required; expected a duration above 0, found %s", o.Duration)
	}
	if d.Has(at + ".restartThreshold") {
		d.Warnf(at+".restartThreshold", "not used; the stage evaluates metrics, logs and https")
	}
	o.Checks.Complete(d, at, o.Duration)
}

// Complete is that of Options for checks which run for duration; 0 is one that is
// not known.
func (c *Checks) Complete(d *strict.Document, at string, duration strict.Duration) {
	if c.Empty() {
		d.Warnf(at, "checks nothing; expected metrics, logs or https")
	}
	for i := range c.Metrics {
		c.Metrics[i].complete(d, fmt.Sprintf("%s.metrics[%d]", at, i), duration)
	}
	for i := range c.Logs {
		c.Logs[i].complete(d, fmt.Sprintf("%s.logs[%d]", at, i), duration)
	}
	for i := range c.HTTPS {
		c.HTTPS[i].complete(d, fmt.Sprintf("%s.https[%d]", at, i), duration)
	}
}
