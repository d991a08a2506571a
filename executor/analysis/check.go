package analysis

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/c785c783/piped/piped/config/analysis"
	"github.com/c785c783/piped/piped/deploy"
)

// check is one check of an analysis with its progress. It belongs to one goroutine.
type check struct {
	id, name   string
	interval   time.Duration
	timeout    time.Duration
	limit      int // tolerated failures
	skipNoData bool
	described  deploy.AnalysisCheck // what is evaluated and expected
	// evaluate evaluates the check once; nil never evaluates. The error explains why the
	// provider did not answer.
	evaluate func(ctx context.Context, at instant) (outcome, error)

	position int64 // of the last evaluation
	failures int
	last     string // text of the last failure
}

// instant is the time of an evaluation.
type instant struct {
	now     time.Time
	elapsed time.Duration // since the start of the analysis
}

// outcome is the result of one evaluation.
type outcome struct {
	verdict          deploy.AnalysisVerdict
	values, compared []float64
	text             string // measured and expected values, for users
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

// run evaluates the check within its timeout. A provider error is an outcome.
func (c *check) run(ctx context.Context, at instant) outcome {
	ctx, stop := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within the timeout of %s", c.timeout))
	defer stop()
	out, err := c.evaluate(ctx, at)
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

// failed reports whether the failures exceed the limit.
func (c *check) failed() bool { return c.failures > c.limit }

// failure returns why the check has failed.
func (c *check) failure() error {
	times := "once"
	if c.failures > 1 {
		times = fmt.Sprintf("%d times", c.failures)
	}
	return deploy.Errorf(deploy.Invalid, "the analysis failed: %s has failed %s, and %s (failureLimit: %d); the last time: %s", c.name, times, c.tolerance(), c.limit, c.last)
}

// tolerance describes the number of tolerated failures.
func (c *check) tolerance() string {
	switch c.limit {
	case 0:
		return "no failure is tolerated"
	case 1:
		return "1 failure is tolerated"
	}
	return fmt.Sprintf("%d failures are tolerated", c.limit)
}

// logLine describes a counted outcome for users.
func (c *check) logLine(out outcome) string {
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

// noData returns the outcome of an evaluation without enough data.
func noData(format string, args ...any) outcome {
	return outcome{verdict: deploy.AnalysisNoData, text: "no data: " + fmt.Sprintf(format, args...)}
}

// maxStored bounds the stored points of one sample.
const maxStored = 200

// storable returns the first maxStored values, limited to finite numbers.
func storable(values []float64) []float64 {
	values = values[:min(len(values), maxStored)]
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = max(-math.MaxFloat64, min(math.MaxFloat64, v))
	}
	return out
}
