package control_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
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
	query := deploy.FiguresQuery{ApplicationIDs: []string{"app-1"}, Labels: map[string]string{"env": "prod"}, From: time.UnixMilli(1000), To: time.UnixMilli(5000), Zone: time.UTC}
	if diff := cmp.Diff(query, asked, sameZone); diff != "" {
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

// sameZone compares time zones by name.
var sameZone = cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() })

// TestFiguresByBucket: buckets and their time zone are those of the request; unknown ones are
// refused.
func TestFiguresByBucket(t *testing.T) {
	var asked deploy.FiguresQuery
	one := []deploy.DeliveryFigures{{ApplicationID: "app-1", ApplicationName: "web", Succeeded: 2}}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.Figures = measured{&asked, deploy.DeliveryReport{Buckets: []deploy.DeliveryReport{
			{From: time.UnixMilli(1000), To: time.UnixMilli(2000), Total: deploy.DeliveryFigures{Succeeded: 2, DeploymentFrequency: new(0.5)}, Applications: one},
			{From: time.UnixMilli(2000), To: time.UnixMilli(3000)},
		}}}
	})
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	got, err := client.GetDeliveryFigures(as(t, agent.ReadOnly), &controlv1.GetDeliveryFiguresRequest{
		FromMs: 1000, ToMs: 3000, Bucket: controlv1.FiguresBucket_FIGURES_BUCKET_WEEK, TimeZone: "Asia/Tokyo", BucketApplications: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []*controlv1.FiguresInterval{
		{FromMs: 1000, ToMs: 2000, Total: &controlv1.DeliveryFigures{Succeeded: 2, DeploymentFrequency: new(0.5)},
			Applications: []*controlv1.DeliveryFigures{{ApplicationId: "app-1", ApplicationName: "web", Succeeded: 2}}},
		{FromMs: 2000, ToMs: 3000, Total: &controlv1.DeliveryFigures{}},
	}
	if diff := cmp.Diff(want, got.Buckets, protocmp.Transform()); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	query := deploy.FiguresQuery{From: time.UnixMilli(1000), To: time.UnixMilli(3000), Bucket: deploy.BucketWeek, Zone: tokyo, BucketApplications: true}
	if diff := cmp.Diff(query, asked, sameZone); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	for name, req := range map[string]*controlv1.GetDeliveryFiguresRequest{
		"bucket":            {FromMs: 1, Bucket: 99},
		"zone":              {FromMs: 1, TimeZone: "Europe/Nowhere"},
		"zone of the agent": {FromMs: 1, TimeZone: "Local"},
		"path":              {FromMs: 1, TimeZone: "../../etc/passwd"},
	} {
		if _, err := client.GetDeliveryFigures(as(t, agent.ReadOnly), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("unknown %s: %v", name, err)
		}
	}
}

// TestDeploymentsOfARange: the times of a bucket list the deployments behind its figures.
func TestDeploymentsOfARange(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	ended := map[string]time.Time{}
	for _, id := range []string{"d1", "d2", "d3"} {
		agent.Deployment(id, app, "")
		agent.Move(id, deploy.Success, "done")
		ended[id] = agent.Now()
	}
	agent.Deployment("d4", app, "")
	client := apiservice.NewAPIServiceClient(dial(t, agent.Server.Addr()))
	for name, c := range map[string]struct {
		from, to int64
		want     string
	}{
		"of no range":       {0, 0, "d4 d3 d2 d1"},
		"the end excluded":  {ended["d1"].UnixMilli(), ended["d3"].UnixMilli(), "d2 d1"},
		"without an end":    {ended["d2"].UnixMilli(), 0, "d3 d2"},
		"without a begin":   {0, ended["d2"].UnixMilli(), "d1"},
		"after all of them": {ended["d3"].UnixMilli() + 1, 0, ""},
	} {
		for _, limit := range []int32{0, 2} { // whole, and in pages
			var got []string
			for cursor := ""; ; {
				resp, err := client.ListDeployments(as(t, agent.ReadOnly), &apiservice.ListDeploymentsRequest{CompletedFromMs: c.from, CompletedToMs: c.to, Limit: limit, Cursor: cursor})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range resp.Deployments {
					got = append(got, d.Id)
				}
				if cursor = resp.Cursor; cursor == "" || limit == 0 {
					break
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s, in pages of %d: %q, want %q", name, limit, got, c.want)
			}
		}
	}
	_, err := client.ListDeployments(as(t, agent.ReadOnly), &apiservice.ListDeploymentsRequest{CompletedFromMs: -1})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a negative time: %v", err)
	}
}
