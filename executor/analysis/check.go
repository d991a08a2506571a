package analysis

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// check is one check of an analysis: what it is, and how far it has come. It
// belongs to one goroutine.
type check struct {
	id, name   string
	interval   time.Duration
	timeout    time.Duration
	limit      int // of failures that are tolerated
	skipNoData bool
	// look looks once; nil is a check that has nothing to look at. Its error says why
	// there was no answer.
	look func(ctx context.Context, at moment) (outcome, error)

	position int64 // of the last look
	failures int
	last     string // what the last failure was
}

// moment is when a check looks.
type moment struct {
	now     time.Time
	elapsed time.Duration // since the analysis began
}

// outcome is what a check saw when it looked once.
type outcome struct {
	verdict          deploy.AnalysisVerdict
	values, compared []float64
	text             string // what was seen, and what was expected
	warnings         []string
}

func newCheck(id string, c analysis.Check) *check {
	name := c.Name
	if name == "" {
		name = id
	}
	return &check{
		id: id, name: name, interval: time.Duration(c.Interval), timeout: time.Duration(c.Timeout), limit: c.FailureLimit, skipNoData: c.SkipOnNoData,
	}
}

// ask looks once, within the check's timeout. That nobody answers is an outcome.
func (c *check) ask(ctx context.Context, at moment) outcome {
	ctx, stop := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("nothing within the timeout of %s", c.timeout))
	defer stop()
	out, err := c.look(ctx, at)
	if err != nil {
		return outcome{verdict: deploy.AnalysisError, text: err.Error()}
	}
	return out
}

// count counts an outcome and reports whether it is a failure.
func (c *check) count(out outcome) bool {
	if out.verdict == deploy.AnalysisOK || out.verdict == deploy.AnalysisNoData && c.skipNoData {
		return false
	}
	c.failures++
	c.last = out.text
	return true
}

func (c *check) failedForGood() bool { return c.failures > c.limit }

// verdict says why the check has failed for good.
func (c *check) verdict() error {
	times := "once"
	if c.failures > 1 {
		times = fmt.Sprintf("%d times", c.failures)
	}
	return deploy.Errorf(deploy.Invalid, "the analysis is not passed: %s has failed %s, and %s (failureLimit: %d); the last time: %s", c.name, times, c.tolerance(), c.limit, c.last)
}

// tolerance says how many failures are tolerated.
func (c *check) tolerance() string {
	switch c.limit {
	case 0:
		return "no failure is tolerated"
	case 1:
		return "1 failure is tolerated"
	}
	return fmt.Sprintf("%d failures are tolerated", c.limit)
}

// line says, for a person, what an outcome that was counted means.
func (c *check) line(out outcome) string {
	tally := fmt.Sprintf("%d of %d failures", c.failures, c.limit)
	switch {
	case c.limit == 0 && c.failures == 0:
		tally = "no failures"
	case c.failures > c.limit:
		tally = c.tolerance()
	}
	words := map[deploy.AnalysisVerdict]string{
		deploy.AnalysisOK: "ok", deploy.AnalysisFailed: "failed", deploy.AnalysisNoData: "inconclusive, which counts as a failure", deploy.AnalysisError: "error, which counts as a failure",
	}
	word := words[out.verdict]
	if out.verdict == deploy.AnalysisNoData && c.skipNoData {
		word = "inconclusive, skipped (skipOnNoData)"
	}
	return fmt.Sprintf("%s: %s: %s, %s", c.name, out.text, word, tally)
}

// noData is the outcome when there is nothing to judge.
func noData(format string, args ...any) outcome {
	return outcome{verdict: deploy.AnalysisNoData, text: "no data: " + fmt.Sprintf(format, args...)}
}

// maxStored bounds the points of one sample that are stored.
const maxStored = 200

// storable returns values as they can be stored: not too many, and finite.
func storable(values []float64) []float64 {
	values = values[:min(len(values), maxStored)]
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = max(-math.MaxFloat64, min(math.MaxFloat64, v))
	}
	return out
}
