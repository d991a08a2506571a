package figures

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// MaxBuckets limits the buckets of a report.
const MaxBuckets = 1000

// bounds returns the limits of the buckets of q's range: its start, the begins of calendar
// days or weeks in the time zone, and its end. The error is of kind Invalid if there are more
// than MaxBuckets.
func bounds(q deploy.FiguresQuery) ([]time.Time, error) {
	zone := q.Zone
	if zone == nil {
		zone = time.UTC
	}
	days := 1
	if q.Bucket == deploy.BucketWeek {
		days = 7
	}
	from := q.From.In(zone)
	begin := from.Day()
	if q.Bucket == deploy.BucketWeek {
		begin -= (int(from.Weekday()) + 6) % 7 // days since Monday
	}
	out := []time.Time{q.From}
	for i := 1; ; i++ {
		// A calendar day has 23 to 25 hours where clocks change.
		next := time.Date(from.Year(), from.Month(), begin+i*days, 0, 0, 0, 0, zone)
		if !next.Before(q.To) {
			return append(out, q.To), nil
		}
		if len(out) == MaxBuckets {
			return nil, deploy.Errorf(deploy.Invalid, "the time range has more than %d buckets: choose longer buckets or a shorter range", MaxBuckets)
		}
		if next.After(out[len(out)-1]) { // always, except in zones that skipped a day
			out = append(out, next)
		}
	}
}

// divide computes the figures of each bucket from deployments ordered by their end.
func divide(ended []deploy.DeploymentOutcome, limits []time.Time, applications bool) []deploy.DeliveryReport {
	out := make([]deploy.DeliveryReport, len(limits)-1)
	for i := range out {
		n := 0
		for n < len(ended) && ended[n].CompletedAt.Before(limits[i+1]) {
			n++
		}
		out[i] = Compute(ended[:n], limits[i], limits[i+1])
		if ended = ended[n:]; !applications {
			out[i].Applications = nil
		}
	}
	return out
}
