package figures

import (
	"context"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Store provides the deployments; *store.Store implements it.
type Store interface {
	// Outcomes returns the deployments that match q, ordered by their end.
	Outcomes(ctx context.Context, q deploy.FiguresQuery) ([]deploy.DeploymentOutcome, error)
}

// Reader reads delivery figures. It is safe for concurrent use.
type Reader struct {
	store Store
	now   func() time.Time
}

// NewReader returns a Reader of st.
func NewReader(st Store, now func() time.Time) *Reader { return &Reader{st, now} }

// Figures returns the delivery figures of q's applications and time range. If q.To is
// zero or in the future, the range ends now. The error is of kind Invalid if the range
// has no start or is empty, or has more than MaxBuckets buckets.
func (r *Reader) Figures(ctx context.Context, q deploy.FiguresQuery) (deploy.DeliveryReport, error) {
	if now := r.now(); q.To.IsZero() || q.To.After(now) {
		q.To = now
	}
	switch {
	case q.From.IsZero():
		return deploy.DeliveryReport{}, deploy.Errorf(deploy.Invalid, "delivery figures need a time range: set its start")
	case !q.From.Before(q.To):
		return deploy.DeliveryReport{}, deploy.Errorf(deploy.Invalid, "the time range starts at %s, which is not before its end, %s: choose an earlier start",
			q.From.UTC().Format(time.RFC3339), q.To.UTC().Format(time.RFC3339))
	}
	var limits []time.Time
	if q.Bucket != "" {
		var err error
		if limits, err = bounds(q); err != nil {
			return deploy.DeliveryReport{}, err
		}
	}
	ended, err := r.store.Outcomes(ctx, q)
	if err != nil {
		return deploy.DeliveryReport{}, fmt.Errorf("read the deployments for delivery figures: %w", err)
	}
	report := Compute(ended, q.From, q.To)
	if len(limits) > 0 {
		report.Buckets = divide(ended, limits, q.BucketApplications)
	}
	return report, nil
}
