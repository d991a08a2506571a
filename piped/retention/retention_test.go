package retention

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heap is a Store with a number of batches of everything; it records its calls.
type heap struct {
	began                       time.Time
	logs, deployments, commands int
	sessions, records, pulls    int
	rollouts                    int
	asked                       []string
	fails                       error
}

func (h *heap) ask(format string, args ...any) {
	h.asked = append(h.asked, fmt.Sprintf("%s "+format, append([]any{time.Since(h.began)}, args...)...))
}

func (h *heap) RemoveStageLogs(_ context.Context, before time.Time, instead string, limit int) (int, bool, error) {
	h.ask("logs of %s ago: %s", time.Since(before), instead)
	if h.logs == 0 {
		return 0, false, h.fails
	}
	h.logs--
	return limit, h.logs > 0, nil
}

func (h *heap) RemoveDeployments(_ context.Context, q store.OldDeployments) (int, string, error) {
	h.ask("deployments of %s ago but %d, behind %q", time.Since(q.Before), q.Keep, q.Cursor)
	if h.deployments == 0 {
		return 0, "", nil
	}
	if h.deployments--; h.deployments == 0 {
		return q.Limit, "", nil
	}
	return q.Limit, fmt.Sprintf("%d more", h.deployments), nil
}

func (h *heap) RemoveForeignRollouts(_ context.Context, before time.Time, limit int) (int, error) {
	h.ask("rollouts of %s ago", time.Since(before))
	if h.rollouts == 0 {
		return 5, nil
	}
	h.rollouts--
	return limit, nil
}

func (h *heap) ForgetClusters(_ context.Context, except []string) error {
	h.ask("clusters but %s", strings.Join(except, ", "))
	return nil
}

func (h *heap) RemoveCommands(_ context.Context, before time.Time, limit int) (int, error) {
	h.ask("commands of %s ago", time.Since(before))
	if h.commands == 0 {
		return 3, nil
	}
	h.commands--
	return limit, nil
}

func (h *heap) RemoveSessions(_ context.Context, before time.Time, limit int) (int, error) {
	h.ask("sessions of %s ago", time.Since(before))
	if h.sessions == 0 {
		return 2, nil
	}
	h.sessions--
	return limit, nil
}

func (h *heap) RemoveAudit(_ context.Context, before time.Time, limit int) (int, error) {
	h.ask("audit records of %s ago", time.Since(before))
	if h.records == 0 {
		return 1, nil
	}
	h.records--
	return limit, nil
}

func (h *heap) RemovePullRequestCommits(_ context.Context, before time.Time, limit int) (int, error) {
	h.ask("pull requests of %s ago", time.Since(before))
	if h.pulls == 0 {
		return 4, nil
	}
	h.pulls--
	return limit, nil
}

// counted implements Metrics.
type counted int

func (c *counted) Removed(deployments int) { *c += counted(deployments) }

// run runs the component for a time and returns the metrics and the log.
func run(t *testing.T, st Store, settings func() config.Retention, lasting time.Duration) (removed counted, logged string) {
	t.Helper()
	var log bytes.Buffer
	r := New(Config{Store: st, Settings: settings, Clusters: func() []string { return []string{"one", "two"} }, Metrics: &removed, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))})
	ctx, stop := context.WithTimeout(t.Context(), lasting)
	defer stop()
	if err := r.Run(ctx); err != nil {
		t.Errorf("it ended with %v", err)
	}
	return removed, log.String()
}

func settings() config.Retention {
	return config.Retention{Deployments: 8760 * time.Hour, KeepPerApplication: 20, StageLogs: 2160 * time.Hour, Audit: 9600 * time.Hour}
}

// TestOrderAndPauses: logs, deployments, rollouts, commands, sessions, audit records and records of pull
// requests are deleted in this order, with a pause between batches, soon after the start and then
// every hour.
func TestOrderAndPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heap{began: time.Now(), logs: 2, deployments: 3, commands: 1, sessions: 1, records: 1, pulls: 1, rollouts: 1}
		removed, log := run(t, h, settings, 90*time.Minute)
		const instead = "The log was removed: logs are retained for 90 days after the end of their deployment (retention.stageLogs)"
		want := []string{
			"5m0s logs of 2160h0m0s ago: " + instead,
			"5m0.2s logs of 2160h0m0.2s ago: " + instead,
			"5m0.2s deployments of 8760h0m0.2s ago but 20, behind \"\"",
			"5m0.4s deployments of 8760h0m0.4s ago but 20, behind \"2 more\"",
			"5m0.6s deployments of 8760h0m0.6s ago but 20, behind \"1 more\"",
			"5m0.6s clusters but one, two",
			"5m0.6s rollouts of 8760h0m0.6s ago",
			"5m0.8s rollouts of 8760h0m0.8s ago",
			"5m0.8s commands of 8760h0m0.8s ago",
			"5m1s commands of 8760h0m1s ago",
			"5m1s sessions of 720h0m1s ago",
			"5m1.2s sessions of 720h0m1.2s ago",
			"5m1.2s audit records of 9600h0m1.2s ago",
			"5m1.4s audit records of 9600h0m1.4s ago",
			"5m1.4s pull requests of 8760h0m1.4s ago",
			"5m1.6s pull requests of 8760h0m1.6s ago",
			"1h5m1.6s logs of 2160h0m0s ago: " + instead,
			"1h5m1.6s deployments of 8760h0m0s ago but 20, behind \"\"",
			"1h5m1.6s clusters but one, two",
			"1h5m1.6s rollouts of 8760h0m0s ago",
			"1h5m1.6s commands of 8760h0m0s ago",
			"1h5m1.6s sessions of 720h0m0s ago",
			"1h5m1.6s audit records of 9600h0m0s ago",
			"1h5m1.6s pull requests of 8760h0m0s ago",
		}
		if diff := cmp.Diff(want, h.asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if removed != 150 {
			t.Errorf("%d deployments were counted", removed)
		}
		lines := `level=INFO msg="removed old data" deployments=150 rollouts=505 commands=503 lines=4000 sessions=502 auditRecords=501 pullRequests=504 took=1.6s
level=INFO msg="removed old data" deployments=0 rollouts=5 commands=3 lines=0 sessions=2 auditRecords=1 pullRequests=4 took=0s
`
		if diff := cmp.Diff(lines, log); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestSettingsOfTheMoment: each run uses the current settings.
func TestSettingsOfTheMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heap{began: time.Now()}
		_, log := run(t, h, func() config.Retention {
			s := settings()
			s.Disabled = time.Since(h.began) < time.Hour
			s.StageLogs = 36 * time.Hour
			return s
		}, 90*time.Minute)
		if len(h.asked) != 8 || !strings.HasPrefix(h.asked[0], "1h5m0s logs of 36h0m0s ago: The log was removed: logs are retained for 36h0m0s") {
			t.Errorf("asked: %q", h.asked)
		}
		if strings.Count(log, "\n") != 1 {
			t.Errorf("log: %s", log)
		}
	})
}

// TestChangedSettingsEndARun: a user who disables retention stops the current run.
func TestChangedSettingsEndARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heap{began: time.Now(), logs: 1, deployments: 1000, commands: 1}
		removed, log := run(t, h, func() config.Retention {
			s := settings()
			s.Disabled = h.deployments < 998
			return s
		}, 90*time.Minute)
		if h.deployments != 997 || h.commands != 1 || removed != 150 {
			t.Errorf("%d batches of deployments and %d of commands are left, %d deployments were counted", h.deployments, h.commands, removed)
		}
		if !strings.Contains(log, "deployments=150 rollouts=0 commands=0 lines=2000") {
			t.Errorf("log: %s", log)
		}
	})
}

// TestFailure: an error is logged, ends the run, and is retried in the next one.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heap{began: time.Now(), fails: errors.New("the disk is full")}
		_, log := run(t, h, settings, 90*time.Minute)
		if len(h.asked) != 2 || !strings.HasPrefix(h.asked[1], "1h5m0s logs") {
			t.Errorf("asked: %q", h.asked)
		}
		want := `level=WARN msg="cannot remove old data; retrying in an hour" error="the disk is full"` + "\n"
		if log != want+want {
			t.Errorf("log: %s", log)
		}
	})
}

// TestStopsBetweenBatches: the end of the context interrupts a pause.
func TestStopsBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heap{began: time.Now(), logs: 1000}
		_, log := run(t, h, settings, defaultFirst+time.Second+pause/2)
		if len(h.asked) != 6 || time.Since(h.began) != defaultFirst+time.Second+pause/2 {
			t.Errorf("asked %d times, ended after %s", len(h.asked), time.Since(h.began))
		}
		if strings.Count(log, "\n") != 1 || !strings.Contains(log, "lines=12000") {
			t.Errorf("log: %s", log)
		}
	})
}

// TestOnAStore deletes the data of a real store.
func TestOnAStore(t *testing.T) {
	ctx := t.Context()
	now := time.Now()
	st := storetest.New(t, func() time.Time { now = now.Add(time.Millisecond); return now })
	app := deploy.Application{ID: "web", Name: "web", Kind: deploy.KindKubernetes}
	if _, err := st.PutApplication(ctx, app); err != nil {
		t.Fatal(err)
	}
	const all = 130
	for i := range all {
		d := deploy.Deployment{ID: fmt.Sprintf("d-%03d", i), ApplicationID: app.ID, ApplicationName: app.Name, Status: deploy.Pending,
			Trigger: deploy.Trigger{Kind: deploy.OnCommand, At: now, Commit: deploy.Commit{Hash: "c0ffee"}}}
		if _, err := st.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
			t.Fatal(err)
		}
		if _, err := st.UpdateDeployment(ctx, d.ID, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", now) }); err != nil {
			t.Fatal(err)
		}
	}
	events, err := st.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	if err := st.RouteEvents(ctx, seqs); err != nil {
		t.Fatal(err)
	}
	var removed counted
	r := New(Config{Store: st, Settings: settings, Clusters: func() []string { return []string{"one", "two"} }, Metrics: &removed, Now: func() time.Time { return now.Add(8761 * time.Hour) }})
	if err := r.clean(ctx, nil); err != nil {
		t.Fatal(err)
	}
	left, _, err := st.ListDeployments(ctx, store.DeploymentQuery{})
	if err != nil || len(left) != 20 || removed != all-20 || left[0].ID != "d-129" || left[19].ID != "d-110" {
		t.Errorf("%d are left, %d were removed, %v", len(left), removed, err)
	}
}
