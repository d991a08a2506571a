package analysis

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// rules hold one check against what makes sense, be it read from a file or merged
// with its template.
type rules struct {
	problem  func(field, format string, args ...any)
	written  func(field string) bool
	partial  bool            // what is missing is said elsewhere
	missing  string          // what is said of a missing field
	duration strict.Duration // of the analysis; 0 is one that is not known
}

// rulesOf are those for a check of the document that stands at a place.
func rulesOf(d *strict.Document, at string, partial bool, duration strict.Duration) rules {
	return rules{
		problem:  func(field, format string, args ...any) { d.Problemf(at+"."+field, format, args...) },
		written:  func(field string) bool { return d.Has(at + "." + field) },
		partial:  partial,
		missing:  "required without a template",
		duration: duration,
	}
}

func (r rules) require(field, value string) {
	if value == "" && !r.partial {
		r.problem(field, "%s", r.missing)
	}
}

func (c *Check) check(r rules) {
	if r.written("template") && c.Template.Name == "" {
		r.problem("template.name", "required; expected the name of a template")
	}
	switch {
	case c.Interval == 0 && !r.written("interval"):
		r.require("interval", "")
	case c.Interval <= 0:
		r.problem("interval", "expected a duration above 0, found %s", c.Interval)
	case r.duration > 0 && c.Interval > r.duration:
		r.problem("interval", "expected at most the stage's duration of %s, found %s: the check would never run", r.duration, c.Interval)
	}
	if c.FailureLimit < 0 {
		r.problem("failureLimit", "expected 0 or more, found %d", c.FailureLimit)
	}
	if c.Timeout < 0 {
		r.problem("timeout", "expected a duration above 0, found %s", c.Timeout)
	}
}

func (m *Metric) check(r rules) {
	m.Check.check(r)
	r.require("provider", m.Provider)
	r.require("query", m.Query)
	if m.Strategy == Threshold && m.Expected.IsZero() && !r.partial {
		r.problem("expected", "required with strategy %s; expected min, max or both", Threshold)
	}
	if e := m.Expected; e.Min != nil && e.Max != nil && *e.Min > *e.Max {
		r.problem("expected", "no number is at least %g and at most %g", *e.Min, *e.Max)
	}
}

func (l *Log) check(r rules) {
	l.Check.check(r)
	r.require("provider", l.Provider)
	r.require("query", l.Query)
}

func (h *HTTP) check(r rules) {
	h.Check.check(r)
	r.require("url", h.URL)
	if !strings.Contains(h.URL, "{{") && h.URL != "" && CheckURL(h.URL) != nil {
		r.problem("url", "expected a URL such as https://example.com/healthz")
	}
	if set := h.Method != "" || r.written("method") || !r.partial; set && (h.Method == "" || strings.Trim(h.Method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "") {
		r.problem("method", "expected a method such as GET, found %q", h.Method)
	}
	if set := h.ExpectedCode != 0 || r.written("expectedCode") || !r.partial; set && (h.ExpectedCode < 100 || h.ExpectedCode > 599) {
		r.problem("expectedCode", "expected a status code from 100 to 599, found %d", h.ExpectedCode)
	}
	if _, err := h.Pattern(); err != nil {
		r.problem("expectedResponse", "%s", err)
	}
	for i, header := range h.Headers {
		if header.Key == "" {
			r.problem(fmt.Sprintf("headers[%d].key", i), "required; expected the name of a header")
		}
	}
}

// CheckURL refuses what no HTTP check can ask.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("expected a URL such as https://example.com/healthz")
	}
	return nil
}

// Pattern returns the regular expression that ExpectedResponse is, nil if it is
// none.
func (h *HTTP) Pattern() (*regexp.Regexp, error) {
	text := h.ExpectedResponse
	if len(text) < 2 || !strings.HasPrefix(text, "/") || !strings.HasSuffix(text, "/") {
		return nil, nil
	}
	re, err := regexp.Compile(text[1 : len(text)-1])
	if err != nil {
		return nil, fmt.Errorf("expected a text, or a regular expression between slashes: %w", err)
	}
	return re, nil
}
