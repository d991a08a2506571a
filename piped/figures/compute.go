package figures

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// day is what deployment frequency is counted by, whatever the calendar says.
const day = 24 * time.Hour

// Compute returns the figures of deployments that ended from from on and before to.
// The total is of all deployments, not of the applications' figures.
func Compute(ended []deploy.DeploymentOutcome, from, to time.Time) deploy.DeliveryReport {
	total, each := &sample{}, map[string]*sample{}
	for _, d := range ended {
		one := each[d.ApplicationID]
		if one == nil {
			one = &sample{id: d.ApplicationID, name: d.ApplicationName}
			each[d.ApplicationID] = one
		}
		one.add(d)
		total.add(d)
	}
	report := deploy.DeliveryReport{From: from, To: to, Total: total.figures(to.Sub(from))}
	for _, one := range slices.SortedFunc(maps.Values(each), func(a, b *sample) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
	}) {
		report.Applications = append(report.Applications, one.figures(to.Sub(from)))
	}
	return report
}

// sample is what was measured of some deployments.
type sample struct {
	id, name                     string
	succeeded, failed, cancelled int
	leadTimes, restoreTimes      []time.Duration
}

func (s *sample) add(d deploy.DeploymentOutcome) {
	switch d.Status {
	case deploy.Success:
		s.succeeded++
		// A committer's clock may be ahead of ours: then nothing was measured.
		if lead := d.CompletedAt.Sub(d.CommittedAt); !d.CommittedAt.IsZero() && lead >= 0 {
			s.leadTimes = append(s.leadTimes, lead)
		}
	case deploy.Failure:
		s.failed++
		if !d.RestoredAt.IsZero() {
			s.restoreTimes = append(s.restoreTimes, d.RestoredAt.Sub(d.CompletedAt))
		}
	case deploy.Cancelled:
		s.cancelled++
	}
}

// figures returns the figures of the sample over a range of that length.
func (s *sample) figures(length time.Duration) deploy.DeliveryFigures {
	f := deploy.DeliveryFigures{
		ApplicationID: s.id, ApplicationName: s.name, Succeeded: s.succeeded, Failed: s.failed, Cancelled: s.cancelled,
		LeadTimeMedian: median(s.leadTimes), LeadTimeP90: percentile(s.leadTimes, 90), TimeToRestoreMedian: median(s.restoreTimes),
	}
	if length > 0 {
		perDay := float64(s.succeeded) / (float64(length) / float64(day))
		f.DeploymentFrequency = &perDay
	}
	if all := s.succeeded + s.failed; all > 0 {
		rate := float64(s.failed) / float64(all)
		f.ChangeFailureRate = &rate
	}
	return f
}

// median returns the middle one, of an even number the mean of the two in the middle;
// nil of none.
func median(values []time.Duration) *time.Duration {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	low, high := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	middle := low + (high-low)/2
	return &middle
}

// percentile returns the smallest value that p percent of the values do not exceed
// (the nearest rank); nil of none.
func percentile(values []time.Duration, p int) *time.Duration {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := (len(sorted)*p + 99) / 100
	return &sorted[rank-1]
}
