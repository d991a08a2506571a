package drift_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
)

// TestPeriod: what differs is told from its begin to its end, once each.
func TestPeriod(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c0ffee1234", deploy.Success, object("a", nil), object("b", nil))
	l.pass(time.Minute)
	r := l.judge("web")
	if l.wantState("web", "SYNCED"); r.Status != deploy.Synced || r.Compared != 2 || r.Commit != "c0ffee1234" || len(l.cluster().takeCompared()) > 0 {
		t.Errorf("as it was deployed: %+v", r)
	}

	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	first := l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")
	if diff := cmp.Diff([]string{"a"}, l.cluster().takeCompared()); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
	app, err := l.store.Application(t.Context(), "web")
	want := "Live objects in cluster \"c\" differ from Git at commit c0ffee1:\n~ ConfigMap n/a\n    data.greeting: \"hello\" in Git, \"bye\" live, by somebody"
	if err != nil || app.Sync.Reason != want {
		t.Errorf("the reason is\n%s\nwant\n%s", app.Sync.Reason, want)
	}

	// More of it is the same period, and each object has its own begin.
	l.pass(time.Minute)
	l.cluster().write("b", taken)
	l.cluster().differ("b", greeting)
	second := l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 2 differences: 2 changed")
	if second.ID != first.ID || !second.BeganAt.Equal(first.BeganAt) || !second.Objects[0].BeganAt.Equal(first.BeganAt) || !second.Objects[1].BeganAt.Equal(l.now()) {
		t.Errorf("first\n%+v\nthen\n%+v", first, second)
	}

	for _, name := range []string{"a", "b"} {
		l.cluster().write(name, marked)
		l.cluster().differ(name, nil)
	}
	l.pass(time.Minute)
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.wantPeriods("period-1 REVERTED")

	events, err := l.store.Events(t.Context(), 0, 0)
	var told []string
	for _, e := range events {
		var payload struct{ Application, Reason string }
		if strings.HasPrefix(string(e.Type), "APPLICATION") {
			if err := json.Unmarshal(e.Payload, &payload); err != nil {
				t.Error(err)
			}
			told = append(told, e.Key+": "+payload.Application+": "+payload.Reason)
		}
	}
	if diff := cmp.Diff([]string{
		"period-1/APPLICATION_OUT_OF_SYNC: web: 1 difference: 1 changed",
		"period-1/APPLICATION_SYNCED: web: What was changed in the cluster was changed back",
	}, told); diff != "" || err != nil {
		t.Errorf("told (-want +got), %v:\n%s", err, diff)
	}
}

func (l *lab) wantPeriods(want ...string) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.periods()); diff != "" {
		l.t.Errorf("periods (-want +got):\n%s", diff)
	}
}

// TestEnds: how a period ends is told.
func TestEnds(t *testing.T) {
	drifted := func(l *lab) {
		l.cluster().write("a", taken)
		l.cluster().differ("a", greeting)
	}
	for name, c := range map[string]struct {
		begin, end func(*lab)
		want       string
	}{
		"a deployment": {drifted, func(l *lab) { l.deploy("web", "d2", "c2", deploy.Success, object("a", nil)) }, "DEPLOYED"},
		"changed back after a deployment that did not help": {drifted, func(l *lab) {
			l.deploy("web", "d2", "c1", deploy.Success, object("a", nil))
			drifted(l)
			l.judge("web")
			l.wantPeriods("period-1 ")
			l.pass(time.Minute)
			l.cluster().write("a", marked)
			l.cluster().differ("a", nil)
		}, "REVERTED"},
		"changed back": {drifted, func(l *lab) {
			l.cluster().write("a", marked)
			l.cluster().differ("a", nil)
		}, "REVERTED"},
		"not to be compared any more": {drifted, func(l *lab) {
			l.cluster().write("a", func(m *kubernetes.Member) { m.Ignored = true })
		}, "ACCEPTED"},
		"a commit that is taken back": {
			func(l *lab) { l.git = fakeGit{commits: []string{"c2"}, differs: true}; l.evaluate("c2") },
			func(l *lab) { l.git = fakeGit{}; l.evaluate("c3") }, "ACCEPTED",
		},
		"disabled": {drifted, func(l *lab) {
			if err := l.store.SetDisabled(l.t.Context(), "web", true); err != nil {
				l.t.Fatal(err)
			}
		}, "ABANDONED"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.app("web")
			l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
			l.pass(time.Minute)
			c.begin(l)
			l.judge("web")
			l.wantPeriods("period-1 ")
			l.pass(time.Minute)
			c.end(l)
			l.judge("web")
			l.wantPeriods("period-1 " + c.want)
		})
	}
}

// evaluate moves the application's evaluated commit.
func (l *lab) evaluate(commit string, apps ...string) {
	l.t.Helper()
	for _, app := range append(apps, "web") {
		a, err := l.store.Application(l.t.Context(), app)
		if err == nil {
			err = l.store.SetEvaluatedCommit(l.t.Context(), commit, map[string]string{app: a.EvaluatedCommit})
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestNoDrift: what looks like a difference and is none.
func TestNoDrift(t *testing.T) {
	job := object("job", nil)
	job.SetAPIVersion("batch/v1")
	job.SetKind("Job")
	job.Object["spec"] = map[string]any{"ttlSecondsAfterFinished": int64(5)}
	for name, change := range map[string]func(*lab){
		"a Job that has expired": func(l *lab) { delete(l.cluster().members, manifest.Ref(job.Unstructured).Key()) },
		"ignored in Git": func(l *lab) {
			l.cluster().write("ignored", taken)
			l.cluster().differ("ignored", greeting)
		},
		"ignored as it is live": func(l *lab) {
			l.cluster().write("a", func(m *kubernetes.Member) { taken(m); m.Ignored = true })
			l.cluster().differ("a", greeting)
		},
		"a canary": func(l *lab) { l.cluster().live("canary", func(m *kubernetes.Member) { m.Variant = "canary" }) },
		"a variant whose label has another name": func(l *lab) {
			l.cluster().live("other", func(m *kubernetes.Member) { m.Variant = "" })
			if err := l.store.PutInventory(l.t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: "c", Variant: "canary", Object: ref("other")}); err != nil {
				l.t.Fatal(err)
			}
		},
		"what a controller made":  func(l *lab) { l.cluster().live("child", func(m *kubernetes.Member) { m.Owned = true }) },
		"what ran as a hook":      func(l *lab) { l.cluster().live("migrate", func(m *kubernetes.Member) { m.Hook = true }) },
		"what is being deleted":   func(l *lab) { l.cluster().live("late", func(m *kubernetes.Member) { m.Deleting = true }) },
		"what another agent has":  func(l *lab) { l.cluster().live("foreign", func(m *kubernetes.Member) { m.Piped = "other" }) },
		"what is to be left":      func(l *lab) { l.cluster().live("left", func(m *kubernetes.Member) { m.Ignored = true }) },
		"a write of equal values": func(l *lab) { l.cluster().write("a", marked) },
		"the same cluster by another provider": func(l *lab) {
			other := l.add("other")
			other.members[ref("a").Key()] = l.cluster().members[ref("a").Key()]
			if err := l.store.PutInventory(l.t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: "other", Variant: "primary", Object: ref("a"), UID: "uid-a"}); err != nil {
				l.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.app("web")
			l.deploy("web", "d1", "c1", deploy.Success, object("a", nil), object("ignored", map[string]string{manifest.AnnotationIgnoreDrift: "true"}), job)
			change(l)
			if r := l.judge("web"); r.Status != deploy.Synced || len(r.Objects) > 0 {
				t.Errorf("judged as %+v", r)
			}
			l.wantState("web", "SYNCED")
		})
	}
}

// live puts an object of the application into the cluster.
func (c *fakeCluster) live(name string, change func(*kubernetes.Member)) {
	c.lab.mu.Lock()
	defer c.lab.mu.Unlock()
	m := kubernetes.Member{Object: ref(name), UID: "uid-" + name, OwnedHash: "hash", Mark: "m", ResourceVersion: "1", Application: "web", Piped: "me", Variant: "primary"}
	change(&m)
	c.members[ref(name).Key()] = m
}

// TestExtra: what Git does not have any more is told, and nothing is healed for it.
func TestExtra(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.cluster().live("left", func(*kubernetes.Member) {})
	for range 2 { // it is read once
		if r := l.judge("web"); len(r.Objects) != 1 || r.Objects[0].Kind != deploy.DriftExtra {
			t.Errorf("told of %+v", r)
		}
		l.wantState("web", "OUT_OF_SYNC 1 difference: 1 extra")
	}
	leftOver := func() bool {
		app, err := l.store.Application(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		return app.Sync.LeftOver
	}
	if !leftOver() {
		t.Error("what is left is to be healed")
	}
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	l.judge("web")
	if l.wantState("web", "OUT_OF_SYNC 2 differences: 1 changed, 1 extra"); leftOver() {
		t.Error("what was changed is not to be healed")
	}
}

// TestWrittenAndRight: an object that was written and is as it was applied costs one
// comparison, also over a restart.
func TestWrittenAndRight(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.cluster().settled = true
	l.cluster().write("a", marked)
	stop := l.run()
	l.await("web", "SYNCED")
	l.judge("web")
	stop()
	if diff := cmp.Diff([]string{"a"}, l.cluster().takeCompared()); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
	l.detector = l.newDetector()
	l.cluster().write("a", func(*kubernetes.Member) {}) // another version of no interest
	if r := l.judge("web"); r.Status != deploy.Synced || len(l.cluster().takeCompared()) > 0 {
		t.Errorf("after a restart it was compared again: %+v", r)
	}
}

// TestBlind: what cannot be judged makes the application UNKNOWN after a while, keeps
// its period, and no other object from being judged.
func TestBlind(t *testing.T) {
	l := newLab(t)
	secret := object("s", nil)
	secret.SetKind("Secret")
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil), secret)
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.cluster().blind["Secret"], l.cluster().since = errors.New("no right to watch it"), begin
	l.judge("web")
	l.wantState("web", "SYNCED") // for a while
	l.pass(11 * time.Second)
	r := l.judge("web")
	l.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	if want := `1 object in cluster "c" since 2026-03-01T12:00:00Z: no right to watch it`; r.Incomplete != want || r.Compared != 1 {
		t.Errorf("blind: %+v, want %q", r, want)
	}
	l.cluster().write("a", taken)
	l.cluster().differ("a", greeting)
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")

	// Then the rest cannot be judged either: the period lasts.
	l.cluster().blind["ConfigMap"] = errors.New("connection refused")
	l.judge("web")
	l.pass(11 * time.Second)
	l.judge("web")
	l.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	l.wantPeriods("period-1 ")
	clear(l.cluster().blind)
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")
	l.wantPeriods("period-1 ")

	// A comparison that is not answered is the same.
	l.cluster().write("a", taken)
	l.cluster().refuses = errors.New("connection reset")
	l.judge("web")
	l.pass(11 * time.Second)
	l.judge("web")
	l.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	l.cluster().refuses = nil
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")
	l.wantPeriods("period-1 ")

	// What differed is changed back while something else cannot be judged.
	l.cluster().blind["Secret"] = errors.New("connection refused")
	l.cluster().write("a", marked)
	l.cluster().differ("a", nil)
	l.judge("web")
	l.pass(11 * time.Second)
	l.judge("web")
	l.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	l.wantPeriods("period-1 ")
	clear(l.cluster().blind)
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.wantPeriods("period-1 REVERTED")
}

// TestGitSide: commits that are not deployed are drift, unless one waits to be.
func TestGitSide(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.pass(time.Minute)
	l.git = fakeGit{commits: []string{"c3aaaaaaaaa", "c2bbbbbbbbb"}, differs: true}
	l.evaluate("c3aaaaaaaaa")
	for range 3 {
		l.judge("web")
	}
	l.wantState("web", "OUT_OF_SYNC 2 commits not deployed")
	if l.git.asked != 1 {
		t.Errorf("Git was asked %d times for the same pair", l.git.asked)
	}
	l.create("web", "d2", "c3aaaaaaaaa")
	l.judge("web") // it waits to be planned
	l.wantState("web", "OUT_OF_SYNC 2 commits not deployed")
	l.start("d2")
	if r := l.judge("web"); r.Status != deploy.SyncDeploying || r.ID != "period-1" {
		t.Errorf("while one deploys: %+v", r)
	}
	l.end("web", "d2", deploy.Failure)
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 2 commits not deployed")
	l.pass(time.Minute)
	l.deploy("web", "d3", "c3aaaaaaaaa", deploy.Success, object("a", nil))
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.wantPeriods("period-1 DEPLOYED")
}

// TestWaitsToBeDeployed: a commit that waits to be deployed is no drift, unless it is held
// back.
func TestWaitsToBeDeployed(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.git = fakeGit{commits: []string{"c2"}, differs: true}
	l.create("web", "d2", "c2")
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.pass(11 * time.Second)
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
	l.start("d2")
	l.pass(time.Second)
	l.end("web", "d2", deploy.Success, object("a", nil))
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.wantPeriods("period-1 DEPLOYED")
}

// TestLeftByAFailure: what a deployment that failed has applied is not what is
// expected, although nobody has changed it since.
func TestLeftByAFailure(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.pass(time.Minute)
	l.begin("web", "d2", "c2")
	apply := func() {
		l.cluster().write("a", marked)
		m := l.cluster().members[ref("a").Key()]
		if err := l.store.PutInventory(t.Context(), deploy.InventoryItem{
			ApplicationID: "web", Cluster: "c", Variant: "primary", Object: ref("a"), UID: "uid-a", OwnedHash: m.OwnedHash, Mark: m.Mark, DeploymentID: "d2",
		}); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	l.cluster().differ("a", greeting)
	l.end("web", "d2", deploy.Failure)
	l.judge("web")
	l.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")

	// Put back by one that failed, too, it is compared once and known to be right.
	l.begin("web", "d3", "c3")
	apply()
	l.cluster().differ("a", nil)
	l.cluster().settled = true
	l.end("web", "d3", deploy.Failure)
	l.cluster().takeCompared()
	for range 3 {
		l.judge("web")
	}
	l.wantState("web", "SYNCED")
	if diff := cmp.Diff([]string{"a"}, l.cluster().takeCompared()); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
}

// TestMoved: what is left in the cluster of an earlier provider is told with that.
func TestMoved(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	old := l.add("old")
	old.live("b", func(*kubernetes.Member) {})
	old.followed["ConfigMap"] = true
	for _, cluster := range []string{"old", "removed"} { // the latter is not configured any more
		if err := l.store.PutInventory(t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: cluster, Variant: "primary", Object: ref("b"), UID: "uid-b"}); err != nil {
			t.Fatal(err)
		}
	}
	r := l.judge("web")
	if len(r.Objects) != 1 || r.Objects[0].Cluster != "old" || r.Objects[0].Kind != deploy.DriftExtra || r.Incomplete != "" {
		t.Errorf("told of %+v", r)
	}
	app, err := l.store.Application(t.Context(), "web")
	if want := `+ ConfigMap n/b in cluster "old" is not in Git`; err != nil || !strings.Contains(app.Sync.Reason, want) {
		t.Errorf("the reason is %q, want %q", app.Sync.Reason, want)
	}
}

// TestAnUnreadableSet: where it cannot be told what a deployment has left, nothing is
// called as in Git.
func TestAnUnreadableSet(t *testing.T) {
	l := newLab(t)
	l.app("web")
	l.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	l.judge("web")
	l.wantState("web", "SYNCED")
	l.deploy("web", "d2", "c2", deploy.Success, object("a", nil))
	l.unreadable = errors.New("it is not JSON")
	l.judge("web")
	l.pass(11 * time.Second)
	r := l.judge("web")
	l.wantState("web", `UNKNOWN Cluster "c" cannot be compared`)
	if want := "what deployment d2 has left cannot be told: it is not JSON; sync the application"; !strings.Contains(r.Incomplete, want) {
		t.Errorf("the reason is %q, want %q", r.Incomplete, want)
	}
}
