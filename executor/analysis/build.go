package analysis

import (
	"context"
	"errors"
	"fmt"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// addChecks creates the checks of an analysis. It joins the errors of all invalid
// checks.
func (p *session) addChecks(ctx context.Context, checks analysis.Checks) error {
	f, err := p.newRenderer(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i, m := range checks.Metrics {
		errs = append(errs, p.addMetric(ctx, f, newCheck(p.id("metrics", i), m.Check), m))
	}
	for i, l := range checks.Logs {
		errs = append(errs, p.addLog(f, newCheck(p.id("logs", i), l.Check), l))
	}
	for i, h := range checks.HTTPS {
		errs = append(errs, p.addHTTP(f, newCheck(p.id("https", i), h.Check), h))
	}
	p.disambiguate()
	return errors.Join(errs...)
}

// id returns the ID of the check at index i of a list.
func (p *session) id(list string, i int) string {
	return prefixed(p.name, fmt.Sprintf("%s[%d]", list, i))
}

// disambiguate appends the ID to the names of checks with equal names.
func (p *session) disambiguate() {
	named := map[string]int{}
	for _, c := range p.checks {
		named[c.name]++
	}
	for _, c := range p.checks {
		if named[c.name] > 1 {
			c.name += " (" + c.id + ")"
		}
	}
}

// addMetric adds a metric check with rendered queries. With the strategy PREVIOUS it
// compares with the last analysis of this stage that passed; if there is none, the check is
// never evaluated.
func (p *session) addMetric(ctx context.Context, f renderer, c *check, m analysis.Metric) (err error) {
	evaluate := &metric{Metric: m, providers: p.Providers}
	switch m.Strategy {
	case analysis.CanaryBaseline:
		evaluate.query, evaluate.other, err = f.variants(c.name, m, "baseline", m.BaselineArgs)
	case analysis.CanaryPrimary:
		evaluate.query, evaluate.other, err = f.variants(c.name, m, "primary", m.PrimaryArgs)
	default:
		evaluate.query, err = render(c.name, m.Query, f.data(m.Template.AppArgs, "", nil))
		evaluate.other = evaluate.query
	}
	c.evaluate, c.described = evaluate.evaluate, evaluate.described()
	p.checks = append(p.checks, c)
	if err != nil || m.Strategy != analysis.Previous {
		return err
	}
	passed, ok, err := p.Store.AnalysisPassed(ctx, p.run.Application.ID, p.key())
	if err == nil && !ok {
		p.run.Log.Infof("%s: ok: no earlier analysis of this stage passed, so there is nothing to compare with", c.name)
		c.evaluate = nil
	}
	evaluate.previous = passed.StartedAt
	return err
}

// variants renders the query for the canary and for another variant.
func (f renderer) variants(name string, m analysis.Metric, other string, otherArgs map[string]string) (canary, others string, err error) {
	canary, err = render(name, m.Query, f.data(m.Template.AppArgs, "canary", m.CanaryArgs))
	if err != nil {
		return "", "", err
	}
	others, err = render(name, m.Query, f.data(m.Template.AppArgs, other, otherArgs))
	if err == nil && canary == others {
		err = deploy.Errorf(deploy.Invalid, "%s: the query is the same for the canary and for %s: use .Variant.Name or .VariantCustomArgs in it, or another strategy", name, other)
	}
	return canary, others, err
}

// addLog adds a log check with its rendered query.
func (p *session) addLog(f renderer, c *check, l analysis.Log) (err error) {
	evaluate := &logCheck{Log: l, providers: p.Providers}
	evaluate.query, err = render(c.name, l.Query, f.data(l.Template.AppArgs, "", nil))
	c.evaluate, c.described = evaluate.evaluate, evaluate.described()
	p.checks = append(p.checks, c)
	return err
}

// addHTTP adds an HTTP check with its rendered URL and headers.
func (p *session) addHTTP(f renderer, c *check, h analysis.HTTP) (err error) {
	data := f.data(h.Template.AppArgs, "", nil)
	evaluate := &httpCheck{HTTP: h, client: p.http}
	if evaluate.URL, err = render(c.name, h.URL, data); err != nil {
		return err
	}
	if err := analysis.CheckURL(evaluate.URL); err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: url: %w", c.name, err)
	}
	evaluate.Headers = nil
	for _, header := range h.Headers {
		if header.Value, err = render(c.name, header.Value, data); err != nil {
			return err
		}
		evaluate.Headers = append(evaluate.Headers, header)
	}
	evaluate.pattern, err = h.Pattern()
	c.evaluate, c.described = evaluate.evaluate, evaluate.described()
	p.checks = append(p.checks, c)
	return err
}
