package analysis

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/executor/analysis/prometheustest"
	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// prometheus starts a Prometheus server, and returns its exporter and provider.
func prometheus(t *testing.T) (*prometheustest.Exporter, *provider.Set) {
	exporter := prometheustest.NewExporter(t)
	for _, series := range []string{
		`errors{app="web"}`, `alike{variant="canary"}`, `alike{variant="baseline"}`, `worse{variant="baseline"}`,
	} {
		exporter.Set(series, 0.001)
	}
	exporter.Set(`worse{variant="canary"}`, 0.2)
	server := prometheustest.StartSlow(t, exporter)
	set := provider.NewSet()
	t.Cleanup(func() { _ = set.Close() }) // it returns nil
	set.Use([]config.AnalysisProvider{{Name: "prometheus", Type: config.AnalysisPrometheus, Config: &config.Prometheus{
		Address: server.URL, UsernameFile: server.UsernameFile, PasswordFile: server.PasswordFile,
	}}})
	m, err := set.Metrics("prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got, err := m.Query(t.Context(), "errors", provider.Window{From: time.Now(), To: time.Now(), Step: time.Second})
		if err == nil && len(got.Points) > 0 {
			return exporter, set
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus does not know the metrics: %v, %v", got, err)
		}
	}
}

// TestPrometheus queries a Prometheus server.
func TestPrometheus(t *testing.T) {
	exporter, set := prometheus(t)
	t.Run("together", func(t *testing.T) { // ends when all are done
		t.Run("that turns bad in the middle", func(t *testing.T) { t.Parallel(); turnsBad(t, exporter, set) })
		t.Run("which compares variants that are alike", func(t *testing.T) { t.Parallel(); comparesAlike(t, set) })
		t.Run("which compares variants that are not", func(t *testing.T) { t.Parallel(); comparesWorse(t, set) })
		t.Run("that says what is wrong", func(t *testing.T) { t.Parallel(); saysWhatIsWrong(t, set) })
	})
}

// onPrometheus returns a check with an interval of half a second.
func onPrometheus(query string) analysis.Metric {
	return analysis.Metric{
		Check:    analysis.Check{Name: "errors", Interval: seconds(0.5), Timeout: seconds(60)},
		Provider: "prometheus", Query: query, Strategy: analysis.Threshold, Expected: analysis.Expected{Max: bound(0.01)}, Deviation: analysis.Either,
	}
}

// turnsBad: the metrics degrade in the middle of the analysis.
func turnsBad(t *testing.T, exporter *prometheustest.Exporter, set *provider.Set) {
	e := newEnv(t, set)
	m := onPrometheus(`errors{app="{{ .App.Name }}"}`)
	m.FailureLimit = 1
	go func() {
		// Degrade after the first good evaluation.
		for !slices.ContainsFunc(e.log.Lines(), func(line string) bool { return strings.HasSuffix(line, "ok, 0 of 1 failures") }) {
			time.Sleep(10 * time.Millisecond)
		}
		exporter.Set(`errors{app="web"}`, 0.25)
	}()
	result, took := e.execute(t.Context(), options(seconds(3600), m))
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "errors has failed 2 times, and 1 failure is tolerated (failureLimit: 1); the last time: 0.25 (expected at most 0.01") {
		t.Errorf("ended as %+v, want FAILURE that names check, value and limit", result)
	}
	if took > 10*time.Minute {
		t.Errorf("it took %s to notice", took)
	}
	log := strings.Join(e.log.Lines(), "\n")
	for _, want := range []string{"errors: 0.001 (expected at most 0.01): ok, 0 of 1 failures", "(expected at most 0.01", "failed, 1 of 1 failures"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not say %q:\n%s", want, log)
		}
	}
	samples, err := e.store.AnalysisSamples(t.Context(), "d", "s")
	if err != nil || len(samples) < 3 || len(samples[0].Values) == 0 || samples[0].Values[0] != 0.001 || samples[len(samples)-1].Verdict != deploy.AnalysisFailed {
		t.Errorf("the series that is stored: %+v, %v", samples, err)
	}
}

// compared returns the result of an analysis that compares a metric of two variants.
func compared(t *testing.T, set *provider.Set, metric string) deploy.StageResult {
	e := newEnv(t, set)
	m := onPrometheus(metric + `{variant="{{ .Variant.Name }}"}`)
	m.Strategy, m.Expected, m.Deviation, m.Interval = analysis.CanaryBaseline, analysis.Expected{}, analysis.High, seconds(2)
	result, _ := e.execute(t.Context(), options(seconds(2), m))
	return result
}

func comparesAlike(t *testing.T, set *provider.Set) {
	if result := compared(t, set, "alike"); result.Status != deploy.StageSuccess {
		t.Errorf("it ended as %+v", result)
	}
}

func comparesWorse(t *testing.T, set *provider.Set) {
	result := compared(t, set, "worse")
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "canary 0.2, baseline 0.001") || !strings.Contains(result.Reason, "canary is higher") {
		t.Errorf("it ended as %+v", result)
	}
}

// saysWhatIsWrong: outcomes that are neither success nor failure.
func saysWhatIsWrong(t *testing.T, set *provider.Set) {
	for query, want := range map[string]string{
		`errors{app="nobody"}`: "no data: the query found nothing: inconclusive, which counts as a failure",
		`errors * NaN`:         "no data: the query found nothing: inconclusive, which counts as a failure",
		`rate(errors)`:         "Prometheus cannot answer the query: 1:6: parse error: expected type range vector",
		`{app="web`:            "parse error: unterminated quoted string",
		`scalar(vector(5))`:    "5 (expected at most 0.01; 2 of 2 points are not): failed",
	} {
		e := newEnv(t, set)
		result, _ := e.execute(t.Context(), options(seconds(0.5), onPrometheus(query)))
		if log := strings.Join(e.log.Lines(), "\n"); result.Status != deploy.StageFailure || !strings.Contains(log, want) {
			t.Errorf("%s: ended as %+v, and the log does not say %q:\n%s", query, result, want, log)
		}
	}
	e := newEnv(t, set)
	m := onPrometheus("up")
	m.Provider = "promtheus"
	result, _ := e.execute(context.Background(), options(seconds(0.5), m))
	if want := `the agent has no provider of metrics named "promtheus" (it has prometheus)`; !strings.Contains(result.Reason, want) {
		t.Errorf("a provider that is not there: ended as %+v, want %q", result, want)
	}
}
