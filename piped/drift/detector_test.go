package drift_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
	"github.com/c785c783/piped/piped/store"
)

// TestWhatWakes: every kind of change leads to an evaluation.
func TestWhatWakes(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.run()
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.await("web", "SYNCED") // the end of a deployment

	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	e.detector.Wake("web") // a changed object
	e.await("web", "OUT_OF_SYNC 1 difference: 1 changed")

	e.pass(time.Minute)
	e.deploy("web", "d2", "c2", deploy.Success, object("a", nil), object("b", nil))
	e.await("web", "SYNCED")

	e.mu.Lock()
	e.git = fakeGit{commits: []string{"c3"}, differs: true}
	e.mu.Unlock()
	e.evaluate("c3") // an undeployed commit
	e.await("web", "OUT_OF_SYNC 1 commit not deployed")

	if err := e.store.SetDisabled(t.Context(), "web", true); err != nil {
		t.Fatal(err)
	}
	e.await("web", "UNKNOWN The application is disabled")
	if err := e.store.SetDisabled(t.Context(), "web", false); err != nil {
		t.Fatal(err)
	}
	e.await("web", "OUT_OF_SYNC 1 commit not deployed")

	// A configuration that was invalid and is valid again.
	for _, s := range []deploy.SyncState{{Status: deploy.SyncInvalidConfig}, {Status: deploy.SyncUnknown, ShortReason: "The configuration is valid again"}} {
		if _, err := e.store.SetSyncState(t.Context(), "web", s); err != nil {
			t.Fatal(err)
		}
	}
	e.await("web", "OUT_OF_SYNC 1 commit not deployed")

	e.app("other") // a new application
	e.deploy("other", "o1", "c1", deploy.Success, object("o", nil))
	e.await("other", "SYNCED")

	e.cluster().write("a", taken) // may affect any application
	e.cluster().differ("a", greeting)
	e.detector.Wake("")
	e.await("web", "OUT_OF_SYNC 1 difference: 1 changed; 1 commit not deployed")

	if err := e.store.DeleteApplication(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Minute); !slices.Contains(e.periods(), "period-3 ABANDONED"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("periods of a deleted application: %v", e.periods())
		}
	}
}

// TestNothingIsReportedDuringADeployment: changes by a deployment are no drift.
func TestNothingIsReportedDuringADeployment(t *testing.T) {
	e := newEnv(t)
	rights := ownershiptest.New("web")
	e.replica(rights)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.await("web", "SYNCED")
	rights.HandOver("web") // evaluations that the first deployment has requested may still be queued
	e.begin("web", "d2", "c2")
	e.report("web") // reads that the second one runs
	e.cluster().takeCompared()
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	rights.Grant("web")
	for range 20 {
		e.detector.Wake("web")
		if r := e.report("web"); r.Status != deploy.SyncDeploying || r.Incomplete == "" || len(r.Objects) > 0 {
			t.Fatalf("reported during a deployment: %+v", r)
		}
	}
	e.wantState("web", "SYNCED")
	if compared := e.cluster().takeCompared(); len(compared) > 0 {
		t.Errorf("compared while it deploys: %v", compared)
	}
	e.end("web", "d2", deploy.Failure) // which left the change
	e.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	e.wantPeriods("period-1 ")
}

// TestOverRestarts: drift that outlasts a restart is the same period, without a second
// event; drift that has gone ends.
func TestOverRestarts(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	stop := e.run()
	e.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	stop()
	for range 2 {
		e.pass(time.Minute)
		e.detector = e.newDetector()
		stop = e.run()
		if r := e.report("web"); r.ID != "period-1" || !r.BeganAt.Equal(begin) {
			t.Errorf("after a restart: %+v", r)
		}
		stop()
	}
	e.cluster().differ("a", nil)
	e.pass(time.Minute)
	e.detector = e.newDetector()
	e.run()
	e.await("web", "SYNCED")
	e.wantPeriods("period-1 REVERTED")
	events, err := e.store.Events(t.Context(), 0, 0)
	n := 0
	for _, e := range events {
		if e.Type == deploy.EventOutOfSync || e.Type == deploy.EventSynced {
			n++
		}
	}
	if n != 2 || err != nil {
		t.Errorf("%d events for one period, %v", n, err)
	}
}

// TestNotDeployedYet: an application without a successful deployment is UNKNOWN, with a
// reason once its first deployment is not imminent.
func TestNotDeployedYet(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.report("web")
	e.wantState("web", "UNKNOWN")
	e.pass(time.Minute)
	e.report("web")
	e.wantState("web", "UNKNOWN Not deployed yet")
	e.deploy("web", "d1", "c1", deploy.Failure)
	e.pass(time.Minute)
	e.report("web")
	e.wantState("web", "UNKNOWN Not deployed yet")
	_, err := e.detector.Report(t.Context(), "unknown", false)
	if !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("unknown application: %v", err)
	}
}

// TestSweep: a due object is compared even without a change.
func TestSweep(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	var objects []string
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil), object("b", nil))
	e.report("web")
	for i := range 12 {
		from := begin.Add(time.Duration(i) * 30 * time.Minute)
		e.detector.Sweep(from, from.Add(30*time.Minute))
		e.report("web")
		objects = append(objects, e.cluster().takeCompared()...)
	}
	slices.Sort(objects)
	if diff := cmp.Diff([]string{"a!", "b!"}, objects); diff != "" {
		t.Errorf("compared in 6 h (-want +got):\n%s", diff)
	}
}

// TestUnchangedWritesNothing: the evaluation of unchanged state writes nothing.
func TestUnchangedWritesNothing(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	e.run()
	e.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	e.report("web") // comes after the evaluation that stored it, and what that says to watches
	feed := e.store.Watch()
	defer feed.Close()
	e.cluster().takeCompared()
	for i := range 20 {
		e.cluster().live(fmt.Sprint("child", i), func(m *live.Member) { m.Owned = true })
		e.detector.Wake("web")
		time.Sleep(2 * time.Millisecond)
	}
	e.cluster().write("a", taken)
	e.detector.Wake("web")
	for end := time.Now().Add(10 * time.Minute); len(e.cluster().takeCompared()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an object that was written is not compared")
		}
	}
	if changes := feed.Take(); len(changes) > 0 {
		t.Errorf("written: %v", changes)
	}
	if all, _, err := e.store.ListDriftReports(t.Context(), store.DriftQuery{}); err != nil || len(all) != 1 {
		t.Errorf("reports: %v, %v", all, err)
	}
}
