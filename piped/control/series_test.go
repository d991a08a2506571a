package control_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// analysed stores two checks of a deployment's sync stage, which has to be planned, and samples
// of each verdict.
func analysed(t testing.TB, agent *controltest.Agent, id string) {
	t.Helper()
	base := deploy.AnalysisCheck{DeploymentID: id, StageID: controltest.SyncStage, Interval: time.Minute, FailureLimit: 1}
	errors, canary := base, base
	errors.ID, errors.Name, errors.Kind, errors.Provider, errors.Query, errors.Expected = "metrics[0]", "errors", deploy.AnalysisMetrics, "prometheus", "rate(errors)", "at most 0.5"
	errors.Strategy, errors.Max, errors.SkipOnNoData = "THRESHOLD", new(0.5), true
	canary.ID, canary.Name, canary.Kind, canary.Provider, canary.Query, canary.ComparedQuery = "metrics[1]", "latency", deploy.AnalysisMetrics, "prometheus", "latency(canary)", "latency(baseline)"
	canary.Strategy, canary.Deviation, canary.Variant, canary.ComparedVariant, canary.Expected = "CANARY_BASELINE", "HIGH", "canary", "baseline", "canary is not higher than baseline"
	if err := agent.Store.SaveAnalysisChecks(t.Context(), []deploy.AnalysisCheck{errors, canary}); err != nil {
		t.Fatal(err)
	}
	for i, s := range []deploy.AnalysisSample{
		{Check: "metrics[0]", Verdict: deploy.AnalysisOK, Values: []float64{0.25}},
		{Check: "metrics[0]", Verdict: deploy.AnalysisNoData, Text: "no data"},
		{Check: "metrics[0]", Verdict: deploy.AnalysisError, Counted: true, Text: "no answer"},
		{Check: "metrics[0]", Verdict: deploy.AnalysisFailed, Counted: true, Values: []float64{0.25, 0.75}, Text: "0.75 (expected at most 0.5)"},
		{Check: "metrics[1]", Verdict: deploy.AnalysisOK, Values: []float64{1, 2}, Compared: []float64{3}},
	} {
		s.ApplicationID, s.DeploymentID, s.StageID, s.Name, s.Position, s.At = "app-web", id, controltest.SyncStage, "errors", int64(i+1), controltest.Epoch.Add(time.Duration(i)*time.Minute)
		if err := agent.Store.AppendAnalysisSample(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGetAnalysisSeries(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", map[string]string{"team": "shop"})
	agent.Deployment("d1", app, "")
	agent.Move("d1", deploy.Running, "running")
	analysed(t, agent, "d1")
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	at := func(minute int) int64 { return controltest.Epoch.Add(time.Duration(minute) * time.Minute).UnixMilli() }
	errors := &controlv1.AnalysisSeries{
		StageId: controltest.SyncStage, StageName: "K8S_SYNC", CheckId: "metrics[0]", Name: "errors", Kind: controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_METRICS, Provider: "prometheus", Query: "rate(errors)",
		Strategy: "THRESHOLD", ExpectedMax: new(0.5), Expected: "at most 0.5", IntervalMs: 60_000, FailureLimit: 1, Failures: 2, SkipOnNoData: true,
		Samples: []*controlv1.AnalysisSample{
			{Position: 1, AtMs: at(0), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK, Values: []float64{0.25}},
			{Position: 2, AtMs: at(1), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_NO_DATA, Text: "no data"},
			{Position: 3, AtMs: at(2), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_ERROR, Counted: true, Text: "no answer"},
			{Position: 4, AtMs: at(3), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_FAILED, Counted: true, Values: []float64{0.25, 0.75}, Text: "0.75 (expected at most 0.5)"},
		},
	}
	latency := &controlv1.AnalysisSeries{
		StageId: controltest.SyncStage, StageName: "K8S_SYNC", CheckId: "metrics[1]", Name: "latency", Kind: controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_METRICS, Provider: "prometheus", Query: "latency(canary)",
		Strategy: "CANARY_BASELINE", Deviation: "HIGH", ComparedQuery: "latency(baseline)", Variant: "canary", ComparedVariant: "baseline", Expected: "canary is not higher than baseline",
		IntervalMs: 60_000, FailureLimit: 1,
		Samples: []*controlv1.AnalysisSample{{Position: 5, AtMs: at(4), Verdict: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK, Values: []float64{1, 2}, Compared: []float64{3}}},
	}
	ask := func(req *controlv1.GetAnalysisSeriesRequest) (*controlv1.GetAnalysisSeriesResponse, error) {
		req.DeploymentId = "d1"
		return client.GetAnalysisSeries(as(t, agent.ReadOnly), req)
	}
	got, err := ask(&controlv1.GetAnalysisSeriesRequest{StageId: controltest.SyncStage})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&controlv1.GetAnalysisSeriesResponse{Series: []*controlv1.AnalysisSeries{errors, latency}}, got, protocmp.Transform()); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	got, err = ask(&controlv1.GetAnalysisSeriesRequest{Limit: 1})
	errors.Samples, errors.SamplesOmitted = errors.Samples[3:], 3 // the failures are those of all samples
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&controlv1.GetAnalysisSeriesResponse{Series: []*controlv1.AnalysisSeries{errors, latency}}, got, protocmp.Transform()); diff != "" {
		t.Errorf("the newest sample (-want +got):\n%s", diff)
	}
	if got, err := ask(&controlv1.GetAnalysisSeriesRequest{StageId: controltest.RollbackStage}); err != nil || len(got.Series) != 0 {
		t.Errorf("of a stage without analysis: %v, %v", got, err)
	}
	if _, err := ask(&controlv1.GetAnalysisSeriesRequest{StageId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("of an unknown stage: %v", err)
	}
	if _, err := ask(&controlv1.GetAnalysisSeriesRequest{Limit: -1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a negative limit: %v", err)
	}
	if _, err := client.GetAnalysisSeries(as(t, agent.ReadOnly), &controlv1.GetAnalysisSeriesRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("no deployment: %v", err)
	}
	hidden := agent.LimitedKey("viewer", &deploy.Selector{Names: []string{"api"}})
	if _, err := client.GetAnalysisSeries(as(t, hidden), &controlv1.GetAnalysisSeriesRequest{DeploymentId: "d1"}); status.Code(err) != codes.NotFound {
		t.Errorf("by a caller who may not view it: %v", err)
	}
}

// TestLargeSeries: samples of many values fit into a response; the oldest are omitted. A check
// of an earlier version is known from its samples.
func TestLargeSeries(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", nil), "")
	agent.Move("d1", deploy.Running, "running")
	const n = 40
	for i := range n {
		err := agent.Store.AppendAnalysisSample(t.Context(), deploy.AnalysisSample{
			ApplicationID: "app-web", DeploymentID: "d1", StageID: controltest.SyncStage, Check: "logs[0]", Name: "panics", Position: int64(i), At: agent.Now(),
			Verdict: deploy.AnalysisOK, Text: strings.Repeat("x", 200_000),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	got, err := client.GetAnalysisSeries(as(t, agent.ReadOnly), &controlv1.GetAnalysisSeriesRequest{DeploymentId: "d1"})
	if err != nil || len(got.Series) != 1 {
		t.Fatalf("%d series, %v", len(got.GetSeries()), err)
	}
	s := got.Series[0]
	if len(s.Samples) == 0 || len(s.Samples)+int(s.SamplesOmitted) != n || s.Samples[len(s.Samples)-1].Position != n-1 || s.Name != "panics" {
		t.Errorf("%s has %d samples until %d, %d are omitted", s.Name, len(s.Samples), s.Samples[len(s.Samples)-1].Position, s.SamplesOmitted)
	}
}
