package drift_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TestPeriod: the begin and the end of a period of drift are each reported once.
func TestPeriod(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c0ffee1234", deploy.Success, object("a", nil), object("b", nil))
	e.pass(time.Minute)
	r := e.report("web")
	if e.wantState("web", "SYNCED"); r.Status != deploy.Synced || r.Compared != 2 || r.Commit != "c0ffee1234" || len(e.cluster().takeCompared()) > 0 {
		t.Errorf("as it was deployed: %+v", r)
	}

	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	first := e.report("web")
	e.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")
	if diff := cmp.Diff([]string{"a"}, e.cluster().takeCompared()); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
	app, err := e.store.Application(t.Context(), "web")
	want := "Live objects in cluster \"c\" differ from Git at commit c0ffee1:\n~ ConfigMap n/a\n    data.greeting: \"hello\" in Git, \"bye\" live, by somebody"
	if err != nil || app.Sync.Reason != want {
		t.Errorf("the reason is\n%s\nwant\n%s", app.Sync.Reason, want)
	}

	// Further differences belong to the same period; each object has its own begin.
	e.pass(time.Minute)
	e.cluster().write("b", taken)
	e.cluster().differ("b", greeting)
	second := e.report("web")
	e.wantState("web", "OUT_OF_SYNC 2 differences: 2 changed")
	if second.ID != first.ID || !second.BeganAt.Equal(first.BeganAt) || !second.Objects[0].BeganAt.Equal(first.BeganAt) || !second.Objects[1].BeganAt.Equal(e.now()) {
		t.Errorf("first\n%+v\nthen\n%+v", first, second)
	}

	for _, name := range []string{"a", "b"} {
		e.cluster().write(name, marked)
		e.cluster().differ(name, nil)
	}
	e.pass(time.Minute)
	e.report("web")
	e.wantState("web", "SYNCED")
	e.wantPeriods("period-1 REVERTED")

	events, err := e.store.Events(t.Context(), 0, 0)
	var reported []string
	for _, e := range events {
		var payload struct{ Application, Reason string }
		if strings.HasPrefix(string(e.Type), "APPLICATION") {
			if err := json.Unmarshal(e.Payload, &payload); err != nil {
				t.Error(err)
			}
			reported = append(reported, e.Key+": "+payload.Application+": "+payload.Reason)
		}
	}
	if diff := cmp.Diff([]string{
		"period-1/APPLICATION_OUT_OF_SYNC: web: 1 difference: 1 changed",
		"period-1/APPLICATION_SYNCED: web: The change in the cluster was reverted",
	}, reported); diff != "" || err != nil {
		t.Errorf("events (-want +got), %v:\n%s", err, diff)
	}
}

func (e *env) wantPeriods(want ...string) {
	e.t.Helper()
	if diff := cmp.Diff(want, e.periods()); diff != "" {
		e.t.Errorf("periods (-want +got):\n%s", diff)
	}
}

// TestEnds: the reported end of a period.
func TestEnds(t *testing.T) {
	drifted := func(e *env) {
		e.cluster().write("a", taken)
		e.cluster().differ("a", greeting)
	}
	for name, c := range map[string]struct {
		begin, end func(*env)
		want       string
	}{
		"a deployment": {drifted, func(e *env) { e.deploy("web", "d2", "c2", deploy.Success, object("a", nil)) }, "DEPLOYED"},
		"changed back after a deployment that did not help": {drifted, func(e *env) {
			e.deploy("web", "d2", "c1", deploy.Success, object("a", nil))
			drifted(e)
			e.report("web")
			e.wantPeriods("period-1 ")
			e.pass(time.Minute)
			e.cluster().write("a", marked)
			e.cluster().differ("a", nil)
		}, "REVERTED"},
		"changed back": {drifted, func(e *env) {
			e.cluster().write("a", marked)
			e.cluster().differ("a", nil)
		}, "REVERTED"},
		"not to be compared any more": {drifted, func(e *env) {
			e.cluster().write("a", func(m *live.Member) { m.Ignored = true })
		}, "ACCEPTED"},
		"a commit that is taken back": {
			func(e *env) { e.git = fakeGit{commits: []string{"c2"}, differs: true}; e.evaluate("c2") },
			func(e *env) { e.git = fakeGit{}; e.evaluate("c3") }, "ACCEPTED",
		},
		"disabled": {drifted, func(e *env) {
			if err := e.store.SetDisabled(e.t.Context(), "web", true); err != nil {
				e.t.Fatal(err)
			}
		}, "ABANDONED"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.app("web")
			e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
			e.pass(time.Minute)
			c.begin(e)
			e.report("web")
			e.wantPeriods("period-1 ")
			e.pass(time.Minute)
			c.end(e)
			e.report("web")
			e.wantPeriods("period-1 " + c.want)
		})
	}
}

// evaluate sets the evaluated commit of the applications and of web.
func (e *env) evaluate(commit string, apps ...string) {
	e.t.Helper()
	for _, app := range append(apps, "web") {
		a, err := e.store.Application(e.t.Context(), app)
		if err == nil {
			err = e.store.SetEvaluatedCommit(e.t.Context(), commit, map[string]string{app: a.EvaluatedCommit})
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
}

// TestNoDrift: apparent differences that are no drift.
func TestNoDrift(t *testing.T) {
	job := object("job", nil)
	job.SetAPIVersion("batch/v1")
	job.SetKind("Job")
	job.Object["spec"] = map[string]any{"ttlSecondsAfterFinished": int64(5)}
	for name, change := range map[string]func(*env){
		"a Job that has expired": func(e *env) { delete(e.cluster().members, manifest.Ref(job.Unstructured).Key()) },
		"ignored in Git": func(e *env) {
			e.cluster().write("ignored", taken)
			e.cluster().differ("ignored", greeting)
		},
		"ignored as it is live": func(e *env) {
			e.cluster().write("a", func(m *live.Member) { taken(m); m.Ignored = true })
			e.cluster().differ("a", greeting)
		},
		"a canary": func(e *env) { e.cluster().live("canary", func(m *live.Member) { m.Variant = "canary" }) },
		"a variant whose label has another name": func(e *env) {
			e.cluster().live("other", func(m *live.Member) { m.Variant = "" })
			if err := e.store.PutInventory(e.t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: "c", Variant: "canary", Object: ref("other")}); err != nil {
				e.t.Fatal(err)
			}
		},
		"what a controller made":  func(e *env) { e.cluster().live("child", func(m *live.Member) { m.Owned = true }) },
		"what ran as a hook":      func(e *env) { e.cluster().live("migrate", func(m *live.Member) { m.Hook = true }) },
		"what is being deleted":   func(e *env) { e.cluster().live("late", func(m *live.Member) { m.Deleting = true }) },
		"what another agent has":  func(e *env) { e.cluster().live("foreign", func(m *live.Member) { m.Piped = "other" }) },
		"what is to be left":      func(e *env) { e.cluster().live("left", func(m *live.Member) { m.Ignored = true }) },
		"a write of equal values": func(e *env) { e.cluster().write("a", marked) },
		"the same cluster by another provider": func(e *env) {
			other := e.add("other")
			other.members[ref("a").Key()] = e.cluster().members[ref("a").Key()]
			if err := e.store.PutInventory(e.t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: "other", Variant: "primary", Object: ref("a"), UID: "uid-a"}); err != nil {
				e.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.app("web")
			e.deploy("web", "d1", "c1", deploy.Success, object("a", nil), object("ignored", map[string]string{manifest.AnnotationIgnoreDrift: "true"}), job)
			change(e)
			if r := e.report("web"); r.Status != deploy.Synced || len(r.Objects) > 0 {
				t.Errorf("evaluated as %+v", r)
			}
			e.wantState("web", "SYNCED")
		})
	}
}

// live adds an object of the application to the cluster.
func (c *fakeCluster) live(name string, change func(*live.Member)) {
	c.env.mu.Lock()
	defer c.env.mu.Unlock()
	m := live.Member{Object: ref(name), UID: "uid-" + name, OwnedHash: "hash", Mark: "m", ResourceVersion: "1", Application: "web", Piped: "me", Variant: "primary"}
	change(&m)
	c.members[ref(name).Key()] = m
}

// TestExtra: objects deleted from Git are reported without self-healing.
func TestExtra(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.cluster().live("left", func(*live.Member) {})
	for range 2 { // the object is read once
		if r := e.report("web"); len(r.Objects) != 1 || r.Objects[0].Kind != deploy.DriftExtra {
			t.Errorf("reported %+v", r)
		}
		e.wantState("web", "OUT_OF_SYNC 1 difference: 1 extra")
	}
	leftOver := func() bool {
		app, err := e.store.Application(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		return app.Sync.LeftOver
	}
	if !leftOver() {
		t.Error("what is left is to be healed")
	}
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	e.report("web")
	if e.wantState("web", "OUT_OF_SYNC 2 differences: 1 changed, 1 extra"); leftOver() {
		t.Error("what was changed is not to be healed")
	}
}

// TestWrittenAndRight: an object that was written and is in sync is compared once, also
// over a restart.
func TestWrittenAndRight(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.cluster().reportUnchanged = true
	e.cluster().write("a", marked)
	stop := e.run()
	e.await("web", "SYNCED")
	e.report("web")
	stop()
	if diff := cmp.Diff([]string{"a"}, e.cluster().takeCompared()); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
	e.detector = e.newDetector()
	e.cluster().write("a", func(*live.Member) {}) // a new version without changes
	if r := e.report("web"); r.Status != deploy.Synced || len(e.cluster().takeCompared()) > 0 {
		t.Errorf("after a restart it was compared again: %+v", r)
	}
}

// TestBlind: unknown objects make the application UNKNOWN after a while. They do not
// end its period or prevent the evaluation of other objects.
func TestBlind(t *testing.T) {
	e := newEnv(t)
	secret := object("s", nil)
	secret.SetKind("Secret")
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil), secret)
	e.report("web")
	e.wantState("web", "SYNCED")
	e.cluster().blind["Secret"], e.cluster().since = errors.New("no right to watch it"), begin
	e.report("web")
	e.wantState("web", "SYNCED") // within Patience
	e.pass(11 * time.Second)
	r := e.report("web")
	e.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	if want := `1 object in cluster "c" since 2026-03-01T12:00:00Z: no right to watch it`; r.Incomplete != want || r.Compared != 1 {
		t.Errorf("blind: %+v, want %q", r, want)
	}
	e.cluster().write("a", taken)
	e.cluster().differ("a", greeting)
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")

	// The other objects become unknown, too: the period stays open.
	e.cluster().blind["ConfigMap"] = errors.New("connection refused")
	e.report("web")
	e.pass(11 * time.Second)
	e.report("web")
	e.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	e.wantPeriods("period-1 ")
	clear(e.cluster().blind)
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")
	e.wantPeriods("period-1 ")

	// A failed comparison has the same effect.
	e.cluster().write("a", taken)
	e.cluster().refuses = errors.New("connection reset")
	e.report("web")
	e.pass(11 * time.Second)
	e.report("web")
	e.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	e.cluster().refuses = nil
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")
	e.wantPeriods("period-1 ")

	// The difference is reverted while another object is unknown.
	e.cluster().blind["Secret"] = errors.New("connection refused")
	e.cluster().write("a", marked)
	e.cluster().differ("a", nil)
	e.report("web")
	e.pass(11 * time.Second)
	e.report("web")
	e.wantState("web", `UNKNOWN Objects in cluster "c" cannot be compared`)
	e.wantPeriods("period-1 ")
	clear(e.cluster().blind)
	e.report("web")
	e.wantState("web", "SYNCED")
	e.wantPeriods("period-1 REVERTED")
}

// TestGitSide: undeployed commits are drift, unless a deployment is pending.
func TestGitSide(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.pass(time.Minute)
	e.git = fakeGit{commits: []string{"c3aaaaaaaaa", "c2bbbbbbbbb"}, differs: true}
	e.evaluate("c3aaaaaaaaa")
	for range 3 {
		e.report("web")
	}
	e.wantState("web", "OUT_OF_SYNC 2 commits not deployed")
	if e.git.asked != 1 {
		t.Errorf("Git was asked %d times for the same pair", e.git.asked)
	}
	e.create("web", "d2", "c3aaaaaaaaa")
	e.report("web") // a deployment is pending
	e.wantState("web", "OUT_OF_SYNC 2 commits not deployed")
	e.start("d2")
	if r := e.report("web"); r.Status != deploy.SyncDeploying || r.ID != "period-1" {
		t.Errorf("while one deploys: %+v", r)
	}
	e.end("web", "d2", deploy.Failure)
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC 2 commits not deployed")
	e.pass(time.Minute)
	e.deploy("web", "d3", "c3aaaaaaaaa", deploy.Success, object("a", nil))
	e.report("web")
	e.wantState("web", "SYNCED")
	e.wantPeriods("period-1 DEPLOYED")
}

// TestWaitsToBeDeployed: the commit of a pending deployment is no drift, unless it is
// held.
func TestWaitsToBeDeployed(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.git = fakeGit{commits: []string{"c2"}, differs: true}
	e.create("web", "d2", "c2")
	e.report("web")
	e.wantState("web", "SYNCED")
	e.pass(11 * time.Second)
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC 1 commit not deployed")
	e.start("d2")
	e.pass(time.Second)
	e.end("web", "d2", deploy.Success, object("a", nil))
	e.report("web")
	e.wantState("web", "SYNCED")
	e.wantPeriods("period-1 DEPLOYED")
}

// TestLeftByAFailure: objects applied by a failed deployment are drift, even if
// unchanged since.
func TestLeftByAFailure(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.pass(time.Minute)
	e.begin("web", "d2", "c2")
	apply := func() {
		e.cluster().write("a", marked)
		m := e.cluster().members[ref("a").Key()]
		if err := e.store.PutInventory(t.Context(), deploy.InventoryItem{
			ApplicationID: "web", Cluster: "c", Variant: "primary", Object: ref("a"), UID: "uid-a", OwnedHash: m.OwnedHash, Mark: m.Mark, DeploymentID: "d2",
		}); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	e.cluster().differ("a", greeting)
	e.end("web", "d2", deploy.Failure)
	e.report("web")
	e.wantState("web", "OUT_OF_SYNC 1 difference: 1 changed")

	// Restored by another failed deployment, it is compared once and in sync.
	e.begin("web", "d3", "c3")
	apply()
	e.cluster().differ("a", nil)
	e.cluster().reportUnchanged = true
	e.end("web", "d3", deploy.Failure)
	e.cluster().takeCompared()
	for range 3 {
		e.report("web")
	}
	e.wantState("web", "SYNCED")
	if diff := cmp.Diff([]string{"a"}, e.cluster().takeCompared()); diff != "" {
		t.Errorf("compared (-want +got):\n%s", diff)
	}
}

// TestMoved: objects left in the cluster of an earlier provider are reported with that
// provider.
func TestMoved(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	old := e.add("old")
	old.live("b", func(*live.Member) {})
	old.followed["ConfigMap"] = true
	for _, cluster := range []string{"old", "removed"} { // the second is not configured any more
		if err := e.store.PutInventory(t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: cluster, Variant: "primary", Object: ref("b"), UID: "uid-b"}); err != nil {
			t.Fatal(err)
		}
	}
	r := e.report("web")
	if len(r.Objects) != 1 || r.Objects[0].Cluster != "old" || r.Objects[0].Kind != deploy.DriftExtra || r.Incomplete != "" {
		t.Errorf("reported %+v", r)
	}
	app, err := e.store.Application(t.Context(), "web")
	if want := `+ ConfigMap n/b in cluster "old" is not in Git`; err != nil || !strings.Contains(app.Sync.Reason, want) {
		t.Errorf("the reason is %q, want %q", app.Sync.Reason, want)
	}
}

// TestAnUnreadableSet: with an unreadable applied set the application is not SYNCED.
func TestAnUnreadableSet(t *testing.T) {
	e := newEnv(t)
	e.app("web")
	e.deploy("web", "d1", "c1", deploy.Success, object("a", nil))
	e.report("web")
	e.wantState("web", "SYNCED")
	e.deploy("web", "d2", "c2", deploy.Success, object("a", nil))
	e.unreadable = errors.New("it is not JSON")
	e.report("web")
	e.pass(11 * time.Second)
	r := e.report("web")
	e.wantState("web", `UNKNOWN Cluster "c" cannot be compared`)
	if want := "what deployment d2 applied cannot be determined: it is not JSON; sync the application"; !strings.Contains(r.Incomplete, want) {
		t.Errorf("the reason is %q, want %q", r.Incomplete, want)
	}
}
