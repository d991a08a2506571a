package analysis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// TestDescribedChecks: an analysis stores what its checks evaluate and expect, rendered, before
// the first sample. Passwords, headers and expected bodies are not stored.
func TestDescribedChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e := newEnv(t, script(func(context.Context, string, provider.Window) ([]float64, error) { return nil, nil }))
		errors := atMost(0.5, seconds(60))
		errors.Query, errors.FailureLimit, errors.SkipOnNoData, errors.Expected.Min = "errors of {{ .App.Name }}", 2, true, bound(0)
		canary := atMost(0, seconds(60))
		canary.Name, canary.Query, canary.Strategy, canary.Expected, canary.Deviation = "latency", "latency of {{ .Variant.Name }}", analysis.CanaryBaseline, analysis.Expected{}, analysis.High
		o := options(seconds(60), errors, canary)
		o.Logs = []analysis.Log{{Check: analysis.Check{Interval: seconds(40), Timeout: seconds(5)}, Provider: "loki", Query: "panic"}}
		o.HTTPS = []analysis.HTTP{{
			Check: analysis.Check{Name: "page", Interval: seconds(40), Timeout: seconds(5)}, URL: "http://jane:secret@127.0.0.1:1/health", Method: "GET", ExpectedCode: 200,
			ExpectedResponse: "secret", Headers: []analysis.Header{{Key: "Authorization", Value: "secret"}},
		}}
		ctx, stop := context.WithTimeout(t.Context(), 30*time.Second) // before any interval ends
		defer stop()
		e.executor().Execute(ctx, e.run(o, began, false))
		if samples := e.samples(); samples != nil {
			t.Errorf("samples: %q", samples)
		}
		got, err := e.store.AnalysisChecks(t.Context(), "d", "s")
		if err != nil {
			t.Fatal(err)
		}
		want := []deploy.AnalysisCheck{
			{ID: "metrics[0]", Name: "errors", Kind: deploy.AnalysisMetrics, Provider: "p", Query: "errors of web", Expected: "0 to 0.5", Strategy: "THRESHOLD", Min: bound(0), Max: bound(0.5),
				Interval: time.Minute, FailureLimit: 2, SkipOnNoData: true},
			{ID: "metrics[1]", Name: "latency", Kind: deploy.AnalysisMetrics, Provider: "p", Query: "latency of canary", Expected: "canary is not higher than baseline", Strategy: "CANARY_BASELINE",
				Deviation: "HIGH", ComparedQuery: "latency of baseline", Variant: "canary", ComparedVariant: "baseline", Interval: time.Minute},
			{ID: "logs[0]", Name: "logs[0]", Kind: deploy.AnalysisLogs, Provider: "loki", Query: "panic", Expected: "no line", Interval: 40 * time.Second},
			{ID: "https[0]", Name: "page", Kind: deploy.AnalysisHTTP, Query: "GET http://jane:xxxxx@127.0.0.1:1/health", Expected: "status 200 and the expected body", Interval: 40 * time.Second},
		}
		for i := range want {
			want[i].DeploymentID, want[i].StageID = "d", "s"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
	})
}
