package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/metric"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
	"github.com/c785c783/piped/piped/web"
)

// exposition returns what a scrape answers. One that takes longer than the metrics may be collected
// proves nothing, since some may be omitted: on a busy machine there is another one.
func exposition(t *testing.T, url string) []byte {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		began := time.Now()
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		switch {
		case time.Since(began) >= metric.ScrapeTimeout && time.Now().Before(end):
		case err != nil || resp.StatusCode != http.StatusOK:
			t.Fatalf("%s, %v: %s", resp.Status, err, text)
		default:
			return text
		}
	}
}

// scrape returns the agent's own metrics as a Prometheus server reads them: non-zero
// values by name and labels, and the counts of histograms. It fails if promlint finds a
// problem.
func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	text := exposition(t, url)
	problems, err := promlint.New(strings.NewReader(string(text))).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "go_build_info"} {
		if families[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	out := map[string]float64{}
	for name, family := range families {
		if !strings.HasPrefix(name, "piped_") {
			continue
		}
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				out[name+"{"+strings.Join(labels, ",")+"}"] = value
			}
		}
	}
	return out
}

// collecting returns the metrics of an agent that has nothing but a store.
func collecting(t *testing.T, st *store.Store) (*metrics, *live) {
	t.Helper()
	m := newMetrics(slog.New(slog.DiscardHandler))
	l := newLive("", clusterConfig{requests: m.requests}, m.git, Options{Logger: slog.New(slog.DiscardHandler), Now: time.Now})
	stored := m.collect(st, l, time.Now)
	t.Cleanup(func() {
		if err := stored.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, l
}

// TestMetrics: gauges have the values of the store, and work is counted.
func TestMetrics(t *testing.T) {
	t.Parallel()
	st := storetest.New(t, nil)
	m, _ := collecting(t, st)
	server := httptest.NewServer(m.handler())
	t.Cleanup(server.Close)
	held := false
	expect := func(when string, want map[string]float64) {
		t.Helper()
		got := scrape(t, server.URL)
		if got["piped_store_up{}"] != 1 || got["piped_store_size_bytes{}"] < 4096 {
			t.Errorf("%s: piped_store_up is %v, at %v bytes", when, got["piped_store_up{}"], got["piped_store_size_bytes{}"])
		}
		if back := "piped_application_held_seconds{app=web,application_id=web,commit=0123456}"; (got[back] > 0) != held {
			t.Errorf("%s: the application is held for %v s, held: %v", when, got[back], held)
		} else {
			delete(got, back)
		}
		if all := "piped_partitions_held{replica=" + store.Process() + "}"; got[all] != deploy.Partitions {
			t.Errorf("%s: %s is %v", when, all, got[all])
		} else {
			delete(got, all)
		}
		delete(got, "piped_queue_oldest_seconds{queue=outbox}") // of the rollback's events
		delete(got, "piped_queue_oldest_seconds{queue=pending}")
		delete(got, "piped_store_up{}")
		delete(got, "piped_store_size_bytes{}")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	expect("at first", map[string]float64{})

	at := time.Now()
	objects := []deploy.ObjectDrift{
		{Kind: deploy.DriftChanged, Object: deploy.ObjectRef{Kind: "Deployment", Name: "web"}},
		{Kind: deploy.DriftChanged, Object: deploy.ObjectRef{Kind: "Service", Name: "web"}},
		{Kind: deploy.DriftExtra, Object: deploy.ObjectRef{Kind: "ConfigMap", Name: "old"}},
	}
	var db deploy.Application
	for _, name := range []string{"web", "api", "db"} {
		app := deploy.Application{ID: name, Name: name, Kind: deploy.KindKubernetes, Sync: deploy.SyncState{Status: deploy.Synced}}
		if _, err := st.PutApplication(t.Context(), app); err != nil {
			t.Fatal(err)
		}
		db = app
	}
	report := deploy.DriftReport{ID: "r", ApplicationID: db.ID, Status: deploy.OutOfSync, Objects: objects, CheckedAt: at, BeganAt: at}
	save := func(status deploy.SyncStatus) {
		t.Helper()
		if _, err := st.ReportDrift(t.Context(), db, deploy.SyncState{Status: status, At: at}, &report); err != nil {
			t.Fatal(err)
		}
	}
	save(deploy.OutOfSync)
	want := map[string]float64{
		"piped_applications{sync_status=SYNCED}": 2, "piped_applications{sync_status=OUT_OF_SYNC}": 1,
		"piped_drifted_objects{drift=changed}": 2, "piped_drifted_objects{drift=extra}": 1,
		"piped_partition_handovers_total{}": 2,
	}
	if err := st.Join(t.Context(), deploy.Replica{ID: "r"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Take(t.Context(), "r", []deploy.Partition{1, 2}); err != nil {
		t.Fatal(err)
	}
	expect("while one drifts", want)
	report.EndedAt, report.End = at.Add(time.Second), deploy.DriftReverted
	save(deploy.Synced)
	back := deploy.Deployment{
		ID: "back", ApplicationID: "web", ApplicationName: "web", Status: deploy.Pending, CreatedAt: at,
		Trigger: deploy.Trigger{Kind: deploy.OnCommand, Commit: deploy.Commit{Hash: "0123456789"}},
	}
	if _, err := st.CreateDeployment(t.Context(), store.NewDeployment{Deployment: back, Hold: &deploy.Hold{Commit: back.Trigger.Commit, By: "jane"}}); err != nil {
		t.Fatal(err)
	}
	held = true

	var recorded drift.Metrics = m.drift
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			recorded.Evaluated(drift.ByMetadata)
			recorded.Evaluated(drift.BySweep)
			recorded.Called(1, 0)
			recorded.Called(1, 1)
			recorded.Reported(200 * time.Millisecond)
			recorded.Ended(deploy.DriftReverted)
		})
	}
	all.Wait()
	expect("after it", map[string]float64{
		"piped_queue_length{queue=pending}":             1,
		"piped_queue_length{queue=outbox}":              2,
		"piped_applications{sync_status=SYNCED}":        3,
		"piped_partition_handovers_total{}":             2,
		"piped_drift_comparisons_total{tier=0}":         10,
		"piped_drift_comparisons_total{tier=3}":         10,
		"piped_drift_api_calls_total{call=get}":         20,
		"piped_drift_api_calls_total{call=dry_run}":     10,
		"piped_drift_report_delay_seconds{}":            10,
		"piped_drift_periods_ended_total{end=reverted}": 10,
	})
}

// waitForApproval brings a pending deployment to a stage that has waited for people since then.
func waitForApproval(t *testing.T, st *store.Store, id string, since time.Time) {
	t.Helper()
	for _, step := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error {
			return d.Plan(deploy.Plan{Stages: []deploy.Stage{{ID: "ok", Name: deploy.StageWaitApproval}}}, since)
		},
		func(d *deploy.Deployment) error { return d.Start(since) },
		func(d *deploy.Deployment) error { return d.StartStage("ok", since) },
	} {
		if _, err := st.UpdateDeployment(t.Context(), id, step); err != nil {
			t.Fatal(err)
		}
	}
}

// TestApprovalWaitMetric: the gauge counts from the start of the stage, and disappears
// when it ends.
func TestApprovalWaitMetric(t *testing.T) {
	t.Parallel()
	st := storetest.New(t, nil)
	m, _ := collecting(t, st)
	server := httptest.NewServer(m.handler())
	t.Cleanup(server.Close)
	if _, err := st.PutApplication(t.Context(), deploy.Application{ID: "a", Name: "web"}); err != nil {
		t.Fatal(err)
	}
	d := deploy.Deployment{ID: "d", ApplicationID: "a", ApplicationName: "web", Status: deploy.Pending}
	if _, err := st.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d}); err != nil {
		t.Fatal(err)
	}
	waitForApproval(t, st, d.ID, time.Now().Add(-time.Hour))
	const gauge = "piped_application_approval_wait_seconds{app=web,application_id=a}"
	if got := scrape(t, server.URL)[gauge]; got < 3600 || got > 2*3600 {
		t.Errorf("%s is %v, want an hour", gauge, got)
	}
	if _, err := st.UpdateDeployment(t.Context(), d.ID, func(d *deploy.Deployment) error {
		return d.FinishStage("ok", deploy.StageSuccess, "", time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	if got, ok := scrape(t, server.URL)[gauge]; ok {
		t.Errorf("after the approval, %s is %v", gauge, got)
	}
}

// recordedOnce returns metrics each of which has been recorded at least once.
func recordedOnce(t *testing.T, st *store.Store) *metrics {
	t.Helper()
	m, l := collecting(t, st)
	m.calls.Called("piped.control.v1.ControlService/GetStatus", "OK", false, time.Second)
	m.webhooks.Delivered("github", web.Accepted)
	m.notifications.Delivered("hook", time.Second)
	m.notifications.Failed("hook")
	m.notifications.GaveUp("hook")
	m.registry.MustRegister(notify.Backlog{Now: time.Now, Status: func(context.Context) ([]deploy.ReceiverState, error) {
		return []deploy.ReceiverState{{Name: "hook"}}, nil
	}})
	back := deploy.Deployment{ID: "back", ApplicationID: "held", ApplicationName: "held", Status: deploy.Pending, Trigger: deploy.Trigger{Kind: deploy.OnCommand}}
	if _, err := st.PutApplication(t.Context(), deploy.Application{ID: "held", Name: "held"}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.CreateDeployment(t.Context(), store.NewDeployment{Deployment: back, Hold: &deploy.Hold{Commit: deploy.Commit{Hash: "0123456789"}}}); err != nil {
		t.Fatal(err)
	}
	waitForApproval(t, st, "back", time.Now())
	m.queries.Queried(t.Context(), "prometheus", time.Now(), nil)
	transport := m.requests.Wrap("local")(answering{})
	if _, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)); err != nil {
		t.Fatal(err)
	}
	countEnded(t, m, st)
	l.clusters.configured["local"] = &connection{problem: errors.New("none")}
	l.repositories.configured = []repository{{config: config.Repository{RepoID: "apps"}, problem: errors.New("none")}}
	return m
}

// answering is a transport that answers every request.
type answering struct{}

// RoundTrip implements http.RoundTripper.
func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// countEnded ends a deployment that ran a stage, and waits until both are counted.
func countEnded(t *testing.T, m *metrics, st *store.Store) {
	t.Helper()
	counter := m.ended.Count(st, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := counter.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		if err := counter.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := st.PutApplication(t.Context(), deploy.Application{ID: "ended", Name: "ended"}); err != nil {
		t.Fatal(err)
	}
	d := deploy.Deployment{ID: "ended", ApplicationID: "ended", Status: deploy.Pending}
	if _, err := st.CreateDeployment(t.Context(), store.NewDeployment{Deployment: d}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(*deploy.Deployment) error{
		func(d *deploy.Deployment) error {
			return d.Plan(deploy.Plan{Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}}}, time.Now())
		},
		func(d *deploy.Deployment) error { return d.Start(time.Now()) },
		func(d *deploy.Deployment) error { return d.StartStage("sync", time.Now()) },
		func(d *deploy.Deployment) error {
			return d.FinishStage("sync", deploy.StageSuccess, "", time.Now())
		},
		func(d *deploy.Deployment) error { return d.Complete(deploy.Success, "", time.Now()) },
	} {
		if _, err := st.UpdateDeployment(t.Context(), d.ID, step); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		families, err := m.registry.Gather()
		if err != nil && !strings.Contains(err.Error(), "context deadline exceeded") { // a scrape has no more than a few seconds
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "piped_stage_duration_seconds" {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the end of a deployment is not counted")
		}
	}
}

// TestMetricsDescribesEveryMetric: Metrics names all of the agent's own metrics, with
// their labels and types, and no other.
func TestMetricsDescribesEveryMetric(t *testing.T) {
	t.Parallel()
	described := map[string]bool{}
	for _, m := range Metrics() {
		name := m.Name
		if len(m.Labels) > 0 {
			name += "{" + strings.Join(m.Labels, ",") + "}"
		}
		described[name+" "+m.Type] = true
	}
	registry := recordedOnce(t, storetest.New(t, nil)).registry
	families, err := registry.Gather()
	for end := time.Now().Add(patience); err != nil && strings.Contains(err.Error(), "context deadline exceeded") && time.Now().Before(end); {
		families, err = registry.Gather() // a scrape has no more than a few seconds
	}
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range families {
		name := f.GetName()
		if !strings.HasPrefix(name, "piped_") {
			continue
		}
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		if len(labels) > 0 {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		have[name+" "+strings.ToLower(f.GetType().String())] = true
	}
	if diff := cmp.Diff(have, described); diff != "" {
		t.Errorf("(-the registry's +described):\n%s", diff)
	}
}

// TestMetricsWithoutTheStore: metrics that do not come from the store are served nevertheless.
func TestMetricsWithoutTheStore(t *testing.T) {
	t.Parallel()
	st, err := store.Open(t.Context(), storetest.Ready(t), store.Options{Key: storetest.Key()})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := collecting(t, st)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	m.drift.Called(1, 0)
	server := httptest.NewServer(m.handler())
	t.Cleanup(server.Close)
	if diff := cmp.Diff(map[string]float64{"piped_drift_api_calls_total{call=get}": 1}, scrape(t, server.URL)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
