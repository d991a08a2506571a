package drift

import (
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// Tier is the method by which an object was evaluated, in the order of its cost.
type Tier int

// The tiers.
const (
	ByMetadata Tier = iota // watched metadata
	ByReading              // a read of the object
	ByDryRun               // a read and a server-side dry run
	BySweep                // like ByDryRun, by the periodic sweep
)

// Metrics records the work of a Detector. Its methods must not block and must be safe
// for concurrent use.
type Metrics interface {
	// Evaluated counts an evaluated object. Called counts calls to an API server;
	// retries are not counted.
	Evaluated(Tier)
	Called(reads, dryRuns int)
	// Reported records the time from a change in a cluster to its stored report. Ended
	// counts the end of a period of drift.
	Reported(after time.Duration)
	Ended(deploy.DriftEnd)
}

// noMetrics discards all metrics.
type noMetrics struct{}

func (noMetrics) Evaluated(Tier)         {}
func (noMetrics) Called(int, int)        {}
func (noMetrics) Reported(time.Duration) {}
func (noMetrics) Ended(deploy.DriftEnd)  {}

// countComparison records a comparison.
func (e *evaluation) countComparison(s suspect, c cluster.Compared) {
	dryRuns, tier := 0, ByReading
	if c.DryRun {
		dryRuns, tier = 1, ByDryRun
	}
	if c.DryRun && s.confirm {
		tier = BySweep
	}
	e.Metrics.Called(1, dryRuns)
	if c.Problem == "" {
		e.Metrics.Evaluated(tier)
	}
}

// countReport records a stored report.
func (e *evaluation) countReport(r deploy.DriftReport) {
	if !e.since.IsZero() {
		e.Metrics.Reported(e.Now().Sub(e.since))
	}
	if r.End != "" {
		e.Metrics.Ended(r.End)
	}
}
