package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testRolloutEvents: each rollout that begins publishes its start once, before its end, and
// says what it interrupts. Others publish no start.
func testRolloutEvents(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.create(t, "d1", a)
	save := func(r deploy.Rollout) deploy.Rollout {
		t.Helper()
		r.Cluster = "c"
		saved, err := e.store.SaveRollout(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	through := func(r deploy.Rollout, phases ...deploy.RolloutPhase) deploy.Rollout {
		t.Helper()
		for _, r.Phase = range phases {
			r = save(r)
		}
		return r
	}
	workload := func(name string) deploy.ObjectRef {
		return deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name}
	}
	own := func(id, name string) deploy.Rollout {
		return deploy.Rollout{ID: id, ApplicationID: a.ID, DeploymentID: "d1", StageID: "s", Workload: workload(name), AppliedAt: e.clock.now()}
	}
	foreign := func(id, name string) deploy.Rollout {
		return deploy.Rollout{ID: id, Workload: workload(name), AppliedAt: e.clock.now(), ChangedBy: "kubectl-set", Images: "web:2", ImagesBefore: "web:1"}
	}
	const (
		intent, applied, progressing, held = deploy.RolloutIntent, deploy.RolloutApplied, deploy.RolloutProgressing, deploy.RolloutHeld
		complete, superseded               = deploy.RolloutComplete, deploy.RolloutSuperseded
	)
	through(own("rolls", "a"), intent, applied, progressing, held, progressing, complete)
	through(own("rolls at once", "b"), intent, applied, complete)
	through(own("unchanged", "c"), intent, applied, deploy.RolloutNoRollout)
	never := own("never applied", "d")
	never.AppliedAt = time.Time{}
	through(never, intent, deploy.RolloutTimedOut)
	through(foreign("f1", "e"), progressing, superseded)
	through(foreign("f2", "e"), progressing)
	through(own("over foreign", "e"), intent, applied, progressing, superseded)
	through(foreign("given up", "g"), progressing, superseded)
	through(foreign("in progress", "h"), progressing)
	before, again := foreign("of the one before", "i"), foreign("created again", "i")
	before.UID, again.UID = "one", "another"
	through(before, progressing, superseded)
	through(again, progressing)
	e.clock.ms.Add((2 * time.Minute).Milliseconds())
	through(foreign("long after", "g"), progressing)
	through(foreign("still interrupts", "h"), progressing)
	late := foreign("late", "f")
	late.FoundLate = true
	through(late, complete)
	through(foreign("not interrupted", "f"), progressing, deploy.RolloutGone)
	scaling := foreign("scaling", "a")
	scaling.Kind = deploy.RolloutKindScaling
	through(scaling, progressing, complete)

	events, err := e.store.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, event := range events {
		p := event.Details()
		switch event.Type {
		case deploy.EventRolloutStarted:
			got = append(got, strings.TrimSpace(p.Rollout.ID+" starts: "+p.Reason+" ["+p.Interrupts+"]"))
		case deploy.EventRolloutEnded:
			got = append(got, p.Rollout.ID+" ends: "+string(p.Phase))
		}
	}
	const byDeployment, bySet = " starts: a deployment changed the pod template", ` starts: field manager "kubectl-set" changed the pod template`
	const interrupts = "; it interrupts a rollout that had not ended"
	want := []string{
		"rolls" + byDeployment + " []", "rolls ends: Complete",
		"rolls at once" + byDeployment + " []", "rolls at once ends: Complete",
		"unchanged ends: NoRollout", "never applied ends: TimedOut",
		"f1" + bySet + " []", "f1 ends: Superseded",
		"f2" + bySet + interrupts + " [f1]",
		"over foreign" + byDeployment + interrupts + " [f2]", "over foreign ends: Superseded",
		"given up" + bySet + " []", "given up ends: Superseded", "in progress" + bySet + " []",
		"of the one before" + bySet + " []", "of the one before ends: Superseded", "created again" + bySet + " []",
		"long after" + bySet + " []", "still interrupts" + bySet + interrupts + " [in progress]",
		"late" + bySet + "; it began while the agent was not watching []", "late ends: Complete",
		"not interrupted" + bySet + " []", "not interrupted ends: Gone",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	start := events[len(events)-1]
	for _, event := range events {
		if event.Key == "f2/started" {
			start = event
		}
	}
	p := start.Details()
	if diff := cmp.Diff(&deploy.RolloutEnd{
		ID: "f2", Kind: deploy.RolloutKindRollout, Cluster: "c", Workload: workload("e"), Phase: progressing, ChangedBy: "kubectl-set",
		Images: []string{"web:2"}, ImagesBefore: []string{"web:1"}, StartedAt: p.Rollout.StartedAt,
	}, p.Rollout); diff != "" || p.Rollout.StartedAt <= 0 || start.ApplicationID != "" || p.Cluster != "c" || *p.Workload != workload("e") {
		t.Errorf("the start %+v (-want +got):\n%s", start, diff)
	}
}

// testRolloutRecovery: a failed rollout that completes after all keeps its phase and its end, and
// says so, once.
func testRolloutRecovery(t *testing.T, e *env) {
	ctx := t.Context()
	r := deploy.Rollout{
		ID: "external/c/u/1", Cluster: "c", Phase: deploy.RolloutProgressing, AppliedAt: e.clock.now(),
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
	}
	save := func(phase deploy.RolloutPhase, reason string) {
		t.Helper()
		r.Phase, r.Reason = phase, reason
		var err error
		if r, err = e.store.SaveRollout(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	save(deploy.RolloutProgressing, "")
	at := e.clock.now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	if err := e.store.RecoverRollout(ctx, r.ID, at); !deploy.IsKind(err, deploy.Conflict) {
		t.Errorf("a rollout that has not failed: %v", err)
	}
	if err := e.store.RecoverRollout(ctx, "none", at); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("no rollout: %v", err)
	}
	save(deploy.RolloutFailed, "pods crash")
	e.clock.ms.Add(time.Hour.Milliseconds())
	if err := e.store.RecoverRollout(ctx, r.ID, at); err != nil {
		t.Fatal(err)
	}
	if err := e.store.RecoverRollout(ctx, r.ID, at); !deploy.IsKind(err, deploy.Conflict) {
		t.Errorf("again: %v", err)
	}
	found, err := e.store.Rollouts(ctx, store.RolloutQuery{Cluster: "c"})
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	want := r
	want.Version, want.RecoveredAt = r.Version+1, at
	want.Reason = "pods crash; its rollout completed at " + at.UTC().Format(time.RFC3339) + ", after it had failed"
	if diff := cmp.Diff(want, found[0]); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	events, err := e.store.Events(ctx, 0, 0)
	if err != nil || len(events) != 3 {
		t.Fatal(events, err)
	}
	last := events[2]
	if p := last.Details(); last.Type != deploy.EventRolloutRecovered || last.Key != r.ID+"/recovered" || p.Phase != deploy.RolloutComplete ||
		p.Rollout.Phase != deploy.RolloutFailed || p.Rollout.RecoveredAt != at.UnixMilli() || p.Rollout.CompletedAt != r.CompletedAt.UnixMilli() {
		t.Errorf("event %+v", last)
	}
}

// testOrderOfForeignRollouts: those of a workload that are stored within a millisecond are in the
// order in which they were stored, although ten is before nine in the order of text.
func testOrderOfForeignRollouts(t *testing.T, e *env) {
	e.clock.stand.Store(true)
	for n := int64(8); n <= 11; n++ {
		r := deploy.Rollout{
			ID: deploy.ExternalRolloutID("c", "u", n), Cluster: "c", Revision: n, Phase: deploy.RolloutComplete, AppliedAt: e.clock.now(),
			Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		}
		if _, err := e.store.SaveRollout(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	found, err := e.store.Rollouts(t.Context(), store.RolloutQuery{Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, r := range found {
		got = append(got, r.Revision)
	}
	if diff := cmp.Diff([]int64{11, 10, 9, 8}, got); diff != "" {
		t.Errorf("newest first (-want +got):\n%s", diff)
	}
}
