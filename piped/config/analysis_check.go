package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

func (o *AnalysisOptions) common() (*time.Duration, *SkipOptions) { return nil, &o.SkipOn }

func (o *AnalysisOptions) complete(d *strict.Document, at string) {
	if o.Duration <= 0 {
		d.Problemf(at+".duration", "required; expected a duration above 0, found %s", o.Duration)
	}
	if d.Has(at + ".restartThreshold") {
		d.Warnf(at+".restartThreshold", "not used; the stage looks at metrics, logs and https")
	}
	if len(o.Metrics)+len(o.Logs)+len(o.HTTPS) == 0 {
		d.Warnf(at, "checks nothing; expected metrics, logs or https")
	}
	for i := range o.Metrics {
		o.Metrics[i].complete(d, fmt.Sprintf("%s.metrics[%d]", at, i), o.Duration)
	}
	for i := range o.Logs {
		o.Logs[i].complete(d, fmt.Sprintf("%s.logs[%d]", at, i), o.Duration)
	}
	for i := range o.HTTPS {
		o.HTTPS[i].complete(d, fmt.Sprintf("%s.https[%d]", at, i), o.Duration)
	}
}

// complete checks what every kind of check has; duration is the stage's.
func (c *AnalysisCheck) complete(d *strict.Document, at string, duration strict.Duration) {
	if d.Has(at+".template") && c.Template.Name == "" {
		d.Problemf(at+".template.name", "required; expected the name of a template")
	}
	switch {
	case !d.Has(at + ".interval"):
		c.require(d, at, "interval", "")
	case c.Interval <= 0:
		d.Problemf(at+".interval", "expected a duration above 0, found %s", c.Interval)
	case duration > 0 && c.Interval > duration:
		d.Problemf(at+".interval", "expected at most the stage's duration of %s, found %s: the check would never run", duration, c.Interval)
	}
	if c.FailureLimit < 0 {
		d.Problemf(at+".failureLimit", "expected 0 or more, found %d", c.FailureLimit)
	}
	switch {
	case c.Timeout < 0:
		d.Problemf(at+".timeout", "expected a duration above 0, found %s", c.Timeout)
	case c.Timeout == 0:
		c.Timeout = defaultQueryTimeout // as in PipeCD
	}
}

// require reports a field that is empty, unless a template may say it.
func (c *AnalysisCheck) require(d *strict.Document, at, field, value string) {
	if value == "" && c.Template.Name == "" {
		d.Problemf(at+"."+field, "required without a template")
	}
}

func (m *AnalysisMetric) complete(d *strict.Document, at string, duration strict.Duration) {
	m.AnalysisCheck.complete(d, at, duration)
	m.require(d, at, "provider", m.Provider)
	m.require(d, at, "query", m.Query)
	bounds := m.Expected.Min != nil || m.Expected.Max != nil
	switch threshold := m.Strategy == StrategyThreshold; {
	case threshold && !bounds && m.Template.Name == "":
		d.Problemf(at+".expected", "required with strategy %s; expected min, max or both", StrategyThreshold)
	case threshold && d.Has(at+".deviation"):
		d.Warnf(at+".deviation", "has no effect with strategy %s", StrategyThreshold)
	case !threshold && bounds:
		d.Warnf(at+".expected", "has no effect with strategy %s", m.Strategy)
	}
	if e := m.Expected; e.Min != nil && e.Max != nil && *e.Min > *e.Max {
		d.Problemf(at+".expected", "no number is at least %g and at most %g", *e.Min, *e.Max)
	}
}

func (l *AnalysisLog) complete(d *strict.Document, at string, duration strict.Duration) {
	l.AnalysisCheck.complete(d, at, duration)
	l.require(d, at, "provider", l.Provider)
	l.require(d, at, "query", l.Query)
}

func (h *AnalysisHTTP) complete(d *strict.Document, at string, duration strict.Duration) {
	h.AnalysisCheck.complete(d, at, duration)
	h.require(d, at, "url", h.URL)
	if u, err := url.Parse(h.URL); h.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		d.Problemf(at+".url", "expected a URL such as https://example.com/healthz")
	}
	if h.Method == "" || strings.Trim(h.Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		d.Problemf(at+".method", "expected a method such as GET, found %q", h.Method)
	}
	if h.ExpectedCode < 100 || h.ExpectedCode > 599 {
		d.Problemf(at+".expectedCode", "expected a status code from 100 to 599, found %d", h.ExpectedCode)
	}
	for i, header := range h.Headers {
		if header.Key == "" {
			d.Problemf(fmt.Sprintf("%s.headers[%d].key", at, i), "required; expected the name of a header")
		}
	}
}
