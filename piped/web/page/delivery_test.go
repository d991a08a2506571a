package page

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// delivered returns figures of an application; "" for the total.
func delivered(app string, succeeded, failed int32) *controlv1.DeliveryFigures {
	f := &controlv1.DeliveryFigures{ApplicationName: app, Succeeded: succeeded, Failed: failed}
	if app != "" {
		f.ApplicationId = "0000" + app + "-id"
	}
	if succeeded+failed > 0 {
		perDay, rate, lead, slow, restore := float64(succeeded)/90, float64(failed)/float64(succeeded+failed), int64(51_000), int64(150_000), int64(1_260_000)
		f.DeploymentFrequency, f.ChangeFailureRate, f.LeadTimeMedianMs, f.LeadTimeP90Ms, f.TimeToRestoreMedianMs = &perDay, &rate, &lead, &slow, &restore
	}
	return f
}

// delivering returns the API of an agent with figures of two applications in three weeks, of
// which the first has none. Requests are added to asked.
func delivering(t *testing.T, asked *[]*controlv1.GetDeliveryFiguresRequest) *fakeAPI {
	f := calm(t).on("Resolve", &controlv1.ResolveResponse{})
	week := func(from time.Time, total, web *controlv1.DeliveryFigures) *controlv1.FiguresInterval {
		return &controlv1.FiguresInterval{FromMs: from.UnixMilli(), ToMs: min(from.Add(7*day).UnixMilli(), noon.UnixMilli()), Total: total, Applications: []*controlv1.DeliveryFigures{web}}
	}
	monday := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	f.answers["GetDeliveryFigures"] = func(m proto.Message) (proto.Message, error) {
		req := m.(*controlv1.GetDeliveryFiguresRequest)
		*asked = append(*asked, proto.CloneOf(req))
		if req.ToMs < monday.UnixMilli() {
			return &controlv1.GetDeliveryFiguresResponse{Total: delivered("", 10, 5)}, nil
		}
		return &controlv1.GetDeliveryFiguresResponse{
			Total: delivered("", 180, 20), Applications: []*controlv1.DeliveryFigures{delivered("search", 9, 0), delivered("web", 171, 20)},
			Buckets: []*controlv1.FiguresInterval{
				week(monday.Add(-14*day), delivered("", 0, 0), nil), week(monday.Add(-7*day), delivered("", 100, 0), delivered("web", 95, 0)), week(monday, delivered("", 80, 20), delivered("web", 76, 20)),
			},
		}, nil
	}
	return f
}

// TestDelivery: the view says the four figures, compares them with the range before, and leads
// from each number to the deployments behind it.
func TestDelivery(t *testing.T) {
	var asked []*controlv1.GetDeliveryFiguresRequest
	body := golden(t, "delivery", delivering(t, &asked).get("/delivery"))
	for _, want := range []string{
		"180 deployments succeeded in the last 90 days, 20 failed; half were live within 51 s of their commit.",
		"2 a day", "10 %", "21 min", "33 % before", "Week of 2 Mar 2026", `data-figure="lead" data-value="51000"`, ">11 a day<", // 80 in the current week
		"/deployments?since=2026-03-02T00%3A00%3A00Z&amp;status=FAILURE&amp;until=2026-03-04T12%3A00%3A00Z",
		`href="/delivery?application=web~0000web-"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if strings.Contains(body, "Week of 16 Feb") {
		t.Error("the view begins before the first deployment")
	}
	begin := time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC) // the Monday of 4 December, 90 days before
	want := []*controlv1.GetDeliveryFiguresRequest{
		{FromMs: begin.UnixMilli(), ToMs: noon.UnixMilli(), Bucket: controlv1.FiguresBucket_FIGURES_BUCKET_WEEK, TimeZone: "UTC"},
		{FromMs: begin.Add(begin.Sub(noon)).UnixMilli(), ToMs: begin.UnixMilli()},
		{FromMs: begin.UnixMilli(), ToMs: noon.UnixMilli(), Bucket: controlv1.FiguresBucket_FIGURES_BUCKET_WEEK, TimeZone: "UTC", ApplicationIds: []string{"0000search-id", "0000web-id"}, BucketApplications: true},
	}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the requests differ (-want +got):\n" + diff)
	}
}

// TestDeliveryByLabel: the figures can be grouped by a label, within the filters of the address.
func TestDeliveryByLabel(t *testing.T) {
	var asked []*controlv1.GetDeliveryFiguresRequest
	f := delivering(t, &asked).on("SearchApplications", &controlv1.SearchApplicationsResponse{Facets: []*controlv1.Facet{
		{Name: "label", Values: []*controlv1.FacetCount{{Value: "team", Count: 2}, {Value: "env", Count: 2}}},
		{Name: "label:team", Values: []*controlv1.FacetCount{{Value: "core", Count: 1}, {Value: "", Count: 1}, {Value: "shop", Count: 1}}},
	}})
	body := bodyOf(t, f.get("/delivery?by=team&bucket=day&range=30d&label:env=prod"))
	var labels []map[string]string
	for _, req := range asked {
		labels = append(labels, req.Labels)
	}
	prod := map[string]string{"env": "prod"}
	if diff := cmp.Diff([]map[string]string{prod, prod, {"env": "prod", "team": "core"}, {"env": "prod", "team": "shop"}}, labels); diff != "" {
		t.Error("labels of the requests differ (-want +got):\n" + diff)
	}
	if asked[0].Bucket != controlv1.FiguresBucket_FIGURES_BUCKET_DAY || asked[0].FromMs != time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC).UnixMilli() {
		t.Errorf("by day: %v", asked[0])
	}
	for _, want := range []string{"/delivery?bucket=day&amp;by=env&amp;", "env = prod", "label%3Aenv=prod&amp;label%3Ateam=core", "Mon 2 Mar 2026"} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
}

// TestNothingDelivered: without figures the view explains where they come from.
func TestNothingDelivered(t *testing.T) {
	body := bodyOf(t, calm(t).get("/delivery"))
	if !strings.Contains(body, "No deployment ended in the last 90 days.") || !strings.Contains(body, "Nothing to measure yet") || strings.Contains(body, "<script src=\"/assets/figures") {
		t.Error(body)
	}
	f := calm(t).on("Resolve", &controlv1.ResolveResponse{})
	if body := bodyOf(t, f.get("/delivery?application=nothing")); !strings.Contains(body, "No such application") || strings.Contains(strings.Join(f.calls, " "), "GetDeliveryFigures") {
		t.Error("of an unknown application:", body)
	}
}

// TestWordsOfFigures: figures are written in the unit that a person would use.
func TestWordsOfFigures(t *testing.T) {
	for n, want := range map[float64]string{0: "0 a day", 1: "1 a day", 2.25: "2.2 a day", 14.4: "14 a day", 1.0 / 7: "1 a week", 0.5: "3.5 a week"} {
		if got := perDay(n); got != want {
			t.Errorf("perDay(%g) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[float64]string{0: "0 %", .031: "3.1 %", .05: "5 %", .25: "25 %", 1: "100 %"} {
		if got := share(n); got != want {
			t.Errorf("share(%g) = %q, want %q", n, got, want)
		}
	}
}

// TestBarsOfGroups: failures stand on successes, and the highest bar fills the drawing.
func TestBarsOfGroups(t *testing.T) {
	got := barsOf([]*controlv1.DeliveryFigures{{Succeeded: 6, Failed: 5}, nil, {Succeeded: 1}})
	want := []deliveryBar{{"0.000%", "6.000%", "10.0", "12.0", roleOK}, {"0.000%", "6.000%", "0.0", "10.0", roleBad}, {"16.667%", "6.000%", "20.0", "2.0", roleOK}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(deliveryBar{})); diff != "" {
		t.Error("bars differ (-want +got):\n" + diff)
	}
}
