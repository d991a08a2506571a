package analysis

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

func TestThreshold(t *testing.T) {
	low, high := bound(1), bound(2)
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		points   []float64
		expected analysis.Expected
		verdict  deploy.AnalysisVerdict
		text     string
	}{
		"nothing":            {nil, analysis.Expected{Max: high}, deploy.AnalysisNoData, "no data: the query found nothing"},
		"inside":             {[]float64{1.5}, analysis.Expected{Min: low, Max: high}, deploy.AnalysisOK, "1.5 (expected 1 to 2)"},
		"both ends belong":   {[]float64{1, 2}, analysis.Expected{Min: low, Max: high}, deploy.AnalysisOK, "1 to 2 (expected 1 to 2; 2 points)"},
		"equal points":       {[]float64{0, 0, 0}, analysis.Expected{Max: high}, deploy.AnalysisOK, "0 (expected at most 2)"},
		"above":              {[]float64{2.0001}, analysis.Expected{Max: high}, deploy.AnalysisFailed, "2.0001 (expected at most 2)"},
		"below":              {[]float64{0.5}, analysis.Expected{Min: low}, deploy.AnalysisFailed, "0.5 (expected at least 1)"},
		"one bad of many":    {[]float64{1, 1, 7, 1}, analysis.Expected{Max: high}, deploy.AnalysisFailed, "7 (expected at most 2; 1 of 4 points are not)"},
		"the worst is shown": {[]float64{3, -9, 2.5}, analysis.Expected{Min: low, Max: high}, deploy.AnalysisFailed, "-9 (expected 1 to 2; 3 of 3 points are not)"},
		"infinity":           {[]float64{inf}, analysis.Expected{Max: high}, deploy.AnalysisFailed, "+Inf (expected at most 2)"},
		"infinite is enough": {[]float64{inf}, analysis.Expected{Min: low}, deploy.AnalysisOK, "+Inf (expected at least 1)"},
		"less than it shows": {[]float64{-inf, 5}, analysis.Expected{Min: low}, deploy.AnalysisFailed, "-Inf (expected at least 1; 1 of 2 points are not)"},
	} {
		out := threshold(c.points, c.expected)
		if out.verdict != c.verdict || out.text != c.text {
			t.Errorf("%s: %s %q, want %s %q", name, out.verdict, out.text, c.verdict, c.text)
		}
	}
}

func TestCompare(t *testing.T) {
	low, high := []float64{1, 2, 3, 4, 5, 6}, []float64{11, 12, 13, 14, 15, 16}
	same := []float64{7, 7, 7, 7, 7, 7}
	for name, c := range map[string]struct {
		points, others []float64
		deviation      analysis.Deviation
		verdict        deploy.AnalysisVerdict
		text           string
	}{
		"higher, either":       {high, low, analysis.Either, deploy.AnalysisFailed, "canary 13.5, baseline 3.5 (medians of 6 and 6 points): canary differs (p = 0.0021645, below 0.05)"},
		"lower, either":        {low, high, analysis.Either, deploy.AnalysisFailed, "canary 3.5, baseline 13.5 (medians of 6 and 6 points): canary differs (p = 0.0021645, below 0.05)"},
		"higher, high":         {high, low, analysis.High, deploy.AnalysisFailed, "canary 13.5, baseline 3.5 (medians of 6 and 6 points): canary is higher (p = 0.0010823, below 0.05)"},
		"lower, high":          {low, high, analysis.High, deploy.AnalysisOK, "canary 3.5, baseline 13.5 (medians of 6 and 6 points): canary is not higher (p = 1)"},
		"lower, low":           {low, high, analysis.Low, deploy.AnalysisFailed, "canary 3.5, baseline 13.5 (medians of 6 and 6 points): canary is lower (p = 0.0010823, below 0.05)"},
		"higher, low":          {high, low, analysis.Low, deploy.AnalysisOK, "canary 13.5, baseline 3.5 (medians of 6 and 6 points): canary is not lower (p = 1)"},
		"identical":            {low, low, analysis.Either, deploy.AnalysisOK, "canary 3.5, baseline 3.5 (medians of 6 and 6 points): canary does not differ (p = 1)"},
		"one value everywhere": {same, same, analysis.High, deploy.AnalysisOK, "canary 7, baseline 7 (medians of 6 and 6 points): canary is not higher (p = 1)"},
		"too few points":       {high[:3], low[:3], analysis.Either, deploy.AnalysisNoData, "no data: points of canary: 3, of baseline: 3, too few for a significant difference; use a longer interval"},
		"just enough points":   {high[:4], low[:4], analysis.Either, deploy.AnalysisFailed, "canary 12.5, baseline 2.5 (medians of 4 and 4 points): canary differs (p = 0.028571, below 0.05)"},
		"few, one direction":   {high[:3], low[:3], analysis.High, deploy.AnalysisNoData, "no data: points of canary: 3, of baseline: 3, too few for a significant difference; use a longer interval"},
		"few and the same":     {same[:1], same[:2], analysis.Either, deploy.AnalysisOK, "canary 7, baseline 7 (medians of 1 and 2 points): canary does not differ (p = 1)"},
		"no canary":            {nil, low, analysis.Either, deploy.AnalysisNoData, "no data: points of canary: 0, of baseline: 6"},
		"no baseline":          {high[:1], nil, analysis.Either, deploy.AnalysisNoData, "no data: points of canary: 1, of baseline: 0"},
		"neither":              {nil, nil, analysis.Either, deploy.AnalysisNoData, "no data: points of canary: 0, of baseline: 0"},
		"infinite ones":        {[]float64{math.Inf(1), math.Inf(1), 1, 2}, []float64{math.Inf(-1), math.Inf(1), 1, 2}, analysis.High, deploy.AnalysisOK, "canary +Inf, baseline 1.5 (medians of 4 and 4 points): canary is not higher (p = 0.22695)"},
	} {
		out := compare(c.points, c.others, [2]string{"canary", "baseline"}, c.deviation)
		if out.verdict != c.verdict || out.text != c.text {
			t.Errorf("%s: %s %q, want %s %q", name, out.verdict, out.text, c.verdict, c.text)
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 0.1 + 0.2: "0.3", 0.00012345678: "0.00012346", 0.00001: "1e-05", 123456.789: "123457", 99999999: "99999999",
		1e12: "1e+12", -0.05: "-0.05", math.MaxFloat64: "1.7977e+308", 5e-324: "4.9407e-324",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}

// TestWindow: the queried time window.
func TestWindow(t *testing.T) {
	end := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		strategy       analysis.Strategy
		interval, step time.Duration
	}{
		{analysis.Threshold, 10 * time.Minute, time.Minute},
		{analysis.Threshold, 30 * time.Second, 30 * time.Second},
		{analysis.CanaryBaseline, time.Hour, time.Minute},
		{analysis.CanaryBaseline, 3 * time.Minute, 20 * time.Second},
		{analysis.CanaryPrimary, 2 * time.Minute, 15 * time.Second},
		{analysis.CanaryPrimary, time.Minute, 15 * time.Second},
		{analysis.Previous, 30 * time.Second, 7500 * time.Millisecond},
		{analysis.Previous, 2 * time.Second, 500 * time.Millisecond},
	} {
		m := metric{Metric: atMost(1, seconds(c.interval.Seconds()))}
		m.Strategy = c.strategy
		want := provider.Window{From: end.Add(-c.interval), To: end, Step: c.step}
		if diff := cmp.Diff(want, m.window(end)); diff != "" {
			t.Errorf("%s every %s (-want +got):\n%s", c.strategy, c.interval, diff)
		}
	}
}

func TestStorable(t *testing.T) {
	many := make([]float64, 1000)
	if got := len(storable(many)); got != maxStored {
		t.Errorf("%d points are stored, want %d", got, maxStored)
	}
	want := []float64{-math.MaxFloat64, 1, math.MaxFloat64}
	if diff := cmp.Diff(want, storable([]float64{math.Inf(-1), 1, math.Inf(1)})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
