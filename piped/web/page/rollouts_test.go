package page

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const rolloutHour = int64(time.Hour / time.Millisecond)

// rolled returns a rollout of an application that began some hours ago and took some seconds; one
// that took none has not ended.
func rolled(id, app string, hours, seconds int, outcome modelv1.RolloutOutcome) *modelv1.Rollout {
	r := &modelv1.Rollout{
		Id: id, Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT, ApplicationId: "0000" + app + "-id", ApplicationName: app, DeploymentId: "d-" + id,
		Workload: &modelv1.ObjectRef{Kind: "Deployment", Namespace: "shop", Name: app}, Commit: "1f2ac83000000000000000000000000000000000",
		Images: []string{"registry.example/team/" + app + ":v2"}, Outcome: outcome, StartedAtMs: noon.UnixMilli() - int64(hours)*rolloutHour,
	}
	if seconds > 0 {
		r.CompletedAtMs = r.StartedAtMs + int64(seconds)*1000
	}
	return r
}

// rolling returns the API of an agent with rollouts in the last 7 days and the 7 days before.
func rolling(t *testing.T, rows ...*modelv1.Rollout) *fakeAPI {
	f := calm(t).on("Resolve", &controlv1.ResolveResponse{})
	f.answers["ListRollouts"] = func(m proto.Message) (proto.Message, error) {
		req, resp := m.(*controlv1.ListRolloutsRequest), &controlv1.ListRolloutsResponse{}
		for _, r := range rows {
			if r.StartedAtMs >= req.FromMs && (req.ToMs == 0 || r.StartedAtMs < req.ToMs) && (len(req.Outcomes) == 0 || slices.Contains(req.Outcomes, r.Outcome)) {
				resp.Rollouts = append(resp.Rollouts, r)
			}
		}
		return resp, nil
	}
	return f
}

// someRollouts are a scaling and rollouts that ended in each way.
func someRollouts() []*modelv1.Rollout {
	failed := rolled("r2", "web", 20, 300, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED)
	failed.Reason = "image registry.example/web:v9 cannot be pulled"
	scaled := rolled("r3", "search", 30, 10, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE)
	scaled.Kind, scaled.DeploymentId, scaled.Commit, scaled.Images = modelv1.RolloutKind_ROLLOUT_KIND_SCALING, "", "", nil
	scaled.CausedBy, scaled.FromReplicas, scaled.ToReplicas, scaled.Workload.Namespace = "kube-controller-manager", 3, 5, "core"
	whole := rolled("r4", "web", 50, 40, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE)
	schedule, pull, ready := int64(1000), int64(3000), int64(6000)
	whole.ScheduleMs, whole.PullMs, whole.ReadyMs = &schedule, &pull, &ready
	return []*modelv1.Rollout{
		rolled("r1", "web", 1, 0, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING), failed, scaled, whole,
		rolled("r5", "web", 60, 5, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_SUPERSEDED),
		rolled("r6", "web", 8*24, 80, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE),
	}
}

// TestRollouts: the view says what was rolled out and how long that took before, and shows each
// rollout in the drawing and in the table.
func TestRollouts(t *testing.T) {
	body := golden(t, "rollouts", rolling(t, someRollouts()...).get("/rollouts"))
	for _, want := range []string{
		"5 rollouts in the last 7 days: 1 progressing, 1 failed, 2 complete, 1 superseded.",
		"Half were complete within 25 s (2 rollouts); 80 s in the 7 days before (1 rollout).", // (10 s + 40 s) / 2
		"image registry.example/web:v9 cannot be pulled", "3 → 5 replicas", "kube-controller-manager", "web:v2",
		`href="/deployments/d-r4"`, "/applications/web~0000web-", "scheduled 1 s, pulled 3 s, ready 6 s", "took 40 s", "Deployment search in core",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if strings.Contains(body, "d-r6") {
		t.Error("the view shows a rollout from before the range")
	}
	if rows, bars := strings.Count(body, "<tr id="), strings.Count(body, `class="bar-of`)-len(laneKey()); rows != 5 || bars != 5 {
		t.Errorf("the table has %d rows and the drawing %d bars", rows, bars)
	}
}

// TestFiltersOfRollouts: filters of the address reach the API, or are applied to what it returns;
// facets count what a choice would show.
func TestFiltersOfRollouts(t *testing.T) {
	f := rolling(t, someRollouts()...).on("Resolve", &controlv1.ResolveResponse{Matches: []*controlv1.ResolvedReference{{Id: "0000web-id", ApplicationName: "web"}}})
	var asked []*controlv1.ListRolloutsRequest
	answer := f.answers["ListRollouts"]
	f.answers["ListRollouts"] = func(m proto.Message) (proto.Message, error) {
		asked = append(asked, proto.CloneOf(m.(*controlv1.ListRolloutsRequest)))
		return answer(m)
	}
	body := bodyOf(t, f.get("/rollouts?application=web&label:team=core&since=2026-03-01T12:00:00Z&until=2026-03-04T12:00:00%2B01:00&outcome=COMPLETE&namespace=shop"))
	from, to := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 3, 4, 11, 0, 0, 0, time.UTC)
	want := []*controlv1.ListRolloutsRequest{
		{ApplicationIds: []string{"0000web-id"}, Labels: map[string]string{"team": "core"}, FromMs: from.UnixMilli(), ToMs: to.UnixMilli(), Limit: rolloutsRead},
		{
			ApplicationIds: []string{"0000web-id"}, Labels: map[string]string{"team": "core"}, FromMs: from.Add(-71 * time.Hour).UnixMilli(), ToMs: from.UnixMilli(), Limit: rolloutsRead,
			Namespaces: []string{"shop"}, Outcomes: []modelv1.RolloutOutcome{modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE},
		},
	}
	if diff := cmp.Diff(want, asked, protocmp.Transform()); diff != "" {
		t.Error("the requests differ (-want +got):\n" + diff)
	}
	if !strings.Contains(body, `id="rollout-r4"`) || strings.Contains(body, `id="rollout-r3"`) || strings.Contains(body, `id="rollout-r2"`) {
		t.Error("the table does not have just the complete rollout in shop:", body)
	}
	// Without the outcome three rollouts in shop would be shown: complete, failed and superseded.
	for _, facet := range []string{"Failed", "Superseded", "Complete"} {
		if !regexp.MustCompile(`>` + facet + `</span> *<span class="count">1<`).MatchString(body) {
			t.Errorf("the facet of outcomes lacks one rollout %s", facet)
		}
	}
	if !strings.Contains(body, "application=web~0000web-&amp;") {
		t.Error("links do not have the unique name of the application")
	}
	if strings.Contains(body, "/rollouts/live") {
		t.Error("a range of the past has a stream")
	}
}

// TestManyRollouts: when there are more than are read, the view says so, and a filter by outcome
// or namespace finds those that were not read.
func TestManyRollouts(t *testing.T) {
	f := calm(t)
	old := rolled("old", "web", 100, 9, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED)
	f.answers["ListRollouts"] = func(m proto.Message) (proto.Message, error) {
		req := m.(*controlv1.ListRolloutsRequest)
		if len(req.Outcomes) > 0 || slices.Equal(req.Namespaces, []string{"archive"}) {
			return &controlv1.ListRolloutsResponse{Rollouts: []*modelv1.Rollout{old}}, nil
		}
		resp := &controlv1.ListRolloutsResponse{Cursor: "more"}
		for i := range rolloutsRead {
			resp.Rollouts = append(resp.Rollouts, rolled(fmt.Sprintf("r%d", i), fmt.Sprintf("app%d", i%50), 2, 9, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE))
		}
		return resp, nil
	}
	body := bodyOf(t, f.get("/rollouts?page=2"))
	for _, want := range []string{"The newest 1,000 rollouts in the last 7 days", "Only the newest 1000 rollouts of this range were read.", "page 2 of 10", "10 more lanes in the table below", `href="/rollouts?page=3"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if n := strings.Count(body, "<tr id="); n != rolloutsPage || strings.Contains(body, `id="rollout-r99"`) || !strings.Contains(body, `id="rollout-r100"`) {
		t.Errorf("the second page has %d rows, or others", n)
	}
	if body := bodyOf(t, f.get("/rollouts?outcome=FAILED")); !strings.Contains(body, `id="rollout-old"`) {
		t.Error("a failed rollout that was not among the newest is missing")
	}
	old.Workload.Namespace = "archive"
	if body := bodyOf(t, f.get("/rollouts?namespace=archive")); !strings.Contains(body, `id="rollout-old"`) {
		t.Error("a rollout in a namespace that none of the newest is in is missing")
	}
}

// TestNoRollouts: without rollouts the view explains why; a name that is unknown shows none, and
// not those of all applications.
func TestNoRollouts(t *testing.T) {
	if body := bodyOf(t, rolling(t).get("/rollouts")); !strings.Contains(body, "Nothing was rolled out in the last 7 days.") || !strings.Contains(body, `href="/rollouts?range=30d"`) {
		t.Error("without rollouts:", body)
	}
	f := rolling(t, someRollouts()...)
	body := bodyOf(t, f.get("/rollouts?application=nothing"))
	if !strings.Contains(body, "No such application") || slices.Contains(f.calls, "ListRollouts") {
		t.Error("of an unknown application:", body)
	}
	for _, target := range []string{"/rollouts?since=yesterday", "/rollouts?since=2026-03-04T12:00:00Z&until=2026-03-04T11:00:00Z"} {
		if resp := f.get(target); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", target, resp.Status)
		}
	}
}

// TestLanes: bars lie on the axis where their times are; those that overlap stand below one
// another, and an application has one lane.
func TestLanes(t *testing.T) {
	s := &scope{path: "/rollouts", from: noon.Add(-100 * time.Hour), to: noon}
	rows := []*modelv1.Rollout{
		rolled("c", "web", 10, 0, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING),
		rolled("a", "api", 20, 60, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_FAILED),
		rolled("b", "web", 48, 3600, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE),
		rolled("a", "web", 50, 20*3600, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE),
	}
	got := newLanes(rows, s, noon)
	if len(got.lanes) != 2 || got.lanes[0].name != "api" || got.lanes[0].summary != "1, 1 failed" || got.lanes[1].summary != "3" {
		t.Fatalf("lanes: %+v", got.lanes)
	}
	type place struct {
		x1, x2 string
		y      int
		open   bool
	}
	var places []place
	for _, b := range got.lanes[1].bars {
		places = append(places, place{b.x1, b.x2, b.y, b.open})
	}
	first := lanePad + trackSize/2
	want := []place{{"50.000%", "70.000%", first, false}, {"52.000%", "53.000%", first + trackSize, false}, {"90.000%", "100.000%", first, true}}
	if diff := cmp.Diff(want, places, cmp.AllowUnexported(place{})); diff != "" {
		t.Error("bars differ (-want +got):\n" + diff)
	}
	if got.lanes[1].height != got.lanes[0].height+trackSize {
		t.Error("the lane with two tracks has the height", got.lanes[1].height)
	}
}

// TestTicks: the axis is divided at round times of its zone, and each part can be shown alone.
func TestTicks(t *testing.T) {
	zone := time.FixedZone("UTC+5:30", 5*3600+1800)
	to := time.Date(2026, 3, 4, 12, 0, 0, 0, zone)
	for length, want := range map[time.Duration][]string{
		3 * day:       {"Sun 12:00", "Mon 00:00", "Mon 12:00", "Tue 00:00", "Tue 12:00", "Wed 00:00"},
		6 * time.Hour: {"06:00", "07:00", "08:00", "09:00", "10:00", "11:00"},
	} {
		var labels []string
		ticks := ticksOf(&scope{path: "/rollouts", from: to.Add(-length), to: to})
		for _, tick := range ticks {
			labels = append(labels, tick.label)
		}
		if diff := cmp.Diff(want, labels); diff != "" {
			t.Errorf("ticks of %s (-want +got):\n%s", length, diff)
		}
		if path := ticks[1].path; !strings.HasPrefix(path, "/rollouts?since=2026-03-0") || !strings.Contains(path, "&until=") {
			t.Errorf("a part of the axis leads to %s", path)
		}
	}
}

// TestRolloutsChangeInPlace: while the page is open its rollouts change where they stand; one
// that matches no more stays, and newer ones are offered.
func TestRolloutsChangeInPlace(t *testing.T) {
	going, other := rolled("r1", "web", 1, 0, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING), rolled("r2", "web", 2, 0, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING)
	f := rolling(t, going, other)
	v := &visit{Handler: f.page(), r: request("GET", "/rollouts/live?outcome=PROGRESSING&at="+instant(noon), ""), ctx: signedIn(t), now: noon, caller: &controlv1.GetCallerResponse{}, allowed: map[string]bool{}}
	src, err := liveRollouts(v)
	if err != nil {
		t.Fatal(err)
	}
	read := func() map[string]part {
		t.Helper()
		list, err := src.parts(v)
		if err != nil {
			t.Fatal(err)
		}
		parts := map[string]part{}
		for _, p := range list {
			parts[p.id] = p
		}
		return parts
	}
	before := read()
	v.now = noon.Add(time.Minute)
	if again := read(); again["lanes"].key != before["lanes"].key || again["rollout-r1"].key != before["rollout-r1"].key {
		t.Error("keys change with the time")
	}
	going.Outcome, going.CompletedAtMs = modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE, noon.UnixMilli()
	*f = *rolling(t, going, other, rolled("new", "web", -1, 0, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING))
	v.Handler = f.page()
	after := read()
	text, err := html(t.Context(), after["rollout-r1"].body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, "no longer matches") || after["rollout-r1"].key == before["rollout-r1"].key || after["rollout-r2"].key != before["rollout-r2"].key {
		t.Errorf("the rollout that ended: %s", text)
	}
	if _, ok := after["rollout-new"]; ok {
		t.Error("a newer rollout comes by itself")
	}
	if text, err = html(t.Context(), after["resort"].body); err != nil || !strings.Contains(text, "1 newer rollout: show") {
		t.Errorf("the offer is %q: %v", text, err)
	}
}

// TestPartsOfRollouts: parts are drawn in their shares of the whole; what pods took together can
// exceed it.
func TestPartsOfRollouts(t *testing.T) {
	r := rolled("r", "web", 1, 10, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE)
	second, four := int64(1000), int64(4000)
	r.ScheduleMs, r.ReadyMs = &second, &four
	want := []segment{{"schedule", "0.000%", "10.000%"}, {"ready", "10.000%", "40.000%"}, {"rest", "50.000%", "50.000%"}}
	if diff := cmp.Diff(want, segmentsOf(r), cmp.AllowUnexported(segment{})); diff != "" {
		t.Error(diff)
	}
	long := int64(16000)
	r.PullMs = &long
	if got := segmentsOf(r); got[2].x != "80.952%" || got[3].width != "0.000%" { // 17 of 21
		t.Error("longer than the whole:", got)
	}
	if segmentsOf(&modelv1.Rollout{StartedAtMs: 5}) != nil {
		t.Error("a rollout without times is drawn")
	}
}

// foreignRollout returns a rollout of a workload without an application.
func foreignRollout(id, cluster, kind, namespace, name string) *modelv1.Rollout {
	r := rolled(id, name, 3, 20, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE)
	r.ApplicationId, r.ApplicationName, r.DeploymentId, r.Commit, r.CausedBy = "", "", "", "", "helm"
	r.Workload = &modelv1.ObjectRef{Cluster: cluster, Kind: kind, Namespace: namespace, Name: name}
	return r
}

// TestRolloutsWithoutAnApplication: each workload without an application has a lane of its own,
// which says where it is, and its row says what changed and whether it was found late.
func TestRolloutsWithoutAnApplication(t *testing.T) {
	late := foreignRollout("f1", "prod", "Deployment", "shop", "web")
	late.FoundLate, late.ImagesBefore = true, []string{"registry.example/team/web:v1"}
	rows := []*modelv1.Rollout{
		late, foreignRollout("f2", "prod", "Deployment", "shop", "web"), foreignRollout("f3", "test", "Deployment", "shop", "web"),
		foreignRollout("f4", "prod", "StatefulSet", "shop", "web"), foreignRollout("f5", "prod", "Deployment", "web", "web"),
	}
	body := golden(t, "rollouts-foreign", rolling(t, rows...).get("/rollouts"))
	var lanes []string
	for _, m := range regexp.MustCompile(`<span title="([^"]*)">web</span> *<span class="count">(\d+)</span>`).FindAllStringSubmatch(body, -1) {
		lanes = append(lanes, m[1]+": "+m[2])
	}
	want := []string{"Deployment web in shop on prod: 2", "Deployment web in shop on test: 1", "Deployment web in web on prod: 1", "StatefulSet web in shop on prod: 1"}
	if diff := cmp.Diff(want, lanes); diff != "" {
		t.Error("the lanes (-want +got):\n" + diff)
	}
	for _, text := range []string{"web:v1 → web:v2", "found late", "by helm", `<span class="muted">StatefulSet web in shop on prod</span>`} {
		if !strings.Contains(body, text) {
			t.Errorf("the view lacks %q", text)
		}
	}
	if n := strings.Count(body, "found late"); n != 1 {
		t.Errorf("%d rollouts are said to be found late, want 1", n)
	}
}
