package control

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Figures computes delivery figures.
type Figures interface {
	// Figures returns the delivery figures of the deployments that match q. A To that
	// is zero or in the future means now. Invalid: the range is empty.
	Figures(ctx context.Context, q deploy.FiguresQuery) (deploy.DeliveryReport, error)
}

// GetDeliveryFigures returns the delivery metrics of a time range.
func (s *controlService) GetDeliveryFigures(ctx context.Context, req *controlv1.GetDeliveryFiguresRequest) (*controlv1.GetDeliveryFiguresResponse, error) {
	report, err := s.figures.Figures(ctx, deploy.FiguresQuery{
		ApplicationIDs: nonEmpty(req.ApplicationIds), Labels: req.Labels, Scope: restriction(ctx), From: timeOf(req.FromMs), To: timeOf(req.ToMs),
	})
	if err != nil {
		return nil, err
	}
	resp := &controlv1.GetDeliveryFiguresResponse{Total: figures(report.Total)}
	for _, f := range report.Applications {
		resp.Applications = append(resp.Applications, figures(f))
	}
	return resp, nil
}

// validGetDeliveryFigures validates the request itself.
func validGetDeliveryFigures(r *controlv1.GetDeliveryFiguresRequest) error {
	if r.FromMs <= 0 {
		return broken("GetDeliveryFiguresRequest.FromMs", "value must be greater than 0")
	}
	return first(
		notNegative("GetDeliveryFiguresRequest.ToMs", r.ToMs),
		bounded("GetDeliveryFiguresRequest.ApplicationIds", "items", len(r.ApplicationIds)),
		bounded("GetDeliveryFiguresRequest.Labels", "pairs", len(r.Labels)))
}

func figures(f deploy.DeliveryFigures) *controlv1.DeliveryFigures {
	return &controlv1.DeliveryFigures{
		ApplicationId: text(f.ApplicationID), ApplicationName: text(f.ApplicationName),
		Succeeded: int32(f.Succeeded), Failed: int32(f.Failed), Cancelled: int32(f.Cancelled),
		DeploymentFrequency: f.DeploymentFrequency, ChangeFailureRate: f.ChangeFailureRate,
		LeadTimeMedianMs: inMillis(f.LeadTimeMedian), LeadTimeP90Ms: inMillis(f.LeadTimeP90), TimeToRestoreMedianMs: inMillis(f.TimeToRestoreMedian),
	}
}

// inMillis returns a duration in milliseconds, nil for nil.
func inMillis(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	ms := d.Milliseconds()
	return &ms
}
