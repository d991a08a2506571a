package control_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// detector is a Drift with a fixed result; it adds diffs if requested.
type detector struct {
	report deploy.DriftReport
	err    error
}

func (d detector) Report(_ context.Context, id string, diff bool) (deploy.DriftReport, error) {
	d.report.ApplicationID = id
	for i := range d.report.Objects {
		if diff {
			d.report.Objects[i].Diff = "-a\n+b\n"
		}
	}
	return d.report, d.err
}

func changed(name string) deploy.ObjectDrift {
	return deploy.ObjectDrift{
		Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name}, Kind: deploy.DriftChanged,
		Fields: []deploy.FieldDrift{{Path: "spec.replicas", Git: "2", Live: "5", Manager: "kubectl", ChangedAt: controltest.Epoch}},
	}
}

// found stores the result of a comparison.
func found(t testing.TB, agent *controltest.Agent, app deploy.Application, report deploy.DriftReport) {
	t.Helper()
	report.ApplicationID, report.Cluster = app.ID, app.Provider
	state := deploy.SyncState{Status: report.Status, ShortReason: "found so", At: report.CheckedAt}
	if !report.EndedAt.IsZero() {
		state.Status = deploy.Synced
	}
	if _, err := agent.Store.ReportDrift(t.Context(), app, state, &report); err != nil {
		t.Fatal(err)
	}
}

// drifts stores an ended and a current period of drift of an application.
func drifts(t testing.TB, agent *controltest.Agent, app deploy.Application) {
	t.Helper()
	app, err := agent.Store.Application(t.Context(), app.ID)
	if err != nil {
		t.Fatal(err)
	}
	at := controltest.Epoch.Add(time.Hour)
	old := deploy.DriftReport{
		ID: app.ID + "-1", Commit: "c1", Status: deploy.OutOfSync, Objects: []deploy.ObjectDrift{changed("web")}, Compared: 3, CheckedAt: at, BeganAt: at,
	}
	found(t, agent, app, old)
	old.EndedAt, old.CheckedAt, old.End = at.Add(time.Minute), at.Add(time.Minute), deploy.DriftReverted
	found(t, agent, app, old)
	found(t, agent, app, deploy.DriftReport{
		ID: app.ID + "-2", Commit: "c2", Status: deploy.OutOfSync, Undeployed: []string{"c3"}, Compared: 3, CheckedAt: at.Add(time.Hour), BeganAt: at.Add(time.Hour),
	})
}

func TestGetDriftReport(t *testing.T) {
	at := controltest.Epoch.Add(2 * time.Hour)
	agent := controltest.Start(t, t.TempDir(), func(cfg *control.Config) {
		cfg.Drift = detector{report: deploy.DriftReport{
			ID: "r", Cluster: "dev", Commit: "c2", Status: deploy.OutOfSync, Compared: 9, CheckedAt: at, BeganAt: at, Incomplete: "list caches: refused",
			Objects: []deploy.ObjectDrift{
				{Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old"}, Cluster: "prod", Kind: deploy.DriftExtra, BeganAt: at, Note: "it is not pruned"},
				{Object: deploy.ObjectRef{Version: "v1", Kind: "Secret", Namespace: "shop", Name: "key"}, Kind: deploy.DriftChanged, Fields: []deploy.FieldDrift{{Path: "data.key", Git: `"***"`, Live: `"***"`, Masked: true}}},
			},
		}}
	})
	app := agent.Application("web", nil)
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadOnly)
	get := func(req *controlv1.GetDriftReportRequest, want *modelv1.DriftReport) {
		t.Helper()
		req.ApplicationId = app.ID
		want.ApplicationId, want.ApplicationName, want.Cluster = app.ID, "web", "dev"
		resp, err := client.GetDriftReport(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, resp.Report, protocmp.Transform()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", req, diff)
		}
	}
	get(&controlv1.GetDriftReportRequest{}, &modelv1.DriftReport{Status: modelv1.ApplicationSyncStatus_SYNCED, CheckedAtMs: app.Sync.At.UnixMilli()})
	now := &modelv1.DriftReport{
		Id: "r", Commit: "c2", Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, ComparedObjects: 9, CheckedAtMs: at.UnixMilli(), BeganAtMs: at.UnixMilli(), IncompleteReason: "list caches: refused",
		Objects: []*modelv1.ObjectDrift{
			{
				Object: &modelv1.ObjectRef{Cluster: "prod", Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old"},
				Kind:   modelv1.DriftKind_DRIFT_KIND_EXTRA, BeganAtMs: at.UnixMilli(), Note: "it is not pruned",
			},
			{
				Object: &modelv1.ObjectRef{Cluster: "dev", Version: "v1", Kind: "Secret", Namespace: "shop", Name: "key"}, Kind: modelv1.DriftKind_DRIFT_KIND_CHANGED,
				Fields: []*modelv1.FieldDrift{{Path: "data.key", GitValue: `"***"`, LiveValue: `"***"`, Masked: true}},
			},
		},
	}
	get(&controlv1.GetDriftReportRequest{Refresh: true}, now)
	now.Objects[0].Diff, now.Objects[1].Diff = "-a\n+b\n", "-a\n+b\n"
	get(&controlv1.GetDriftReportRequest{Diff: true}, now)

	drifts(t, agent, app)
	lasts := controltest.Epoch.Add(2 * time.Hour).UnixMilli()
	stored := &modelv1.DriftReport{
		Id: "app-web-2", Commit: "c2", Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, UndeployedCommits: []string{"c3"}, ComparedObjects: 3, CheckedAtMs: lasts, BeganAtMs: lasts,
	}
	get(&controlv1.GetDriftReportRequest{}, stored)
	agent.Deployment("d1", app, "")
	agent.Move("d1", deploy.Running, "")
	stored.Status = modelv1.ApplicationSyncStatus_DEPLOYING
	get(&controlv1.GetDriftReportRequest{}, stored)
}

// TestDriftReportAfterADeployment: a report is not returned after a later deployment.
func TestDriftReportAfterADeployment(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(cfg *control.Config) {
		cfg.Drift = detector{report: deploy.DriftReport{Status: deploy.Synced, Compared: 3}}
	})
	app := agent.Application("web", nil)
	before := controltest.Epoch.Add(-time.Hour)
	found(t, agent, app, deploy.DriftReport{
		ID: "r", Status: deploy.OutOfSync, Objects: []deploy.ObjectDrift{changed("web")}, Compared: 3, CheckedAt: before, BeganAt: before,
	})
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadOnly)
	differing := func() int {
		resp, err := client.GetDriftReport(ctx, &controlv1.GetDriftReportRequest{ApplicationId: app.ID})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.Report.Objects)
	}
	if n := differing(); n != 1 {
		t.Errorf("before the deployment %d objects differ, want 1", n)
	}
	agent.Deployment("d1", app, "")
	agent.Move("d1", deploy.Success, "")
	if n := differing(); n != 0 {
		t.Errorf("after the deployment %d objects differ, want none", n)
	}
}

// TestDriftReportOfAStateWithoutDrift: the report has the reason of the sync state.
func TestDriftReportOfAStateWithoutDrift(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	client, ctx := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())), as(t, agent.ReadOnly)
	for _, c := range []struct {
		state deploy.SyncState
		want  string
	}{
		{deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "unknown since 3:04", Reason: "cluster dev does not answer since 3:04"}, "UNKNOWN: cluster dev does not answer since 3:04"},
		{deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "never deployed"}, "UNKNOWN: never deployed"},
		{deploy.SyncState{Status: deploy.SyncInvalidConfig, Reason: "app.pipecd.yaml:3: unknown key"}, "INVALID_CONFIG: app.pipecd.yaml:3: unknown key"},
		{deploy.SyncState{Status: deploy.Synced, ShortReason: "as in Git"}, "SYNCED: "},
	} {
		if _, err := agent.Store.SetSyncState(t.Context(), app.ID, c.state); err != nil {
			t.Fatal(err)
		}
		resp, err := client.GetDriftReport(ctx, &controlv1.GetDriftReportRequest{ApplicationId: app.ID})
		if got := resp.GetReport().GetStatus().String() + ": " + resp.GetReport().GetIncompleteReason(); err != nil || got != c.want {
			t.Errorf("got %q, %v, want %q", got, err, c.want)
		}
	}
}

func TestGetDriftReportRefusals(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(cfg *control.Config) {
		cfg.Drift = detector{err: deploy.Errorf(deploy.Unavailable, "cluster \"dev\" cannot be reached: connection refused")}
	})
	agent.Application("web", nil)
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for _, c := range []struct {
		id   string
		code codes.Code
		text string
	}{{"app-web", codes.Unavailable, "connection refused"}, {"nobody", codes.NotFound, "nobody"}, {"", codes.InvalidArgument, "ApplicationId"}} {
		_, err := client.GetDriftReport(as(t, agent.ReadOnly), &controlv1.GetDriftReportRequest{ApplicationId: c.id, Refresh: true})
		if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.text) {
			t.Errorf("of %q: %v, want %s with %q", c.id, err, c.code, c.text)
		}
	}
}

// TestLargeDriftReports: a client reads at most 4 MiB, so the last diffs, then the last
// objects, then the last fields are omitted, and the report says so.
func TestLargeDriftReports(t *testing.T) {
	const limit = 4 << 20
	for name, c := range map[string]struct {
		objects, fields, diff int // and the size of each diff
		want                  string
		shown, diffs          int // objects and diffs, -1 for any number
	}{
		"all of it":        {100, 2, 4_000, "", 100, 100},
		"too many diffs":   {10, 2, 1 << 20, "diffs are omitted: the response would be too large", 10, 3},
		"too many objects": {40_000, 1, 0, "objects are omitted: the response would be too large", -1, 0},
		"too many fields":  {1, 120_000, 0, "differing fields are omitted: the response would be too large", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var report deploy.DriftReport
			for i := range c.objects {
				o := changed(fmt.Sprintf("web-%06d", i))
				for len(o.Fields) < c.fields {
					o.Fields = append(o.Fields, o.Fields[0])
				}
				o.Fields[0].Live, o.Diff = strings.Repeat("x", 60), strings.Repeat("d", c.diff)
				report.Objects = append(report.Objects, o)
			}
			agent := controltest.Start(t, t.TempDir(), func(cfg *control.Config) { cfg.Drift = detector{report: report} })
			agent.Application("web", nil)
			resp, err := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr())).GetDriftReport(as(t, agent.ReadOnly), &controlv1.GetDriftReportRequest{ApplicationId: "app-web", Refresh: true})
			if err != nil {
				t.Fatal(err)
			}
			diffs := 0
			for _, o := range resp.Report.Objects {
				if o.Diff != "" {
					diffs++
				}
			}
			shown := len(resp.Report.Objects)
			if size := proto.Size(resp); size >= limit || c.want != "" && size < limit/2 && c.diff == 0 {
				t.Errorf("the response has %d bytes", size)
			}
			if c.shown >= 0 && shown != c.shown || shown == 0 || shown > c.objects || diffs != c.diffs {
				t.Errorf("%d objects and %d diffs, want %d and %d", shown, diffs, c.shown, c.diffs)
			}
			if got := resp.Report.IncompleteReason; !strings.Contains(got, c.want) || c.want == "" && got != "" {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}

func TestListDriftReports(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	drifts(t, agent, agent.Application("web", nil))
	drifts(t, agent, agent.Application("api", nil))
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	list := func(t *testing.T, req *controlv1.ListDriftReportsRequest) (*controlv1.ListDriftReportsResponse, string) {
		t.Helper()
		resp, err := client.ListDriftReports(as(t, agent.ReadOnly), req)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, r := range resp.Reports {
			ids = append(ids, strings.TrimPrefix(r.Id, "app-"))
		}
		return resp, strings.Join(ids, " ")
	}
	after := func(d time.Duration) int64 { return controltest.Epoch.Add(d).UnixMilli() }
	for name, c := range map[string]struct {
		req  *controlv1.ListDriftReportsRequest
		want string
	}{
		"newest first":              {&controlv1.ListDriftReportsRequest{}, "api-2 web-2 api-1 web-1"},
		"of an application":         {&controlv1.ListDriftReportsRequest{ApplicationIds: []string{"app-web"}}, "web-2 web-1"},
		"those that last":           {&controlv1.ListDriftReportsRequest{OpenOnly: true}, "api-2 web-2"},
		"that lasted after a time":  {&controlv1.ListDriftReportsRequest{FromMs: after(time.Hour + 2*time.Minute)}, "api-2 web-2"},
		"one lasted at that time":   {&controlv1.ListDriftReportsRequest{FromMs: after(time.Hour + 30*time.Second)}, "api-2 web-2 api-1 web-1"},
		"those last until now":      {&controlv1.ListDriftReportsRequest{FromMs: after(24 * time.Hour)}, "api-2 web-2"},
		"that began before a time":  {&controlv1.ListDriftReportsRequest{ToMs: after(2 * time.Hour)}, "api-1 web-1"},
		"a page":                    {&controlv1.ListDriftReportsRequest{Limit: 3}, "api-2 web-2 api-1"},
		"of an application unknown": {&controlv1.ListDriftReportsRequest{ApplicationIds: []string{"app-no"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := list(t, c.req); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	page, _ := list(t, &controlv1.ListDriftReportsRequest{Limit: 3})
	rest, ids := list(t, &controlv1.ListDriftReportsRequest{Limit: 3, Cursor: page.Cursor})
	if page.Cursor == "" || ids != "web-1" || rest.Cursor != "" {
		t.Errorf("behind the first page: %q, with cursor %q", ids, rest.Cursor)
	}
	want := []*modelv1.DriftReport{{
		Id: "app-web-1", ApplicationId: "app-web", ApplicationName: "web", Cluster: "dev", Commit: "c1", Status: modelv1.ApplicationSyncStatus_OUT_OF_SYNC, ComparedObjects: 3,
		CheckedAtMs: after(time.Hour + time.Minute), BeganAtMs: after(time.Hour), EndedAtMs: after(time.Hour + time.Minute), End: modelv1.DriftEnd_DRIFT_END_REVERTED,
		Objects: []*modelv1.ObjectDrift{{
			Object: &modelv1.ObjectRef{Cluster: "dev", Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, Kind: modelv1.DriftKind_DRIFT_KIND_CHANGED,
			Fields: []*modelv1.FieldDrift{{Path: "spec.replicas", GitValue: "2", LiveValue: "5", Manager: "kubectl", ChangedAtMs: after(0)}},
		}},
	}}
	if diff := cmp.Diff(want, rest.Reports, protocmp.Transform()); diff != "" {
		t.Errorf("a period that has ended (-want +got):\n%s", diff)
	}
	for name, req := range map[string]*controlv1.ListDriftReportsRequest{
		"a negative limit":      {Limit: -1},
		"another list's cursor": {Cursor: "nonsense"},
		"too many applications": {ApplicationIds: make([]string, 1001)},
	} {
		if _, err := client.ListDriftReports(as(t, agent.ReadOnly), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestListDriftReportsPages: the default page size is fifty, the maximum five hundred.
func TestListDriftReportsPages(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	for a := range 6 {
		app := agent.Application(fmt.Sprint("web", a), nil)
		for i := range 100 {
			began := controltest.Epoch.Add(time.Duration(i) * time.Minute)
			found(t, agent, app, deploy.DriftReport{
				ID: fmt.Sprintf("r%d-%03d", a, i), Status: deploy.OutOfSync, CheckedAt: began, BeganAt: began, EndedAt: began.Add(time.Second), End: deploy.DriftReverted,
			})
		}
	}
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for limit, want := range map[int32]int{0: 50, 7: 7, 500: 500, 5000: 500} {
		resp, err := client.ListDriftReports(as(t, agent.ReadOnly), &controlv1.ListDriftReportsRequest{Limit: limit})
		if err != nil || len(resp.Reports) != want || resp.Cursor == "" {
			t.Errorf("limit %d: %d reports, %v; want %d and a cursor", limit, len(resp.GetReports()), err, want)
		}
	}
}

// driftWatch is a stream of drift reports as "<application> <status> <ID> <end>".
type driftWatch struct {
	t      testing.TB
	stream grpc.ServerStreamingClient[controlv1.WatchDriftResponse]
}

func watchDrift(ctx context.Context, t testing.TB, client controlv1.ControlServiceClient, ids ...string) driftWatch {
	t.Helper()
	stream, err := client.WatchDrift(ctx, &controlv1.WatchDriftRequest{ApplicationIds: ids})
	if err != nil {
		t.Fatal(err)
	}
	return driftWatch{t, stream}
}

func (d driftWatch) next() string {
	d.t.Helper()
	resp, err := d.stream.Recv()
	switch {
	case err != nil:
		d.t.Fatal(err)
	case resp.CaughtUp && resp.Report == nil:
		return "caught up"
	}
	r := resp.Report
	return strings.Join(strings.Fields(fmt.Sprint(r.ApplicationName, " ", r.Status, " ", r.Id, " ", strings.TrimPrefix(r.End.String(), "DRIFT_END_UNSPECIFIED"))), " ")
}

// expects compares the next messages with want.
func (d driftWatch) expects(want ...string) {
	d.t.Helper()
	for _, w := range want {
		if got := d.next(); got != w {
			d.t.Errorf("got %q, want %q", got, w)
		}
	}
}

func TestWatchDrift(t *testing.T) {
	ctx, client, agent := streaming(t)
	web, api, db := agent.Application("web", nil), agent.Application("api", nil), agent.Application("db", nil)
	drifts(t, agent, web)
	drifts(t, agent, api)
	all, some := watchDrift(ctx, t, client), watchDrift(ctx, t, client, "app-db", "app-web", "nobody")
	all.expects("api OUT_OF_SYNC app-api-2", "web OUT_OF_SYNC app-web-2", "caught up")
	some.expects("db SYNCED", "web OUT_OF_SYNC app-web-2", "caught up")

	at := controltest.Epoch.Add(3 * time.Hour)
	found(t, agent, db, deploy.DriftReport{ID: "db-1", Status: deploy.OutOfSync, CheckedAt: at, BeganAt: at})
	all.expects("db OUT_OF_SYNC db-1")
	some.expects("db OUT_OF_SYNC db-1")
	found(t, agent, db, deploy.DriftReport{ID: "db-1", Status: deploy.OutOfSync, CheckedAt: at.Add(time.Second), BeganAt: at, EndedAt: at.Add(time.Second), End: deploy.DriftDeployed})
	all.expects("db OUT_OF_SYNC db-1 DRIFT_END_DEPLOYED")
	some.expects("db OUT_OF_SYNC db-1 DRIFT_END_DEPLOYED")

	// An unreachable cluster is no drift but is reported.
	if _, err := agent.Store.ReportDrift(ctx, db, deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "dev does not answer", At: at.Add(time.Minute)}, nil); err != nil {
		t.Fatal(err)
	}
	found(t, agent, api, deploy.DriftReport{ID: "app-api-2", Status: deploy.OutOfSync, CheckedAt: at.Add(time.Minute), BeganAt: at, Objects: []deploy.ObjectDrift{changed("api")}})
	all.expects("db UNKNOWN", "api OUT_OF_SYNC app-api-2")
	some.expects("db UNKNOWN")
}

// TestManyWatchDrift: all watchers get each change.
func TestManyWatchDrift(t *testing.T) {
	ctx, client, agent := streaming(t)
	web := agent.Application("web", nil)
	var watches []driftWatch
	for range 50 {
		w := watchDrift(ctx, t, client)
		w.expects("caught up")
		watches = append(watches, w)
	}
	at := controltest.Epoch.Add(time.Hour)
	found(t, agent, web, deploy.DriftReport{ID: "r1", Status: deploy.OutOfSync, CheckedAt: at, BeganAt: at})
	for _, w := range watches {
		w.expects("web OUT_OF_SYNC r1")
	}
}

// TestPlanNamesWhatItUndoes: the plan of a deployment that has not started lists the live
// changes that it reverts, without ignored ones; that of an ended one lists none.
func TestPlanNamesWhatItUndoes(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	agent.Deployment("ended", app, "")
	agent.Move("ended", deploy.Success, "good")
	app, err := agent.Store.Application(t.Context(), app.ID)
	if err != nil {
		t.Fatal(err)
	}
	extra := changed("old")
	extra.Kind = deploy.DriftExtra
	at := controltest.Epoch.Add(time.Hour)
	found(t, agent, app, deploy.DriftReport{ID: "r", Status: deploy.OutOfSync, Objects: []deploy.ObjectDrift{changed("web"), extra}, Compared: 2, CheckedAt: at, BeganAt: at})
	agent.Deployment("waits", app, "")
	client := controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for _, c := range []struct {
		req  *controlv1.GetPlanRequest
		want int
	}{{&controlv1.GetPlanRequest{DeploymentId: "waits"}, 1}, {&controlv1.GetPlanRequest{DeploymentId: "ended"}, 0}} {
		resp, err := client.GetPlan(as(t, agent.ReadOnly), c.req)
		undoes := resp.GetPlan().GetUndoes()
		if err != nil || len(undoes) != c.want || c.want == 1 && (undoes[0].GetObject().GetName() != "web" || undoes[0].GetFields()[0].GetLiveValue() != "5") {
			t.Errorf("%v: %v, %v", c.req, undoes, err)
		}
	}
}
