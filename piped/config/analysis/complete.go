package analysis

import (
	"cmp"

	"github.com/c785c783/piped/piped/config/strict"
)

// complete checks an entry of a document. What one with a template does not
// write becomes zero, so that it is known to be left to the template.
func (m *Metric) complete(d *strict.Document, at string, duration strict.Duration) {
	templated := m.Template.Name != ""
	if templated {
		m.unset(rulesOf(d, at, true, duration))
	}
	m.Check.complete(d, at)
	m.check(rulesOf(d, at, templated, duration))
	m.warn(d, at)
	if !templated {
		m.fill()
	}
}

// warn notes what has no effect.
func (m *Metric) warn(d *strict.Document, at string) {
	switch {
	case m.Strategy == Threshold && d.Has(at+".deviation"):
		d.Warnf(at+".deviation", "has no effect with strategy %s", Threshold)
	case m.Strategy != Threshold && m.Strategy != "" && !m.Expected.IsZero():
		d.Warnf(at+".expected", "has no effect with strategy %s", m.Strategy)
	}
}

func (l *Log) complete(d *strict.Document, at string, duration strict.Duration) {
	templated := l.Template.Name != ""
	if templated {
		l.Check.unset(rulesOf(d, at, true, duration))
	}
	l.Check.complete(d, at)
	l.check(rulesOf(d, at, templated, duration))
	if !templated {
		l.fill()
	}
}

func (h *HTTP) complete(d *strict.Document, at string, duration strict.Duration) {
	templated := h.Template.Name != ""
	if templated {
		h.unset(rulesOf(d, at, true, duration))
	}
	h.Check.complete(d, at)
	h.check(rulesOf(d, at, templated, duration))
	if !templated {
		h.fill()
	}
}

// complete warns of zeros that a template overrides.
func (c *Check) complete(d *strict.Document, at string) {
	if c.Template.Name == "" {
		return
	}
	if d.Has(at+".failureLimit") && c.FailureLimit == 0 {
		d.Warnf(at+".failureLimit", "0 has no effect with a template, which decides then")
	}
	if d.Has(at+".skipOnNoData") && !c.SkipOnNoData {
		d.Warnf(at+".skipOnNoData", "false has no effect with a template, which decides then")
	}
}

// unset removes defaults that are not in the document.
func (c *Check) unset(r rules) {
	if !r.written("timeout") {
		c.Timeout = 0
	}
}

func (m *Metric) unset(r rules) {
	m.Check.unset(r)
	if !r.written("strategy") {
		m.Strategy = ""
	}
	if !r.written("deviation") {
		m.Deviation = ""
	}
}

func (h *HTTP) unset(r rules) {
	h.Check.unset(r)
	if !r.written("method") {
		h.Method = ""
	}
	if !r.written("expectedCode") {
		h.ExpectedCode = 0
	}
}

// fill gives what is still zero its default.
func (c *Check) fill() { c.Timeout = cmp.Or(c.Timeout, defaultTimeout) } // 0 as in PipeCD

func (m *Metric) fill() {
	m.Check.fill()
	m.Strategy, m.Deviation = cmp.Or(m.Strategy, Threshold), cmp.Or(m.Deviation, Either)
}

func (h *HTTP) fill() {
	var defaults HTTP
	defaults.Default()
	h.Check.fill()
	h.Method, h.ExpectedCode = cmp.Or(h.Method, defaults.Method), cmp.Or(h.ExpectedCode, defaults.ExpectedCode)
}
