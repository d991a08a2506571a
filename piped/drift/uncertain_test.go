package drift_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestAReportThatMayBeStored: when it cannot be told whether a report was stored, as when
// the connection breaks while it is, the period that is found stored goes on.
func TestAReportThatMayBeStored(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.judge("web")
	app, err := l.store.Application(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	stored := deploy.DriftReport{ID: "stored", ApplicationID: "web", Status: deploy.OutOfSync, CheckedAt: begin, BeganAt: begin}
	if _, err := l.store.ReportDrift(t.Context(), app, deploy.SyncState{Status: deploy.OutOfSync}, &stored); err != nil {
		t.Fatal(err)
	}
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	if r, err := l.detector.Report(t.Context(), "web", false); err == nil {
		t.Errorf("a second period is stored beside the first one: %+v", r)
	}
	if r := l.judge("web"); r.ID != "stored" {
		t.Errorf("the report is %+v", r)
	}
	l.wantPeriods("stored ")
}

// TestTheSameOutageIsStoredOnce: what cannot be judged is told in other words each time,
// which is nothing new of an application that differs anyway.
func TestTheSameOutageIsStoredOnce(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil), object("b", nil))
	l.run()
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	l.detector.Wake("web")
	l.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	l.mu.Lock()
	l.git = fakeGit{err: errors.New("connection reset: port 0")}
	l.mu.Unlock()
	l.evaluate("c2")
	var first deploy.Application
	for i := range 5 {
		l.pass(11 * time.Second)
		l.detector.Wake("web")
		l.mu.Lock()
		asked := l.git.asked
		l.git.err = fmt.Errorf("connection reset: port %d", i)
		l.mu.Unlock()
		for end := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			l.mu.Lock()
			again := l.git.asked > asked
			l.mu.Unlock()
			if again {
				break
			}
			if time.Now().After(end) {
				t.Fatal("Git is not asked again")
			}
		}
		app, err := l.store.Application(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			first = app
		}
		if i > 1 && app.Sync.Reason != first.Sync.Reason {
			t.Errorf("the reason is now %q, was %q", app.Sync.Reason, first.Sync.Reason)
		}
	}
}

// TestDeletedApplicationsAreForgotten: nothing is remembered of an application that was
// deleted, until it is added again.
func TestDeletedApplicationsAreForgotten(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.run()
	l.await("web", "SYNCED")
	remembered := func(want bool) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); l.detector.Remembers("web") != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it is remembered: %t", !want)
			}
		}
	}
	remembered(true)
	if err := l.store.DeleteApplication(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	remembered(false)
}
