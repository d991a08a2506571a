package drift

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
)

// Tier says how much it took to judge an object.
type Tier int

// The tiers.
const (
	ByMetadata Tier = iota // what a watch tells of it
	ByReading              // it was read
	ByDryRun               // the API server was asked what an apply would change, too
	BySweep                // as ByDryRun, though nothing was heard of it
)

// Observer is told what a Detector does, for figures. Its methods return at once and
// are safe for concurrent use.
type Observer interface {
	// Judged is told of each object that was judged. Asked is told of calls to an API
	// server; those that were repeated count once.
	Judged(Tier)
	Asked(reads, dryRuns int)
	// Reported is told how long after a change in a cluster was heard of a report on
	// it was stored, Ended how a period of drift ended.
	Reported(after time.Duration)
	Ended(deploy.DriftEnd)
}

// nobody observes nothing.
type nobody struct{}

func (nobody) Judged(Tier)            {}
func (nobody) Asked(int, int)         {}
func (nobody) Reported(time.Duration) {}
func (nobody) Ended(deploy.DriftEnd)  {}

// observe tells of a comparison.
func (j *judgement) observe(s suspect, c kubernetes.Compared) {
	dryRuns, tier := 0, ByReading
	if c.DryRun {
		dryRuns, tier = 1, ByDryRun
	}
	if c.DryRun && s.confirm {
		tier = BySweep
	}
	j.Observer.Asked(1, dryRuns)
	if c.Problem == "" {
		j.Observer.Judged(tier)
	}
}

// observeReport tells of a report that was stored.
func (j *judgement) observeReport(r deploy.DriftReport) {
	if !j.since.IsZero() {
		j.Observer.Reported(j.Now().Sub(j.since))
	}
	if r.End != "" {
		j.Observer.Ended(r.End)
	}
}
