package drift_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestAReportThatMayBeStored: if an error leaves open whether a report was stored, a
// stored one is continued.
func TestAReportThatMayBeStored(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.report("web")
	app, err := e.store.Application(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	stored := deploy.DriftReport{ID: "stored", ApplicationID: "web", Status: deploy.OutOfSync, CheckedAt: begin, BeganAt: begin}
	if _, err := e.store.ReportDrift(t.Context(), app, deploy.SyncState{Status: deploy.OutOfSync}, &stored); err != nil {
		t.Fatal(err)
	}
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	if r, err := e.detector.Report(t.Context(), "web", false); err == nil {
		t.Errorf("a second period is stored in addition to the first: %+v", r)
	}
	if r := e.report("web"); r.ID != "stored" {
		t.Errorf("the report is %+v", r)
	}
	e.wantPeriods("stored ")
}

// TestTheSameOutageIsStoredOnce: the changing error texts of an outage are not stored
// repeatedly while the application differs anyway.
func TestTheSameOutageIsStoredOnce(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil), object("b", nil))
	e.run()
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	e.detector.Wake("web")
	e.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	e.mu.Lock()
	e.git = fakeGit{err: errors.New("connection reset: port 0")}
	e.mu.Unlock()
	e.evaluate("c2")
	var first deploy.Application
	for i := range 5 {
		e.pass(11 * time.Second)
		e.detector.Wake("web")
		e.mu.Lock()
		asked := e.git.asked
		e.git.err = fmt.Errorf("connection reset: port %d", i)
		e.mu.Unlock()
		for end := time.Now().Add(10 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			e.mu.Lock()
			again := e.git.asked > asked
			e.mu.Unlock()
			if again {
				break
			}
			if time.Now().After(end) {
				t.Fatal("Git is not asked again")
			}
		}
		app, err := e.store.Application(t.Context(), "web")
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

// TestDeletedApplicationsAreForgotten: the state of a deleted application is dropped
// until the application is added again.
func TestDeletedApplicationsAreForgotten(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.run()
	e.await("web", "SYNCED")
	remembered := func(want bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Minute); e.detector.Remembers("web") != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it is remembered: %t", !want)
			}
		}
	}
	remembered(true)
	if err := e.store.DeleteApplication(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	remembered(false)
}
