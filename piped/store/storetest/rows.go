package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func testCommands(t *testing.T, e *env) {
	ctx := t.Context()
	want, err := e.store.CreateCommand(ctx, deploy.Command{
		ID: "c1", Type: deploy.CommandCancel, ApplicationID: "a", DeploymentID: "d", StageID: "s", Commander: "jane",
		CommanderGroups: []string{"payments", "org/team"}, Strategy: deploy.StrategyPipeline, Commit: "c0ffee", Reason: "why", ForceNoRollback: true, Status: deploy.CommandFailed,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := e.store.Command(ctx, "c1")
	if err != nil || got.Status != deploy.CommandOpen {
		t.Fatalf("a new command: %+v, %v", got, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("command (-returned +read):\n%s", diff)
	}
	if _, err := e.store.CreateCommand(ctx, deploy.Command{ID: "c2", Type: deploy.CommandSync}); err != nil {
		t.Fatal(err)
	}
	_, err = e.store.CreateCommand(ctx, deploy.Command{ID: "c2", Type: deploy.CommandSync})
	wantKind(t, err, deploy.Exists, "c2")
	open := func(types ...deploy.CommandType) (ids []string) {
		t.Helper()
		cs, err := e.store.OpenCommands(ctx, types...)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			ids = append(ids, c.ID)
		}
		return ids
	}
	if diff := cmp.Diff([]string{"c1", "c2"}, open()); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c2"}, open(deploy.CommandSync, deploy.CommandApproveStage)); diff != "" {
		t.Errorf("open syncs (-want +got):\n%s", diff)
	}
	wantKind(t, e.store.FinishCommand(ctx, "c1", deploy.CommandOpen, nil), deploy.Illegal, "c1")
	if err := e.store.FinishCommand(ctx, "c1", deploy.CommandFailed, map[string]string{deploy.MetaReason: "gone"}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, e.store.FinishCommand(ctx, "c1", deploy.CommandSucceeded, nil), deploy.Conflict, "it is FAILED")
	wantKind(t, e.store.FinishCommand(ctx, "nobody", deploy.CommandFailed, nil), deploy.NotFound, "nobody")
	if got, err = e.store.Command(ctx, "c1"); err != nil || got.Status != deploy.CommandFailed || got.Metadata[deploy.MetaReason] != "gone" || got.HandledAt.IsZero() {
		t.Errorf("finished: %+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"c2"}, open()); diff != "" {
		t.Errorf("open after the finish (-want +got):\n%s", diff)
	}
}

func testStageLogs(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.create(t, "d1", a)
	var blocks []deploy.LogBlock
	for i := range 120 {
		blocks = append(blocks, deploy.LogBlock{DeploymentID: "d1", StageID: "sync", Index: int64(i), Severity: deploy.SeverityInfo, Log: numbered("line", i), At: e.clock.now()})
	}
	blocks = append(blocks, deploy.LogBlock{DeploymentID: "d1", StageID: "rollback", Index: 3, Severity: deploy.SeverityError, Log: "bad \x00 and \xff bytes, Grüße", At: e.clock.now()})
	for range 2 { // a batch may be written twice
		if err := e.store.AppendStageLogs(ctx, blocks); err != nil {
			t.Fatal(err)
		}
	}
	got, err := e.store.StageLogs(ctx, "d1")
	if err != nil {
		t.Fatal(err)
	}
	for i := range blocks {
		blocks[i].At = blocks[i].At.UTC().Truncate(1e6)
	}
	blocks[120].Log = "bad \uFFFD and \uFFFD bytes, Grüße"
	want := map[string][]deploy.LogBlock{"sync": blocks[:120], "rollback": blocks[120:]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
	for name, tc := range map[string]struct {
		stage        string
		index, limit int
		want         []deploy.LogBlock
	}{
		"a page from the beginning": {"sync", -1, 50, blocks[:50]},
		"the page behind it":        {"sync", 49, 50, blocks[50:100]},
		"the last page":             {"sync", 99, 50, blocks[100:120]},
		"behind the end":            {"sync", 119, 50, nil},
		"behind a gap":              {"rollback", 0, 50, blocks[120:]},
		"of no stage":               {"none", -1, 50, nil},
	} {
		got, err := e.store.StageLogAfter(ctx, "d1", tc.stage, int64(tc.index), tc.limit)
		if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, blocks (-want +got):\n%s", name, err, diff)
		}
	}
	for name, tc := range map[string]struct {
		stage string
		index int64
		limit int
		want  []deploy.LogBlock
	}{
		"the last page":          {"sync", math.MaxInt64, 50, blocks[70:120]},
		"the page before it":     {"sync", 70, 50, blocks[20:70]},
		"the rest at the start":  {"sync", 20, 50, blocks[:20]},
		"before the start":       {"sync", 0, 50, nil},
		"before what is missing": {"rollback", 9, 50, blocks[120:]},
		"before a gap":           {"rollback", 3, 50, nil},
		"of no stage":            {"none", math.MaxInt64, 50, nil},
	} {
		got, err := e.store.StageLogBefore(ctx, "d1", tc.stage, tc.index, tc.limit)
		if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("backwards, %s: %v, blocks (-want +got):\n%s", name, err, diff)
		}
	}
	for stage, want := range map[string]int64{"sync": 119, "rollback": 3, "none": -1} {
		if n, err := e.store.LastLogIndex(ctx, "d1", stage); err != nil || n != want {
			t.Errorf("last index of %s: %d, %v, want %d", stage, n, err, want)
		}
	}
	wantKind(t, e.store.AppendStageLogs(ctx, []deploy.LogBlock{{DeploymentID: "nobody"}}), deploy.NotFound, "nobody")
}

func testNotes(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.create(t, "d1", a)
	e.update(t, "d1", func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, e.clock.now()) })
	e.update(t, "d1", func(d *deploy.Deployment) error { return d.Start(e.clock.now()) })
	ended := e.update(t, "d1", func(d *deploy.Deployment) error { return d.Complete(deploy.Failure, "no image", e.clock.now()) })
	for range 2 { // the second call has no effect
		if err := e.store.NoteDeployment(ctx, "d1", "sync", "it completed"); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.store.NoteDeployment(ctx, "d1", "sync", "another did"); err != nil {
		t.Fatal(err)
	}
	got, err := e.store.Deployment(ctx, "d1")
	if err != nil || got.StatusReason != "no image; it completed; another did" || got.Status != deploy.Failure || !got.CompletedAt.Equal(ended.CompletedAt) {
		t.Errorf("%+v, %v", got, err)
	}
	logs, err := e.store.StageLogs(ctx, "d1")
	if err != nil || len(logs["sync"]) != 2 || logs["sync"][0].Log != "it completed" || logs["sync"][1].Index != 1 {
		t.Errorf("%+v, %v", logs, err)
	}
	wantKind(t, e.store.NoteDeployment(ctx, "nobody", "sync", "x"), deploy.NotFound, "nobody")
}

func testInventory(t *testing.T, e *env) {
	ctx, a, b := t.Context(), e.putApp(t, "a"), e.putApp(t, "b")
	item := func(app, name string) deploy.InventoryItem {
		return deploy.InventoryItem{
			ApplicationID: app, Cluster: "c", Variant: "primary", UID: "u-" + name, DesiredDigest: "dd", OwnedHash: "oh", Mark: "g:1", ValuesDigest: "vd", DeploymentID: "d", CreatedBy: "d",
			Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name},
		}
	}
	web, db := item(a.ID, "web"), item(a.ID, "db")
	if err := e.store.PutInventory(ctx, web, db, item(b.ID, "web"), web); err != nil {
		t.Fatal(err)
	}
	web.Object.Version, web.UID = "v2", "again" // the API version does not identify an object
	if err := e.store.PutInventory(ctx, web); err != nil {
		t.Fatal(err)
	}
	got, err := e.store.Inventory(ctx, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]deploy.InventoryItem{db, web}, got, cmpopts.IgnoreFields(deploy.InventoryItem{}, "UpdatedAt")); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	owners := func(want ...string) {
		t.Helper()
		got, err := e.store.InventoryOwner(ctx, "c", web.Object)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
	}
	owners(a.ID, b.ID)
	if err := e.store.DeleteApplication(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	owners(a.ID)
	if err := e.store.DeleteInventory(ctx, a.ID, "c", item(a.ID, "web").Object, item(a.ID, "unknown").Object); err != nil {
		t.Fatal(err)
	}
	owners()
	if got, err = e.store.Inventory(ctx, a.ID); err != nil || len(got) != 1 || got[0].Object.Name != "db" {
		t.Errorf("left: %+v, %v", got, err)
	}
	wantKind(t, e.store.PutInventory(ctx, item("nobody", "x")), deploy.NotFound, "does not exist")
}

// testLearnedMarks: a learned mark is stored only for the apply for which it was learned, and
// for no later one.
func testLearnedMarks(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "a")
	item := func(i int) deploy.InventoryItem {
		return deploy.InventoryItem{
			ApplicationID: a.ID, Cluster: "c", Variant: "primary", UID: "u", DesiredDigest: "dd", OwnedHash: "oh", Mark: "g:1", ValuesDigest: "v1", DeploymentID: "d1",
			Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: fmt.Sprintf("m%03d", i)},
		}
	}
	var stored, learned, want []deploy.InventoryItem
	for i := range 450 {
		stored = append(stored, item(i))
		next := item(i)
		next.Mark, next.ValuesDigest = "g:2", "v2"
		learned, want = append(learned, next), append(want, next)
	}
	for i, stale := range []func(*deploy.InventoryItem){
		func(it *deploy.InventoryItem) { it.UID = "older" },
		func(it *deploy.InventoryItem) { it.OwnedHash = "older" },
		func(it *deploy.InventoryItem) { it.DesiredDigest = "older" },
		func(it *deploy.InventoryItem) { it.DeploymentID = "older" },
		func(it *deploy.InventoryItem) { it.Cluster = "another" },
	} {
		stale(&learned[i])
		want[i] = stored[i]
	}
	gone := item(999)
	must(t, e.store.PutInventory(ctx, stored...))
	must(t, e.store.LearnMarks(ctx, append(learned, gone)...))
	must(t, e.store.LearnMarks(ctx))
	got, err := e.store.Inventory(ctx, a.ID)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(deploy.InventoryItem{}, "UpdatedAt")); err != nil || diff != "" {
		t.Errorf("%v; inventory (-want +got):\n%s", err, diff)
	}
}

func testAppliedSets(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	save := func(id string) {
		t.Helper()
		if err := e.store.SaveAppliedSet(ctx, deploy.AppliedSet{ApplicationID: a.ID, DeploymentID: id, Commit: "c-" + id, Objects: []byte(`["` + id + `"]`)}); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(want ...string) {
		t.Helper()
		var got []string
		for _, id := range []string{"d1", "d2", "d3"} {
			set, err := e.store.AppliedSet(ctx, id)
			if deploy.IsKind(err, deploy.NotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(deploy.AppliedSet{ApplicationID: a.ID, DeploymentID: id, Commit: "c-" + id, Objects: []byte(`["` + id + `"]`)}, set); diff != "" {
				t.Errorf("set (-want +got):\n%s", diff)
			}
			got = append(got, id)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kept sets (-want +got):\n%s", diff)
		}
	}
	e.create(t, "d1", a)
	e.run(t, "d1")
	save("d1")
	save("d1") // after a crash it is saved again
	e.succeed(t, "d1")
	e.create(t, "d2", a)
	e.run(t, "d2")
	save("d2")
	kept("d1", "d2") // the last success and the active one
	e.succeed(t, "d2")
	e.create(t, "d3", a)
	e.run(t, "d3")
	save("d3")
	kept("d2", "d3")
	err := e.store.SaveAppliedSet(ctx, deploy.AppliedSet{ApplicationID: a.ID, DeploymentID: "nobody"})
	wantKind(t, err, deploy.NotFound, "nobody")
}

func testRollouts(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.create(t, "d1", a)
	ref := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	intent := deploy.Rollout{
		ID: deploy.RolloutID("d1", "sync", "c", ref), ApplicationID: a.ID, DeploymentID: "d1", StageID: "sync", Cluster: "c", Workload: ref,
		UID: "u", Phase: deploy.RolloutIntent, IntentDigest: "id", Rewritten: true, LiveBefore: "lb", TemplateDigest: "td", Images: "web:2 log:1", ImagesBefore: "web:1", Generation: 3, TargetUID: "tu",
		TargetName: "tn", Revision: 7, DesiredAtStart: 2, AppliedAt: e.clock.now(), LastProgress: e.clock.now(), Progress: "1 of 2",
		ReplicasBefore: 4, ProvenBefore: true, TemplateBase: "tb", FollowedDigest: "fd", FollowedAt: e.clock.now(), ServerAppliedAt: e.clock.now(), ResumedAt: e.clock.now(), FollowedBy: "fm", Followed: 2, TemplateAnnotations: "ta", Served: true, PausedInGit: true, SeenReady: 3, SeenAvailable: 2, SeenOld: 1, SeenStopping: 1,
		FailingSince: e.clock.now(), TroubleSince: e.clock.now(), Commit: "c0ffee", SupersededBy: "kubectl", ReplicasAfter: 5,
		Parts: deploy.RolloutParts{Schedule: deploy.Took{Measured: true}, Ready: deploy.Took{Measured: true, Time: 3 * time.Second}},
	}
	v1, err := e.store.SaveRollout(ctx, intent)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.store.SaveRollout(ctx, intent)
	wantKind(t, err, deploy.Conflict, "written concurrently")
	v1.Phase, v1.Reason = deploy.RolloutProgressing, "going on"
	v2, err := e.store.SaveRollout(ctx, v1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.store.SaveRollout(ctx, v1)
	wantKind(t, err, deploy.Conflict, "written concurrently")
	open, err := e.store.Rollouts(ctx, store.RolloutQuery{DeploymentID: "d1", StageID: "sync", ApplicationID: a.ID, OpenOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]deploy.Rollout{v2}, open); diff != "" {
		t.Errorf("open rollouts (-returned +read):\n%s", diff)
	}
	v2.Phase, v2.CompletedAt = deploy.RolloutComplete, e.clock.now()
	v3, err := e.store.SaveRollout(ctx, v2)
	if err != nil || !v3.CompletedAt.Equal(v2.CompletedAt.Truncate(time.Millisecond)) || !v3.UpdatedAt.After(v3.CompletedAt) || v3.ApplicationName != "web" {
		t.Fatalf("ended: %+v, %v", v3, err)
	}
	v3.Phase = deploy.RolloutFailed
	_, err = e.store.SaveRollout(ctx, v3)
	wantKind(t, err, deploy.Conflict, "has ended")
	all, err := e.store.Rollouts(ctx, store.RolloutQuery{Limit: 5})
	if err != nil || len(all) != 1 || all[0].Phase != deploy.RolloutComplete {
		t.Errorf("rollouts: %+v, %v", all, err)
	}
	if open, err = e.store.Rollouts(ctx, store.RolloutQuery{OpenOnly: true}); err != nil || len(open) != 0 {
		t.Errorf("open after the end: %+v, %v", open, err)
	}
	events, err := e.store.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(events); n != 3 || events[2].Type != deploy.EventRolloutEnded || events[2].Key != intent.ID {
		t.Errorf("events: %+v", events)
	}
	end := v3
	end.Phase = deploy.RolloutComplete
	if diff := cmp.Diff(new(end.Ended()), events[2].Details().Rollout); diff != "" {
		t.Errorf("the end in the event (-want +got):\n%s", diff)
	}
	intent.ID, intent.DeploymentID = "other", "nobody"
	_, err = e.store.SaveRollout(ctx, intent)
	wantKind(t, err, deploy.NotFound, "nobody")
}

func testExternalRollouts(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	e.create(t, "d1", a)
	ref := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	save := func(r deploy.Rollout) deploy.Rollout {
		t.Helper()
		saved, err := e.store.SaveRollout(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		return saved
	}
	own := save(deploy.Rollout{ID: "own", ApplicationID: a.ID, DeploymentID: "d1", StageID: "s", Cluster: "c", Workload: ref, Phase: deploy.RolloutComplete})
	external := deploy.Rollout{ApplicationID: a.ID, Cluster: "c", Workload: ref, UID: "u", Phase: deploy.RolloutProgressing, ChangedBy: "kubectl-rollout",
		AppliedAt: e.clock.now().Add(-2 * time.Hour)}
	external.ID, external.Revision = deploy.ExternalRolloutID("c", "u", 1), 1
	first := save(external)
	ended := first
	want := e.clock.now().Add(-time.Hour).Truncate(time.Millisecond)
	ended.Phase, ended.CompletedAt = deploy.RolloutComplete, want
	ended = save(ended)
	if !ended.CompletedAt.Equal(want) {
		t.Errorf("ended at %s, want the cluster's time %s", ended.CompletedAt, want)
	}
	list := func(q store.RolloutQuery) (ids []string) {
		t.Helper()
		found, err := e.store.Rollouts(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			ids = append(ids, r.ID)
		}
		slices.Sort(ids)
		return ids
	}
	if diff := cmp.Diff([]string{ended.ID, own.ID}, list(store.RolloutQuery{Cluster: "c", Workload: ref})); diff != "" {
		t.Errorf("of the workload (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{ended.ID}, list(store.RolloutQuery{ApplicationID: a.ID, External: true})); diff != "" {
		t.Errorf("external (-want +got):\n%s", diff)
	}
	for n := int64(2); n <= 210; n++ { // the third never ends
		external.ID, external.Revision, external.Phase = deploy.ExternalRolloutID("c", "u", n), n, deploy.RolloutComplete
		if n == 3 {
			external.Phase = deploy.RolloutProgressing
		}
		save(external)
	}
	kept := list(store.RolloutQuery{Cluster: "c", Workload: ref})
	if len(kept) != 200+1+1 || !slices.Contains(kept, own.ID) || !slices.Contains(kept, deploy.ExternalRolloutID("c", "u", 3)) || slices.Contains(kept, ended.ID) {
		t.Errorf("kept %d, want the newest 200, the one that goes on and the deployment's: %v", len(kept), kept)
	}
}

func testOutbox(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	for i := range 5 {
		e.create(t, numbered("d", i), a)
	}
	seqs := func(after int64, limit int) (out []int64) {
		t.Helper()
		events, err := e.store.Events(ctx, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			out = append(out, ev.Seq)
		}
		return out
	}
	// A transaction that is rolled back uses no number.
	_, err := e.store.UpdateDeployment(ctx, "d-000", func(*deploy.Deployment) error { return errors.New("no") })
	if err == nil {
		t.Fatal("the func's error was lost")
	}
	for name, c := range map[string]struct{ got, want []int64 }{
		"all":   {seqs(0, 0), []int64{1, 2, 3, 4, 5}},
		"after": {seqs(2, 0), []int64{3, 4, 5}},
		"limit": {seqs(2, 2), []int64{3, 4}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for range 2 {
		if err := e.store.RouteEvents(ctx, []int64{1, 3}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]int64{2, 4, 5}, seqs(0, 0)); diff != "" {
		t.Errorf("undelivered (-want +got):\n%s", diff)
	}
}
