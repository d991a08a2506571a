package analysis

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// describe stores the checks, for those who follow the analysis. It does not decide the
// analysis, so an error is only logged.
func (p *session) describe(ctx context.Context) {
	checks := make([]deploy.AnalysisCheck, len(p.checks))
	for i, c := range p.checks {
		d := c.described
		d.DeploymentID, d.StageID, d.ID, d.Name = p.run.Deployment.ID, p.run.Stage.ID, c.id, c.name
		d.Interval, d.FailureLimit, d.SkipOnNoData = c.interval, c.limit, c.skipNoData
		checks[i] = d
	}
	if err := p.Store.SaveAnalysisChecks(ctx, checks); err != nil && ctx.Err() == nil {
		p.Logger.Warn("cannot store the checks of an analysis; its series will lack what was expected",
			"app", p.run.Deployment.ApplicationName, "deployment", p.run.Deployment.ID, "stage", p.run.Stage.ID, "error", err)
	}
}

// described describes a metric check with rendered queries.
func (m *metric) described() deploy.AnalysisCheck {
	d := deploy.AnalysisCheck{Kind: deploy.AnalysisMetrics, Provider: m.Provider, Query: m.query, Strategy: string(m.Strategy)}
	if m.Strategy == analysis.Threshold {
		d.Min, d.Max, d.Expected = m.Metric.Expected.Min, m.Metric.Expected.Max, bounds(m.Metric.Expected)
		return d
	}
	sides := m.sides()
	d.Deviation, d.Variant, d.ComparedVariant, d.ComparedQuery = string(m.Deviation), sides[0], sides[1], m.other
	relation := map[analysis.Deviation]string{analysis.High: "is not higher than", analysis.Low: "is not lower than"}[m.Deviation]
	d.Expected = fmt.Sprintf("%s %s %s", sides[0], cmp.Or(relation, "does not differ from"), sides[1])
	return d
}

// described describes a log check with its rendered query.
func (l *logCheck) described() deploy.AnalysisCheck {
	return deploy.AnalysisCheck{Kind: deploy.AnalysisLogs, Provider: l.Provider, Query: l.query, Expected: "no line"}
}

// described describes an HTTP check with its rendered URL. The expected body may be secret, so
// it is not included.
func (h *httpCheck) described() deploy.AnalysisCheck {
	address := h.URL
	if u, err := url.Parse(address); err == nil {
		address = u.Redacted()
	}
	expected := fmt.Sprintf("status %d", h.ExpectedCode)
	if h.ExpectedResponse != "" {
		expected += " and the expected body"
	}
	return deploy.AnalysisCheck{Kind: deploy.AnalysisHTTP, Query: h.Method + " " + address, Expected: expected}
}
