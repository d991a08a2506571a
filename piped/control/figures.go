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
	zone, err := timeZone(req.TimeZone)
	if err != nil {
		return nil, err
	}
	report, err := s.figures.Figures(ctx, deploy.FiguresQuery{
		ApplicationIDs: nonEmpty(req.ApplicationIds), Labels: req.Labels, Scope: restriction(ctx), From: timeOf(req.FromMs), To: timeOf(req.ToMs),
		Bucket: figuresBuckets[req.Bucket], Zone: zone, BucketApplications: req.BucketApplications,
	})
	if err != nil {
		return nil, err
	}
	resp := &controlv1.GetDeliveryFiguresResponse{Total: figures(report.Total), Applications: figuresOf(report.Applications)}
	for _, b := range report.Buckets {
		resp.Buckets = append(resp.Buckets, &controlv1.FiguresInterval{
			FromMs: millis(b.From), ToMs: millis(b.To), Total: figures(b.Total), Applications: figuresOf(b.Applications),
		})
	}
	return resp, holdsAll(resp.Buckets, "buckets with figures of applications", "request a shorter range, longer buckets or fewer applications")
}

// timeZone returns a time zone by its name in the IANA database; "" is UTC. "Local" would be
// that of the agent.
func timeZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || zone == time.Local {
		return nil, deploy.Errorf(deploy.Invalid, "there is no time zone %q: name one of the IANA database, such as Europe/Berlin", name)
	}
	return zone, nil
}

var figuresBuckets = map[controlv1.FiguresBucket]deploy.FiguresBucket{
	controlv1.FiguresBucket_FIGURES_BUCKET_UNSPECIFIED: "",
	controlv1.FiguresBucket_FIGURES_BUCKET_DAY:         deploy.BucketDay,
	controlv1.FiguresBucket_FIGURES_BUCKET_WEEK:        deploy.BucketWeek,
}

func figuresOf(list []deploy.DeliveryFigures) (out []*controlv1.DeliveryFigures) {
	for _, f := range list {
		out = append(out, figures(f))
	}
	return out
}

// validGetDeliveryFigures validates the request itself.
func validGetDeliveryFigures(r *controlv1.GetDeliveryFiguresRequest) error {
	if r.FromMs <= 0 {
		return broken("GetDeliveryFiguresRequest.FromMs", "value must be greater than 0")
	}
	return first(
		notNegative("GetDeliveryFiguresRequest.ToMs", r.ToMs),
		defined("GetDeliveryFiguresRequest.Bucket", r.Bucket, controlv1.FiguresBucket_name),
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
