package analysis

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/c785c783/piped/piped/config/strict"
)

// Templates are the spec of a file of kind AnalysisTemplate: by their names, what
// entries of a stage leave out.
type Templates struct {
	Metrics map[string]Metric `yaml:"metrics"`
	Logs    map[string]Log    `yaml:"logs"`
	HTTPS   map[string]HTTP   `yaml:"https"`

	// Unread names what of the file is not read, one line each.
	Unread []string `yaml:"-"`
}

// Complete reports to d what makes no sense in any use of a template.
func (t *Templates) Complete(d *strict.Document) {
	for _, name := range slices.Sorted(maps.Keys(t.Metrics)) {
		m, at := t.Metrics[name], "metrics."+name
		m.Check.noTemplate(d, at)
		m.check(rulesOf(d, at, true, 0))
		if d.Has(at + ".strategy") {
			m.warn(d, at)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Logs)) {
		l, at := t.Logs[name], "logs."+name
		l.Check.noTemplate(d, at)
		l.check(rulesOf(d, at, true, 0))
	}
	for _, name := range slices.Sorted(maps.Keys(t.HTTPS)) {
		h, at := t.HTTPS[name], "https."+name
		h.Check.noTemplate(d, at)
		h.check(rulesOf(d, at, true, 0))
	}
}

func (c *Check) noTemplate(d *strict.Document, at string) {
	if d.Has(at + ".template") {
		d.Problemf(at+".template", "a template cannot name another one")
	}
}

// Used returns the names of the templates that checks name.
func (c *Checks) Used() (metrics, logs, https []string) {
	for _, m := range c.Metrics {
		metrics = append(metrics, m.Template.Name)
	}
	for _, l := range c.Logs {
		logs = append(logs, l.Template.Name)
	}
	for _, h := range c.HTTPS {
		https = append(https, h.Template.Name)
	}
	named := func(names []string) []string {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
		slices.Sort(names)
		return slices.Compact(names)
	}
	return named(metrics), named(logs), named(https)
}

// Resolve returns checks in which nothing is left to templates. The error names
// every template that is missing and everything that is missing or makes no sense
// in what came of an entry and its template, for an analysis that takes duration.
func (c Checks) Resolve(from Templates, duration strict.Duration) (Checks, error) {
	var out Checks
	var errs []error
	for i, m := range c.Metrics {
		at := fmt.Sprintf("metrics[%d]", i)
		t, err := template(at, "metrics", from.Metrics, m.Template.Name)
		m = m.over(t)
		out.Metrics, errs = append(out.Metrics, m), append(errs, cmp.Or(err, valid(at, m.Template.Name, duration, m.check)))
	}
	for i, l := range c.Logs {
		at := fmt.Sprintf("logs[%d]", i)
		t, err := template(at, "logs", from.Logs, l.Template.Name)
		l = l.over(t)
		out.Logs, errs = append(out.Logs, l), append(errs, cmp.Or(err, valid(at, l.Template.Name, duration, l.check)))
	}
	for i, h := range c.HTTPS {
		at := fmt.Sprintf("https[%d]", i)
		t, err := template(at, "https", from.HTTPS, h.Template.Name)
		h = h.over(t)
		out.HTTPS, errs = append(out.HTTPS, h), append(errs, cmp.Or(err, valid(at, h.Template.Name, duration, h.check)))
	}
	return out, errors.Join(errs...)
}

// template returns the template that an entry names, the zero value if it names
// none.
func template[T any](at, kind string, all map[string]T, name string) (t T, err error) {
	t, ok := all[name]
	switch {
	case ok || name == "":
		return t, nil
	case len(all) == 0:
		return t, fmt.Errorf("%s: there is no template %q in %s: write it into a file of kind AnalysisTemplate in .pipe/", at, name, kind)
	}
	return t, fmt.Errorf("%s: there is no template %q in %s: name one of %s", at, name, kind, strict.Alternatives(slices.Sorted(maps.Keys(all))))
}

// valid holds an entry that is complete against the rules.
func valid(at, template string, duration strict.Duration, check func(rules)) error {
	var errs []error
	missing := "required"
	if template != "" {
		at += fmt.Sprintf(" with template %q", template)
		missing = "required; neither the stage nor the template says it"
	}
	check(rules{
		problem: func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: %s: "+format, append([]any{at, field}, args...)...))
		},
		written:  func(string) bool { return false },
		missing:  missing,
		duration: duration,
	})
	return errors.Join(errs...)
}

// over returns c with what it leaves out as t has it, and defaults for the rest.
func (c Check) over(t Check) Check {
	c.Name = cmp.Or(c.Name, t.Name, c.Template.Name)
	c.Interval, c.Timeout = cmp.Or(c.Interval, t.Interval), cmp.Or(c.Timeout, t.Timeout)
	c.FailureLimit, c.SkipOnNoData = cmp.Or(c.FailureLimit, t.FailureLimit), c.SkipOnNoData || t.SkipOnNoData
	c.fill()
	return c
}

func (m Metric) over(t Metric) Metric {
	m.Check = m.Check.over(t.Check)
	m.Provider, m.Query = cmp.Or(m.Provider, t.Provider), cmp.Or(m.Query, t.Query)
	m.Strategy, m.Deviation = cmp.Or(m.Strategy, t.Strategy), cmp.Or(m.Deviation, t.Deviation)
	if m.Expected.IsZero() {
		m.Expected = t.Expected
	}
	m.CanaryArgs, m.BaselineArgs, m.PrimaryArgs = orArgs(m.CanaryArgs, t.CanaryArgs), orArgs(m.BaselineArgs, t.BaselineArgs), orArgs(m.PrimaryArgs, t.PrimaryArgs)
	m.fill()
	return m
}

func (l Log) over(t Log) Log {
	l.Check = l.Check.over(t.Check)
	l.Provider, l.Query = cmp.Or(l.Provider, t.Provider), cmp.Or(l.Query, t.Query)
	return l
}

func (h HTTP) over(t HTTP) HTTP {
	h.Check = h.Check.over(t.Check)
	h.URL, h.Method, h.ExpectedCode = cmp.Or(h.URL, t.URL), cmp.Or(h.Method, t.Method), cmp.Or(h.ExpectedCode, t.ExpectedCode)
	h.ExpectedResponse = cmp.Or(h.ExpectedResponse, t.ExpectedResponse)
	if len(h.Headers) == 0 {
		h.Headers = t.Headers
	}
	h.fill()
	return h
}

func orArgs(own, others map[string]string) map[string]string {
	if len(own) > 0 {
		return own
	}
	return others
}
