package page

import (
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// stageAnalysis is the name of stages that analyse, and analysisName of the tab about them.
const (
	stageAnalysis = "ANALYSIS"
	analysisName  = "analysis"
)

// analysed reports whether a deployment has a stage that analyses.
func analysed(d *modelv1.Deployment) bool {
	return slices.ContainsFunc(d.GetStages(), func(s *modelv1.PipelineStage) bool { return s.Name == stageAnalysis })
}

func readAnalysis(v *visit, d *deploymentView) (templ.Component, string, error) {
	resp, err := v.control.GetAnalysisSeries(v.ctx, &controlv1.GetAnalysisSeriesRequest{DeploymentId: d.d.Id})
	if err != nil {
		return nil, "", err
	}
	return analysisTab(v, resp.GetSeries()), keyOf(resp), nil
}

// Size of the picture of a series, in units of its view box.
const (
	seriesWidth  = 600.
	seriesHeight = 110.
	seriesEdge   = 8. // around the points
)

// seriesPlot is the picture of a series: the mean of each sample, and of what it is compared with,
// over time, with the expected range.
type seriesPlot struct {
	points   []seriesPoint
	line     string // through the measured values, as points of a polyline
	compared string // through those that they are compared with
	bounds   []seriesBound
	low      string // label of the least value of the axis
	high     string
}

type seriesPoint struct {
	x, y string
	role role
}

type seriesBound struct{ y, text string }

// plotOf draws a series. It is nil if nothing was measured.
func plotOf(s *controlv1.AnalysisSeries) *seriesPlot {
	var all []float64
	for _, sample := range s.GetSamples() {
		all = append(all, means(sample.Values)...)
		all = append(all, means(sample.Compared)...)
	}
	if len(all) == 0 {
		return nil
	}
	for _, bound := range []*float64{s.ExpectedMin, s.ExpectedMax} {
		if bound != nil {
			all = append(all, *bound)
		}
	}
	low, high := min(0, slices.Min(all)), slices.Max(all)
	if low == high {
		high = low + 1
	}
	y := func(value float64) string {
		return coordinate(seriesHeight - seriesEdge - (value-low)/(high-low)*(seriesHeight-2*seriesEdge))
	}
	samples := s.GetSamples()
	first, last := samples[0].AtMs, samples[len(samples)-1].AtMs
	x := func(at int64) string {
		return coordinate(seriesEdge + float64(at-first)/float64(max(1, last-first))*(seriesWidth-2*seriesEdge))
	}
	p := &seriesPlot{low: number(low), high: number(high)}
	var line, compared []string
	for _, sample := range samples {
		at := x(sample.AtMs)
		for _, mean := range means(sample.Values) {
			line = append(line, at+","+y(mean))
			p.points = append(p.points, seriesPoint{at, y(mean), verdictMark(sample).role})
		}
		for _, mean := range means(sample.Compared) {
			compared = append(compared, at+","+y(mean))
		}
	}
	p.line, p.compared = strings.Join(line, " "), strings.Join(compared, " ")
	if s.ExpectedMin != nil {
		p.bounds = append(p.bounds, seriesBound{y(*s.ExpectedMin), "at least " + number(*s.ExpectedMin)})
	}
	if s.ExpectedMax != nil {
		p.bounds = append(p.bounds, seriesBound{y(*s.ExpectedMax), "at most " + number(*s.ExpectedMax)})
	}
	return p
}

// means returns the mean of the values of a sample; nothing if there are none.
func means(values []float64) []float64 {
	if len(values) == 0 {
		return nil
	}
	sum := 0.
	for _, v := range values {
		sum += v
	}
	return []float64{sum / float64(len(values))}
}

func coordinate(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

// number writes a measured value.
func number(n float64) string { return strconv.FormatFloat(n, 'g', 4, 64) }

// measuredValues writes the values of a sample: one, or their range.
func measuredValues(values []float64) string {
	switch len(values) {
	case 0:
		return unmeasured
	case 1:
		return number(values[0])
	}
	low, high := slices.Min(values), slices.Max(values)
	if low == high {
		return number(low)
	}
	return number(low) + " to " + number(high)
}

// verdictMark returns the result of a sample as a state.
func verdictMark(s *controlv1.AnalysisSample) mark {
	switch s.Verdict {
	case controlv1.AnalysisVerdict_ANALYSIS_VERDICT_OK:
		return mark{icon: "check", word: "As expected", role: roleOK}
	case controlv1.AnalysisVerdict_ANALYSIS_VERDICT_FAILED:
		return mark{icon: "cross", word: "Not as expected", role: roleBad}
	case controlv1.AnalysisVerdict_ANALYSIS_VERDICT_NO_DATA:
		return mark{icon: "dot", word: "No data", role: roleMuted}
	case controlv1.AnalysisVerdict_ANALYSIS_VERDICT_ERROR:
		return mark{icon: "warning", word: "Error", role: roleWarn}
	}
	return mark{icon: "cloud-off", word: "Unknown", role: roleMuted}
}

// tolerated says how many failures there were.
func tolerated(s *controlv1.AnalysisSeries) string {
	text := plural(s.Failures, "failure", "failures")
	if s.Kind != controlv1.AnalysisCheckKind_ANALYSIS_CHECK_KIND_UNSPECIFIED { // else the limit is not known
		text += "; " + strings.Replace(plural(s.FailureLimit, "is", "are"), "0 are", "none is", 1) + " tolerated"
	}
	return text
}

// newestFirst returns the samples that a table shows.
func newestFirst(s *controlv1.AnalysisSeries) []*controlv1.AnalysisSample {
	const shown = 50
	list := slices.Clone(s.GetSamples())
	slices.Reverse(list)
	return list[:min(len(list), shown)]
}

// omittedSamples returns the number of samples that are not in the table.
func omittedSamples(s *controlv1.AnalysisSeries) int32 {
	return s.SamplesOmitted + int32(len(s.Samples)-len(newestFirst(s)))
}
