package drift_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
	"github.com/c785c783/piped/piped/store"
)

// TestWhatWakes: everything that may make a difference has the application judged.
func TestWhatWakes(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.run()
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.await("web", "SYNCED") // the end of a deployment

	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	l.detector.Wake("web") // an object that changes
	l.await("web", "OUT_OF_SYNC 1 difference: 1 changed")

	l.pass(time.Minute)
	l.deploy("web", "d2", "c2", deploy.Success, object("a", nil), object("b", nil))
	l.await("web", "SYNCED")

	l.mu.Lock()
	l.git = fakeGit{commits: []string{"c3"}, differs: true}
	l.mu.Unlock()
	l.evaluate("c3") // a commit that is not deployed
	l.await("web", "OUT_OF_SYNC 1 commit not deployed")

	if err := l.store.SetDisabled(t.Context(), "web", true); err != nil {
		t.Fatal(err)
	}
	l.await("web", "UNKNOWN The application is disabled")
	if err := l.store.SetDisabled(t.Context(), "web", false); err != nil {
		t.Fatal(err)
	}
	l.await("web", "OUT_OF_SYNC 1 commit not deployed")

	// A configuration that was invalid and is valid again.
	for _, s := range []deploy.SyncState{{Status: deploy.SyncInvalidConfig}, {Status: deploy.SyncUnknown, ShortReason: "The configuration is valid again"}} {
		if _, err := l.store.SetSyncState(t.Context(), "web", s); err != nil {
			t.Fatal(err)
		}
	}
	l.await("web", "OUT_OF_SYNC 1 commit not deployed")

	l.app("other") // one that was not there
	l.deploy("other", "o1", "c1", deploy.Success, object("o", nil))
	l.await("other", "SYNCED")

	l.cluster().write("a", taken) // what may concern any
	l.cluster().differ("a", greeting)
	l.detector.Wake("")
	l.await("web", "OUT_OF_SYNC 1 difference: 1 changed; 1 commit not deployed")

	if err := l.store.DeleteApplication(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Minute); !slices.Contains(l.periods(), "period-3 ABANDONED"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("periods of a deleted application: %v", l.periods())
		}
	}
}

// TestNothingIsToldWhileItDeploys: what a deployment does is no drift.
func TestNothingIsToldWhileItDeploys(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.run()
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.await("web", "SYNCED")
	l.begin("web", "d2", "c2")
	l.cluster().takeCompared()
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	for range 20 {
		l.detector.Wake("web")
		if r := l.judge("web"); r.Status != deploy.SyncDeploying || r.Incomplete == "" || len(r.Objects) > 0 {
			t.Fatalf("told while it deploys: %+v", r)
		}
	}
	l.wantState("web", "SYNCED")
	if compared := l.cluster().takeCompared(); len(compared) > 0 {
		t.Errorf("compared while it deploys: %v", compared)
	}
	l.end("web", "d2", deploy.Failure) // which left it so
	l.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	l.wantPeriods("period-1 ")
}

// TestOverRestarts: drift that is there after a restart is the same period, without
// another event; drift that has gone ends.
func TestOverRestarts(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	stop := l.run()
	l.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	stop()
	for range 2 {
		l.pass(time.Minute)
		l.detector = l.newDetector()
		stop = l.run()
		if r := l.judge("web"); r.ID != "period-1" || !r.BeganAt.Equal(begin) {
			t.Errorf("after a restart: %+v", r)
		}
		stop()
	}
	l.cluster().differ("a", nil)
	l.pass(time.Minute)
	l.detector = l.newDetector()
	l.run()
	l.await("web", "SYNCED")
	l.wantPeriods("period-1 REVERTED")
	events, err := l.store.Events(t.Context(), 0, 0)
	n := 0
	for _, e := range events {
		if e.Type == deploy.EventOutOfSync || e.Type == deploy.EventSynced {
			n++
		}
	}
	if n != 2 || err != nil {
		t.Errorf("%d events tell of one period, %v", n, err)
	}
}

// TestNotDeployedYet: an application that no deployment of has succeeded is UNKNOWN,
// and says so once it is not likely to be deployed any moment.
func TestNotDeployedYet(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.judge("web")
	l.wantState("web", "UNKNOWN")
	l.pass(time.Minute)
	l.judge("web")
	l.wantState("web", "UNKNOWN Not deployed yet")
	l.deploy("web", "d1", "c1", deploy.Failure)
	l.pass(time.Minute)
	l.judge("web")
	l.wantState("web", "UNKNOWN Not deployed yet")
	_, err := l.detector.Report(t.Context(), "nobody", false)
	if !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("of nobody: %v", err)
	}
}

// TestSweep: an object whose time has come is compared, although nothing was heard of
// it.
func TestSweep(t *testing.T) {
	l := newLab(t)
	l.app("web")
	var objects []string
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil), object("b", nil))
	l.judge("web")
	for i := range 12 {
		from := begin.Add(time.Duration(i) * 30 * time.Minute)
		l.detector.Sweep(from, from.Add(30*time.Minute))
		l.judge("web")
		objects = append(objects, l.cluster().takeCompared()...)
	}
	slices.Sort(objects)
	if diff := cmp.Diff([]string{"a!", "b!"}, objects); diff != "" {
		t.Errorf("compared in 6 h (-want +got):\n%s", diff)
	}
}

// TestNothingIsWrittenInVain: judging again what is as it was writes nothing.
func TestNothingIsWrittenInVain(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	l.run()
	l.await("web", "OUT_OF_SYNC 1 difference: 1 changed")
	feed := l.store.Watch()
	defer feed.Close()
	l.cluster().takeCompared()
	for i := range 20 {
		l.cluster().live(fmt.Sprint("child", i), func(m *kubernetes.Member) { m.Owned = true })
		l.detector.Wake("web")
		time.Sleep(2 * time.Millisecond)
	}
	l.cluster().write("a", taken)
	l.detector.Wake("web")
	for end := time.Now().Add(3 * time.Minute); len(l.cluster().takeCompared()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an object that was written is not compared")
		}
	}
	if changes := feed.Take(); len(changes) > 0 {
		t.Errorf("written: %v", changes)
	}
	if all, _, err := l.store.ListDriftReports(t.Context(), store.DriftQuery{}); err != nil || len(all) != 1 {
		t.Errorf("reports: %v, %v", all, err)
	}
}
