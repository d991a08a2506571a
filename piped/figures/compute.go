package figures

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// day is the unit of the deployment frequency: always 24 hours.
const day = 24 * time.Hour

// Compute returns the figures of deployments that ended in [from, to). The total is
// computed from all deployments, not from the applications' figures.
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

// sample collects the measurements of a set of deployments.
type sample struct {
	id, name                     string
	succeeded, failed, cancelled int
	leadTimes, restoreTimes      []time.Duration
}

func (s *sample) add(d deploy.DeploymentOutcome) {
	switch d.Status {
	case deploy.Success:
		s.succeeded++
		// A negative lead time is discarded: the committer's clock is ahead of ours.
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

// figures returns the figures of the sample over a time range of the given length.
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

// median returns the middle value, or the mean of the two middle values; nil for no values.
func median(values []time.Duration) *time.Duration {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	low, high := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	middle := low + (high-low)/2
	return &middle
}

// percentile returns the p-th percentile by the nearest-rank method; nil for no values.
func percentile(values []time.Duration, p int) *time.Duration {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := (len(sorted)*p + 99) / 100
	return &sorted[rank-1]
}
