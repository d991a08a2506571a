package figures

import (
	"context"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Store holds the deployments; *store.Store is one.
type Store interface {
	// Outcomes returns the deployments that q selects, those that ended first
	// first.
	Outcomes(ctx context.Context, q deploy.FiguresQuery) ([]deploy.DeploymentOutcome, error)
}

// Reader reads delivery figures. It is safe for concurrent use.
type Reader struct {
	store Store
	now   func() time.Time
}

// NewReader makes a Reader of what st holds.
func NewReader(st Store, now func() time.Time) *Reader { return &Reader{st, now} }

// Figures returns the delivery figures of q's applications and range. A To that is
// zero or in the future is now. Invalid if the range has no begin or no length.
func (r *Reader) Figures(ctx context.Context, q deploy.FiguresQuery) (deploy.DeliveryReport, error) {
	if now := r.now(); q.To.IsZero() || q.To.After(now) {
		q.To = now
	}
	switch {
	case q.From.IsZero():
		return deploy.DeliveryReport{}, deploy.Errorf(deploy.Invalid, "delivery figures are of a range of time: say when it begins")
	case !q.From.Before(q.To):
		return deploy.DeliveryReport{}, deploy.Errorf(deploy.Invalid, "the range of time begins at %s, which is not before its end, %s: choose an earlier begin",
			q.From.UTC().Format(time.RFC3339), q.To.UTC().Format(time.RFC3339))
	}
	ended, err := r.store.Outcomes(ctx, q)
	if err != nil {
		return deploy.DeliveryReport{}, fmt.Errorf("read what delivery figures are made of: %w", err)
	}
	return Compute(ended, q.From, q.To), nil
}
