package control_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// measured returns a fixed report and records the query.
type measured struct {
	asked  *deploy.FiguresQuery
	report deploy.DeliveryReport
}

func (m measured) Figures(_ context.Context, q deploy.FiguresQuery) (deploy.DeliveryReport, error) {
	*m.asked = q
	if q.To.Before(q.From) && !q.To.IsZero() {
		return deploy.DeliveryReport{}, deploy.Errorf(deploy.Invalid, "that is no range")
	}
	return m.report, nil
}

func TestGetDeliveryFigures(t *testing.T) {
	var asked deploy.FiguresQuery
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Figures = measured{&asked, deploy.DeliveryReport{
			Total: deploy.DeliveryFigures{
				Succeeded: 3, Failed: 1, Cancelled: 2, DeploymentFrequency: new(1.5), ChangeFailureRate: new(0.25),
				LeadTimeMedian: new(90 * time.Second), LeadTimeP90: new(2 * time.Minute), TimeToRestoreMedian: new(time.Duration(0)),
			},
			Applications: []deploy.DeliveryFigures{
				{ApplicationID: "app-1", ApplicationName: "web\xff", DeploymentFrequency: new(0.0)},
				{ApplicationID: "app-2", ApplicationName: "web"},
			},
		}}
	})
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	got, err := client.GetDeliveryFigures(as(t, agent.ReadOnly), &controlv1.GetDeliveryFiguresRequest{
		ApplicationIds: []string{"", "app-1"}, Labels: map[string]string{"env": "prod"}, FromMs: 1000, ToMs: 5000,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &controlv1.GetDeliveryFiguresResponse{
		Total: &controlv1.DeliveryFigures{
			Succeeded: 3, Failed: 1, Cancelled: 2, DeploymentFrequency: new(1.5), ChangeFailureRate: new(0.25),
			LeadTimeMedianMs: new(int64(90_000)), LeadTimeP90Ms: new(int64(120_000)), TimeToRestoreMedianMs: new(int64(0)),
		},
		Applications: []*controlv1.DeliveryFigures{
			{ApplicationId: "app-1", ApplicationName: "web\uFFFD", DeploymentFrequency: new(0.0)},
			{ApplicationId: "app-2", ApplicationName: "web"},
		},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	query := deploy.FiguresQuery{ApplicationIDs: []string{"app-1"}, Labels: map[string]string{"env": "prod"}, From: time.UnixMilli(1000), To: time.UnixMilli(5000)}
	if diff := cmp.Diff(query, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	if _, err := client.GetDeliveryFigures(as(t, agent.ReadOnly), &controlv1.GetDeliveryFiguresRequest{FromMs: 1000}); err != nil || !asked.To.IsZero() {
		t.Errorf("without an end: asked until %s (%v), want the zero time", asked.To, err)
	}
	_, err = client.GetDeliveryFigures(as(t, agent.ReadOnly), &controlv1.GetDeliveryFiguresRequest{FromMs: 2000, ToMs: 1000})
	if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != "that is no range" {
		t.Errorf("a range that is none: %v", err)
	}
}
