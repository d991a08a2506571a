package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/executor/analysis/prometheustest"
	"github.com/c785c783/piped/piped/deploy"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const analysedPipeline = `  trafficRouting: {method: httproute, httpRoute: {verify: {timeout: 10m, settle: 300ms}}}
  pipeline:
    stages:
      - {id: canary, name: K8S_CANARY_ROLLOUT, with: {createService: true}}
      - {id: baseline, name: K8S_BASELINE_ROLLOUT, with: {createService: true}}
      - {id: traffic, name: K8S_TRAFFIC_ROUTING, with: {canary: 30, baseline: 30}}
      - id: analysis
        name: ANALYSIS
        with:
          duration: %s
          metrics:
            - {name: errors, provider: prometheus, interval: 500ms, failureLimit: 1, expected: {max: 0.01}, query: 'errors{app="{{ .App.Name }}",variant="canary"}'}
            - {name: latency, provider: prometheus, interval: 1s, strategy: CANARY_BASELINE, deviation: HIGH, query: 'latency{variant="{{ .Variant.Name }}"}'}
      - {id: primary, name: K8S_PRIMARY_ROLLOUT}
      - {id: back, name: K8S_TRAFFIC_ROUTING, with: {all: primary}}
      - {id: clean, name: K8S_CANARY_CLEAN}
      - {id: clean-baseline, name: K8S_BASELINE_CLEAN}
`

// TestPrometheusDecides: a canary is compared with a baseline, both with traffic. The
// first version is as good. The next one turns bad in the middle of the analysis, by the
// metrics of a real Prometheus, and all traffic must be back in time.
func TestPrometheusDecides(t *testing.T) {
	t.Parallel()
	exporter := prometheustest.NewExporter(t)
	for _, series := range []string{`errors{app="web",variant="canary"}`, `latency{variant="canary"}`, `latency{variant="baseline"}`} {
		exporter.Set(series, 0.001)
	}
	server := prometheustest.StartSlow(t, exporter)
	p := newProgressive(t, fmt.Sprintf(analysedPipeline, "2s"), httpRouteOfWeb, fmt.Sprintf(
		"  analysisProviders: [{name: prometheus, type: PROMETHEUS, config: {address: %q, usernameFile: %q, passwordFile: %q}}]\n",
		server.URL, server.UsernameFile, server.PasswordFile))
	p.acceptRoute()
	eventually(t, "the series are stored", func() bool { return exporter.Asked() >= 2 }) // the second scrape follows the first
	const stable, shared = "web 1; static 1", "web 40, web-canary 30, web-baseline 30; static 1"
	r := recordTraffic(t, p, httpRouteResource, backends)
	r.await(t, stable)
	r.await(t, "web runs v1")

	r.begin()
	d := p.end("v2", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, p.logs(d.GetId()), "errors: 0.001 (expected at most 0.01): ok", "latency: ", "The analysis of 2s passed")
	r.mustBe(t, "web-canary runs v2", "web-baseline runs v1", shared, "web runs v2", stable, "web-canary removed", "web-baseline removed")
	last := p.lastGood()

	r.begin()
	p.web.spec = fmt.Sprintf(analysedPipeline, "10m") // it fails as soon as the bad metrics were checked twice
	commit := p.push("v3")
	p.await(appID("web"), "is analysed", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == commit && strings.Contains(p.logs(d.GetId()), "errors: 0.001 (expected at most 0.01): ok")
	})
	exporter.Set(`errors{app="web",variant="canary"}`, 0.25)
	d = p.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveStages(t, d, "canary SUCCESS", "baseline SUCCESS", "traffic SUCCESS", "analysis FAILURE", "primary NOT_STARTED_YET", "back NOT_STARTED_YET",
		"clean NOT_STARTED_YET", "clean-baseline NOT_STARTED_YET", "Rollback SUCCESS")
	mustContain(t, d.GetStatusReason(), "errors has failed 2 times", "0.25", "rolled back to commit")
	r.mustBeBackBy(t, verdictOf(t, p, d), stable)
	last.mustStand(t)
}

// verdictOf returns the time of the response to the last check of a failed analysis.
func verdictOf(t *testing.T, p *progressive, d *modelv1.Deployment) (at time.Time) {
	t.Helper()
	samples, err := p.store.AnalysisSamples(t.Context(), d.GetId(), "analysis")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if s.Verdict == deploy.AnalysisFailed && s.At.After(at) {
			at = s.At
		}
	}
	if at.IsZero() {
		t.Errorf("no check has failed: %+v", samples)
	}
	return at
}
