package storetest

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/google/go-cmp/cmp"
)

func testAnalysis(t *testing.T, e *env) {
	ctx := t.Context()
	a := e.putApp(t, "web")
	e.create(t, "d1", a)
	at := e.clock.now().UTC().Truncate(time.Millisecond)
	sample := func(stage, check string, position int64) deploy.AnalysisSample {
		return deploy.AnalysisSample{
			ApplicationID: a.ID, DeploymentID: "d1", StageID: stage, Check: check, Name: "errors", Position: position, At: at,
			Verdict: deploy.AnalysisFailed, Counted: true, Values: []float64{0.5, -1e300}, Compared: []float64{0}, Text: "0.5: too much",
		}
	}
	first, second, other := sample("analysis", "metrics[0]", 1), sample("analysis", "metrics[0]", 12), sample("again", "https[0]", 2)
	other.Verdict, other.Counted, other.Values, other.Compared, other.Text = deploy.AnalysisNoData, false, nil, nil, ""
	for _, s := range []deploy.AnalysisSample{second, first, other} {
		if err := e.store.AppendAnalysisSample(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	twice := first
	twice.Verdict, twice.Text = deploy.AnalysisOK, "the first one counts"
	if err := e.store.AppendAnalysisSample(ctx, twice); err != nil {
		t.Fatal(err)
	}
	for stage, want := range map[string][]deploy.AnalysisSample{"analysis": {first, second}, "": {other, first, second}, "none": nil} {
		got, err := e.store.AnalysisSamples(ctx, "d1", stage)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("samples of stage %q (-want +got):\n%s", stage, diff)
		}
	}
	unknown := first
	unknown.DeploymentID = "nobody"
	wantKind(t, e.store.AppendAnalysisSample(ctx, unknown), deploy.NotFound, "nobody")
}

// testAnalysisChecks stores the checks of two analyses of a stage, such as those of two traffic
// steps; the first one resumes after a restart.
func testAnalysisChecks(t *testing.T, e *env) {
	ctx := t.Context()
	e.create(t, "d1", e.putApp(t, "web"))
	check := func(stage, id string) deploy.AnalysisCheck {
		return deploy.AnalysisCheck{
			DeploymentID: "d1", StageID: stage, ID: id, Name: "errors", Kind: deploy.AnalysisMetrics, Provider: "prometheus", Query: "rate(errors)", Expected: "0 to 0.5",
			Strategy: "THRESHOLD", Min: new(0.0), Max: new(0.5), Interval: time.Minute, FailureLimit: 2, SkipOnNoData: true,
		}
	}
	canary := check("a", "step-10/metrics[1]")
	canary.Strategy, canary.Min, canary.Max = "CANARY_BASELINE", nil, nil
	canary.Deviation, canary.ComparedQuery, canary.Variant, canary.ComparedVariant = "HIGH", "rate(others)", "canary", "baseline"
	first, second, other := check("a", "step-10/metrics[0]"), check("a", "step-2/metrics[0]"), check("b", "https[0]")
	save := func(checks ...deploy.AnalysisCheck) {
		t.Helper()
		if err := e.store.SaveAnalysisChecks(ctx, checks); err != nil {
			t.Fatal(err)
		}
	}
	save(other)
	save(first, canary)
	save(second)
	first.Max = new(0.75)
	save(first, canary)
	save()
	for stage, want := range map[string][]deploy.AnalysisCheck{"a": {first, canary, second}, "": {first, canary, second, other}, "none": nil} {
		got, err := e.store.AnalysisChecks(ctx, "d1", stage)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("checks of stage %q (-want +got):\n%s", stage, diff)
		}
	}
	first.DeploymentID = "nobody"
	wantKind(t, e.store.SaveAnalysisChecks(ctx, []deploy.AnalysisCheck{first}), deploy.NotFound, "nobody")
}

func testAnalysisPassed(t *testing.T, e *env) {
	ctx := t.Context()
	a := e.putApp(t, "web")
	if p, ok, err := e.store.AnalysisPassed(ctx, a.ID, "analysis"); ok || err != nil {
		t.Errorf("before there was any: %+v, %v, %v", p, ok, err)
	}
	at := e.clock.now().UTC().Truncate(time.Millisecond)
	want := deploy.AnalysisPassed{ApplicationID: a.ID, Analysis: "analysis", DeploymentID: "d2", StartedAt: at.Add(time.Hour)}
	other := deploy.AnalysisPassed{ApplicationID: a.ID, Analysis: "other", DeploymentID: "d1", StartedAt: at}
	for _, p := range []deploy.AnalysisPassed{{ApplicationID: a.ID, Analysis: "analysis", DeploymentID: "d1", StartedAt: at}, other, want} {
		if err := e.store.SaveAnalysisPassed(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []deploy.AnalysisPassed{want, other} {
		got, ok, err := e.store.AnalysisPassed(ctx, a.ID, p.Analysis)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", p.Analysis, ok, err)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Errorf("passed (-want +got):\n%s", diff)
		}
	}
	wantKind(t, e.store.SaveAnalysisPassed(ctx, deploy.AnalysisPassed{ApplicationID: "nobody"}), deploy.NotFound, "nobody")
}
