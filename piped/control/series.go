package control

import (
	"cmp"
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	"google.golang.org/protobuf/proto"
)

// Default and maximal number of samples of each check.
const (
	seriesSamples    = 500
	maxSeriesSamples = 2000
)

// GetAnalysisSeries returns the checks of a deployment's analyses with their samples.
func (s *controlService) GetAnalysisSeries(ctx context.Context, req *controlv1.GetAnalysisSeriesRequest) (*controlv1.GetAnalysisSeriesResponse, error) {
	d, err := s.store.Deployment(ctx, req.DeploymentId)
	if err != nil {
		return nil, err
	}
	if req.StageId != "" && d.Stage(req.StageId) == nil {
		return nil, deploy.Errorf(deploy.NotFound, "deployment %s has no stage %s", d.ID, req.StageId)
	}
	checks, err := s.store.AnalysisChecks(ctx, d.ID, req.StageId)
	if err != nil {
		return nil, err
	}
	samples, err := s.store.AnalysisSamples(ctx, d.ID, req.StageId)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.GetAnalysisSeriesResponse{Series: analysisSeries(d, checks, samples)}
	limitSamples(resp, min(int(cmp.Or(req.Limit, seriesSamples)), maxSeriesSamples))
	return resp, nil
}

// checkKey identifies a check of a deployment.
type checkKey struct{ stage, check string }

// analysisSeries returns the series of the checks in the order of the stages. A check of an
// analysis in an earlier version of the agent is known from its samples only.
func analysisSeries(d deploy.Deployment, checks []deploy.AnalysisCheck, samples []deploy.AnalysisSample) (out []*controlv1.AnalysisSeries) {
	of := map[string][]*controlv1.AnalysisSeries{} // by stage
	known := map[checkKey]*controlv1.AnalysisSeries{}
	add := func(stage, check string, m *controlv1.AnalysisSeries) {
		m.StageId, m.CheckId = text(stage), text(check)
		if st := d.Stage(stage); st != nil {
			m.StageName = text(st.Name)
		}
		known[checkKey{stage, check}] = m
		of[stage] = append(of[stage], m)
	}
	for _, c := range checks {
		add(c.StageID, c.ID, series(c))
	}
	for _, sample := range samples {
		key := checkKey{sample.StageID, sample.Check}
		if known[key] == nil {
			add(key.stage, key.check, &controlv1.AnalysisSeries{Name: text(sample.Name)})
		}
		m := known[key]
		m.Samples = append(m.Samples, analysisSample(sample))
		if sample.Counted {
			m.Failures++
		}
	}
	for _, st := range d.Stages {
		out = append(out, of[st.ID]...)
	}
	return out
}

// limitSamples retains the newest samples of each series: at most limit, and as many as fit into
// a response.
func limitSamples(resp *controlv1.GetAnalysisSeriesResponse, limit int) {
	for {
		for _, m := range resp.Series {
			if n := len(m.Samples) - limit; n > 0 {
				m.Samples, m.SamplesOmitted = m.Samples[n:], m.SamplesOmitted+int32(n)
			}
		}
		if limit == 0 || proto.Size(resp) <= maxResponse {
			return
		}
		limit /= 2
	}
}

var analysisKinds = map[deploy.AnalysisKind]controlv1.AnalysisCheckKind{
	deploy.AnalysisMetrics: controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_METRICS,
	deploy.AnalysisLogs:    controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_LOGS,
	deploy.AnalysisHTTP:    controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_HTTP,
}

var analysisVerdicts = map[deploy.AnalysisVerdict]controlv1.AnalysisVerdict{
	deploy.AnalysisOK:     controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK,
	deploy.AnalysisFailed: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_FAILED,
	deploy.AnalysisNoData: controlv1.AnalysisVerdict_ANALYSIS_VERDICT_NO_DATA,
	deploy.AnalysisError:  controlv1.AnalysisVerdict_ANALYSIS_VERDICT_ERROR,
}

func series(c deploy.AnalysisCheck) *controlv1.AnalysisSeries {
	return &controlv1.AnalysisSeries{
		Name: text(c.Name), Kind: analysisKinds[c.Kind], Provider: text(c.Provider), Query: text(c.Query), Strategy: text(c.Strategy), Deviation: text(c.Deviation),
		ComparedQuery: text(c.ComparedQuery), Variant: text(c.Variant), ComparedVariant: text(c.ComparedVariant),
		ExpectedMin: c.Min, ExpectedMax: c.Max, Expected: text(c.Expected),
		IntervalMs: int64(c.Interval / time.Millisecond), FailureLimit: int32(c.FailureLimit), SkipOnNoData: c.SkipOnNoData,
	}
}

func analysisSample(s deploy.AnalysisSample) *controlv1.AnalysisSample {
	return &controlv1.AnalysisSample{
		Position: s.Position, AtMs: millis(s.At), Verdict: analysisVerdicts[s.Verdict], Counted: s.Counted, Values: s.Values, Compared: s.Compared, Text: text(s.Text),
	}
}
