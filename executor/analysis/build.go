package analysis

import (
	"context"
	"errors"
	"fmt"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// addChecks makes the checks of an analysis. The error joins all that cannot be
// filled in.
func (p *process) addChecks(ctx context.Context, checks analysis.Checks) error {
	f, err := p.newFiller(ctx)
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
	p.tellApart()
	return errors.Join(errs...)
}

// id is that of the check at a place of the options.
func (p *process) id(list string, i int) string {
	return prefixed(p.name, fmt.Sprintf("%s[%d]", list, i))
}

// tellApart gives checks of the same name their places beside it.
func (p *process) tellApart() {
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

func (p *process) addMetric(ctx context.Context, f filler, c *check, m analysis.Metric) (err error) {
	look := &metric{Metric: m, providers: p.Providers}
	switch m.Strategy {
	case analysis.CanaryBaseline:
		look.query, look.other, err = f.variants(c.name, m, "baseline", m.BaselineArgs)
	case analysis.CanaryPrimary:
		look.query, look.other, err = f.variants(c.name, m, "primary", m.PrimaryArgs)
	default:
		look.query, err = fill(c.name, m.Query, f.data(m.Template.AppArgs, "", nil))
		look.other = look.query
	}
	c.look = look.look
	p.checks = append(p.checks, c)
	if err != nil || m.Strategy != analysis.Previous {
		return err
	}
	passed, ok, err := p.Store.AnalysisPassed(ctx, p.run.Application.ID, p.key())
	if err == nil && !ok {
		p.run.Log.Infof("%s: ok: no analysis of this stage was passed before, so that there is nothing to compare with", c.name)
		c.look = nil
	}
	look.previous = passed.StartedAt
	return err
}

// variants fills in the query of the canary and that of another variant.
func (f filler) variants(name string, m analysis.Metric, other string, otherArgs map[string]string) (canary, others string, err error) {
	canary, err = fill(name, m.Query, f.data(m.Template.AppArgs, "canary", m.CanaryArgs))
	if err != nil {
		return "", "", err
	}
	others, err = fill(name, m.Query, f.data(m.Template.AppArgs, other, otherArgs))
	if err == nil && canary == others {
		err = deploy.Errorf(deploy.Invalid, "%s: the query is the same for the canary and for %s: use .Variant.Name or .VariantCustomArgs in it, or another strategy", name, other)
	}
	return canary, others, err
}

func (p *process) addLog(f filler, c *check, l analysis.Log) (err error) {
	look := &logCheck{Log: l, providers: p.Providers}
	look.query, err = fill(c.name, l.Query, f.data(l.Template.AppArgs, "", nil))
	c.look = look.look
	p.checks = append(p.checks, c)
	return err
}

func (p *process) addHTTP(f filler, c *check, h analysis.HTTP) (err error) {
	data := f.data(h.Template.AppArgs, "", nil)
	look := &httpCheck{HTTP: h, client: p.http}
	if look.URL, err = fill(c.name, h.URL, data); err != nil {
		return err
	}
	if err := analysis.CheckURL(look.URL); err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: url: %w", c.name, err)
	}
	look.Headers = nil
	for _, header := range h.Headers {
		if header.Value, err = fill(c.name, header.Value, data); err != nil {
			return err
		}
		look.Headers = append(look.Headers, header)
	}
	look.pattern, err = h.Pattern()
	c.look = look.look
	p.checks = append(p.checks, c)
	return err
}
