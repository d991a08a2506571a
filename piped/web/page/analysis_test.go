package page

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// errorRate is a series with an upper bound, of which one sample has no data.
func errorRate() *controlv1.AnalysisSeries {
	return &controlv1.AnalysisSeries{
		StageId: "analysis", StageName: "ANALYSIS", CheckId: "metrics[0]", Name: "errors <b>", Kind: controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_METRICS, Provider: "prometheus",
		Query: `rate(errors{app="web"}[1m])`, Expected: "at most 0.1", ExpectedMax: proto.Float64(0.1), FailureLimit: 3, Failures: 1, SamplesOmitted: 7,
		Samples: []*controlv1.AnalysisSample{
			{AtMs: minutesAgo(3), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK, Values: []float64{0, 0.1}, Text: "0.05"},
			{AtMs: minutesAgo(2), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_NO_DATA, Text: "no points"},
			{AtMs: minutesAgo(1), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_FAILED, Counted: true, Values: []float64{0.2}, Text: "0.2 is above 0.1"},
		},
	}
}

// TestAnalysis: the tab has each check with its query, bound and samples; other deployments have
// no such tab.
func TestAnalysis(t *testing.T) {
	f := approvable(t).on("GetAnalysisSeries", &controlv1.GetAnalysisSeriesResponse{Series: []*controlv1.AnalysisSeries{errorRate()}})
	if body := bodyOf(t, f.get("/deployments/d-checkout?tab=plan")); strings.Contains(body, "tab=analysis") {
		t.Error("a deployment without an analysis has a tab about it")
	}
	d := waitingDeployment()
	d.Stages = append(d.Stages, &modelv1.PipelineStage{Id: "analysis", Name: "ANALYSIS", Status: modelv1.StageStatus_STAGE_RUNNING})
	f.on("GetDeployment", &apiservice.GetDeploymentResponse{Deployment: d})
	body := golden(t, "analysis", f.get("/deployments/d-checkout?tab=analysis"))
	for _, want := range []string{"errors &lt;b&gt;", "rate(errors{app=&#34;web&#34;}[1m])", "1 failure; 3 are tolerated", "0.2 is above 0.1", "0 to 0.1", "No data", "Not as expected", "at most 0.1", "7 older samples are not shown"} {
		if !strings.Contains(body, want) {
			t.Errorf("the tab lacks %q", want)
		}
	}
}

// TestPlotOfASeries: the greatest value is at the top, nothing at the bottom, the bound between,
// and a sample without data is no point.
func TestPlotOfASeries(t *testing.T) {
	p := plotOf(errorRate())
	// From 0 to 0.2 over 94 of 110 units, and from 8 to 592 over two minutes.
	if want := "8.0,78.5 592.0,8.0"; p.line != want || p.compared != "" {
		t.Errorf("the line is %q, want %q; compared %q", p.line, want, p.compared)
	}
	if len(p.points) != 2 || p.points[0].role != roleOK || p.points[1].role != roleBad {
		t.Errorf("points %+v", p.points)
	}
	if len(p.bounds) != 1 || p.bounds[0].y != "55.0" || p.bounds[0].text != "at most 0.1" || p.low != "0" || p.high != "0.2" {
		t.Errorf("%+v from %s to %s", p.bounds, p.low, p.high)
	}
	if p := plotOf(&controlv1.AnalysisSeries{Samples: []*controlv1.AnalysisSample{{Text: "no points"}}}); p != nil {
		t.Errorf("nothing was measured, but drawn is %+v", p)
	}
	if p := plotOf(&controlv1.AnalysisSeries{Samples: []*controlv1.AnalysisSample{{Values: []float64{0}}}}); p == nil || p.line != "8.0,102.0" {
		t.Errorf("one value of 0 is drawn as %+v", p)
	}
}
