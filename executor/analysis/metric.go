package analysis

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/executor/analysis/stats"
	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// Numbers of points to query. A comparison needs at least four on each side. Points
// closer together than the scrape interval repeat the same measurement and would
// overstate the significance.
const (
	maxStep    = time.Minute
	scrapeStep = 15 * time.Second // a common upper bound for scrape intervals
	manyPoints = 10               // for a comparison, if the points are at least scrapeStep apart
	fewPoints  = 5                // for a comparison over a short interval
)

// alpha is the significance level of comparisons, as in PipeCD.
const alpha = 0.05

// metric evaluates the points of a metrics query.
type metric struct {
	analysis.Metric
	providers Providers
	query     string // rendered; with a comparison, the canary's
	other     string // rendered query of the other variant, with CANARY_*
	// previous is the start of the last passed analysis, for the strategy PREVIOUS.
	previous time.Time
}

// window returns the time window of an evaluation that ends at end.
func (m *metric) window(end time.Time) provider.Window {
	interval := time.Duration(m.Interval)
	step := interval
	if m.Strategy != analysis.Threshold {
		step = max(interval/(manyPoints-1), min(scrapeStep, interval/(fewPoints-1)))
	}
	return provider.Window{From: end.Add(-interval), To: end, Step: min(step, maxStep)}
}

// evaluate implements check.evaluate.
func (m *metric) evaluate(ctx context.Context, at instant) (outcome, error) {
	from, err := m.providers.Metrics(m.Provider)
	if err != nil {
		return outcome{}, err
	}
	seen, err := from.Query(ctx, m.query, m.window(at.now))
	if err != nil {
		return outcome{}, err
	}
	if m.Strategy == analysis.Threshold {
		out := threshold(seen.Points, m.Expected)
		out.warnings = seen.Warnings
		return out, nil
	}
	end := at.now
	if m.Strategy == analysis.Previous {
		end = m.previous.Add(at.elapsed)
	}
	others, err := from.Query(ctx, m.other, m.window(end))
	if err != nil {
		return outcome{}, fmt.Errorf("query the points to compare with: %w", err)
	}
	out := compare(seen.Points, others.Points, m.sides(), m.Deviation)
	out.warnings = slices.Concat(seen.Warnings, others.Warnings)
	return out, nil
}

// sides names the two sides of the comparison.
func (m *metric) sides() [2]string {
	switch m.Strategy {
	case analysis.CanaryBaseline:
		return [2]string{"canary", "baseline"}
	case analysis.CanaryPrimary:
		return [2]string{"canary", "primary"}
	}
	return [2]string{"now", "before"}
}

// threshold compares points with the accepted range, bounds included.
func threshold(points []float64, expected analysis.Expected) outcome {
	if len(points) == 0 {
		return noData("the query found nothing")
	}
	low, high := slices.Min(points), slices.Max(points)
	var bad int
	worst, beyond := 0.0, -1.0
	for _, v := range points {
		if by := outside(v, expected); by > 0 {
			if bad++; by > beyond {
				worst, beyond = v, by
			}
		}
	}
	out := outcome{verdict: deploy.AnalysisOK, values: points}
	switch {
	case bad > 0 && len(points) > 1:
		out.verdict, out.text = deploy.AnalysisFailed, fmt.Sprintf("%s (expected %s; %d of %d points are not)", number(worst), bounds(expected), bad, len(points))
	case bad > 0:
		out.verdict, out.text = deploy.AnalysisFailed, fmt.Sprintf("%s (expected %s)", number(worst), bounds(expected))
	case low == high:
		out.text = fmt.Sprintf("%s (expected %s)", number(low), bounds(expected))
	default:
		out.text = fmt.Sprintf("%s to %s (expected %s; %d points)", number(low), number(high), bounds(expected), len(points))
	}
	return out
}

// outside returns the distance of v from the accepted range; 0 is inside.
func outside(v float64, e analysis.Expected) float64 {
	switch {
	case e.Max != nil && v > *e.Max:
		return v - *e.Max
	case e.Min != nil && v < *e.Min:
		return *e.Min - v
	}
	return 0
}

// bounds describes the accepted range.
func bounds(e analysis.Expected) string {
	switch {
	case e.Min == nil:
		return "at most " + number(*e.Max)
	case e.Max == nil:
		return "at least " + number(*e.Min)
	}
	return number(*e.Min) + " to " + number(*e.Max)
}

// compare tests whether points deviate from others.
func compare(points, others []float64, sides [2]string, deviation analysis.Deviation) outcome {
	if len(points) == 0 || len(others) == 0 {
		return noData("points of %s: %d, of %s: %d", sides[0], len(points), sides[1], len(others))
	}
	alternative, is, isNot := stats.Differs, "differs", "does not differ"
	switch deviation {
	case analysis.High:
		alternative, is, isNot = stats.Greater, "is higher", "is not higher"
	case analysis.Low:
		alternative, is, isNot = stats.Less, "is lower", "is not lower"
	}
	all := slices.Concat(points, others)
	if stats.Least(len(points), len(others), alternative) >= alpha && slices.Min(all) != slices.Max(all) {
		return noData("points of %s: %d, of %s: %d, too few for a significant difference; use a longer interval", sides[0], len(points), sides[1], len(others))
	}
	_, p := stats.MannWhitney(points, others, alternative)
	out := outcome{verdict: deploy.AnalysisOK, values: points, compared: others}
	figures := fmt.Sprintf("%s %s, %s %s (medians of %d and %d points)", sides[0], number(median(points)), sides[1], number(median(others)), len(points), len(others))
	if p < alpha {
		out.verdict, out.text = deploy.AnalysisFailed, fmt.Sprintf("%s: %s %s (p = %s, below %g)", figures, sides[0], is, number(p), alpha)
		return out
	}
	out.text = fmt.Sprintf("%s: %s %s (p = %s)", figures, sides[0], isNot, number(p))
	return out
}

// median returns the median of values, which must not be empty.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if half := len(sorted) / 2; len(sorted)%2 == 1 {
		return sorted[half]
	} else if low, high := sorted[half-1], sorted[half]; low != high {
		return low/2 + high/2
	} else {
		return low // also if half a difference is not representable
	}
}

// number formats a number for users.
func number(v float64) string {
	if size := math.Abs(v); size >= 1e-4 && size < 1e9 || v == 0 {
		return strconv.FormatFloat(roundTo(v, 5), 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 5, 64)
}

// roundTo rounds to that many significant digits, but at least to an integer.
func roundTo(v float64, digits int) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, max(0, float64(digits)-1-math.Floor(math.Log10(math.Abs(v)))))
	return math.Round(v*scale) / scale
}
