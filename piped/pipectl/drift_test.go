package pipectl_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/pipectl"
)

// TestDriftIsWatched: every change of an application's drift is a line, until Ctrl-C.
func TestDriftIsWatched(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	app := agent.Application("web", nil)
	ctx, interrupt := context.WithTimeout(t.Context(), 10*time.Minute)
	defer interrupt()
	stdout, out := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		defer out.Close()
		ended <- pipectl.Run(ctx, []string{
			"application", "drift", "--app-id=" + app.ID, "--watch", "--address=" + agent.Server.Addr(), "--insecure", "--api-key=" + agent.ReadOnly,
		}, strings.NewReader(""), out, &stderr)
	}()
	lines := bufio.NewScanner(stdout)
	expect := func(want string) {
		t.Helper()
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("got %q, want %q", lines.Text(), want)
		}
	}
	report := func(state deploy.SyncState, r *deploy.DriftReport) {
		t.Helper()
		if _, err := agent.Store.ReportDrift(t.Context(), app, state, r); err != nil {
			t.Fatal(err)
		}
	}
	expect("03:04:06  SYNCED")
	at := controltest.Epoch.Add(time.Hour)
	r := deploy.DriftReport{
		ID: "r1", ApplicationID: app.ID, Status: deploy.OutOfSync, Objects: []deploy.ObjectDrift{drifted()}, Undeployed: []string{"c1", "c2"}, CheckedAt: at, BeganAt: at,
	}
	report(deploy.SyncState{Status: deploy.OutOfSync, At: at}, &r)
	expect("04:04:05  OUT_OF_SYNC: 1 object, 2 commits not deployed")
	r.EndedAt, r.End = at.Add(time.Minute), deploy.DriftReverted
	report(deploy.SyncState{Status: deploy.Synced, At: r.EndedAt}, &r)
	expect("04:05:05  ENDED: the change in the cluster was reverted")
	report(deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "dev does not answer", At: at.Add(time.Hour)}, nil)
	expect("05:04:05  UNKNOWN: dev does not answer")
	interrupt()
	if code := <-ended; code != pipectl.ExitInterrupted {
		t.Errorf("exit code %d, want %d; stderr: %s", code, pipectl.ExitInterrupted, stderr.String())
	}
}
