package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// limit is how long deployments are retained in these tests.
const limit = 100 * 24 * time.Hour

// pass advances the clock.
func (e *env) pass(d time.Duration) { e.clock.ms.Add(d.Milliseconds()) }

// removeOld deletes deployments that ended before the limit, in small batches.
func (e *env) removeOld(t testing.TB, keep int) (removed int) {
	t.Helper()
	q := store.OldDeployments{Before: e.clock.now().Add(-limit), Keep: keep, Limit: 2}
	for {
		n, next, err := e.store.RemoveDeployments(context.Background(), q)
		if err != nil || n > q.Limit {
			t.Fatalf("removed %d: %v", n, err)
		}
		removed += n
		if q.Cursor = next; next == "" {
			return removed
		}
	}
}

// there reports whether a deployment exists.
func (e *env) there(t testing.TB, id string) bool {
	t.Helper()
	_, err := e.store.Deployment(context.Background(), id)
	if err != nil && !deploy.IsKind(err, deploy.NotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// fail ends a waiting deployment with FAILURE.
func (e *env) fail(t testing.TB, id string) {
	t.Helper()
	e.update(t, id, func(d *deploy.Deployment) error { return d.Complete(deploy.Failure, "broken", e.clock.now()) })
}

// oldRollout returns a rollout of deployment id.
func oldRollout(id, appID string, phase deploy.RolloutPhase) deploy.Rollout {
	return deploy.Rollout{ID: "rollout-" + id, ApplicationID: appID, DeploymentID: id, StageID: "sync", Cluster: "c", Phase: phase,
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: id}}
}

// oldItem returns an inventory item of deployment id.
func oldItem(id, appID string) deploy.InventoryItem {
	return deploy.InventoryItem{ApplicationID: appID, Cluster: "c", UID: "u", DeploymentID: id, CreatedBy: "long gone",
		Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: id}}
}

// reason is a case in which an old deployment is retained (left) or deleted.
type reason struct {
	name string
	// begins, if set, is called after the end of the deployment, before the limit has passed.
	begins func(t *testing.T, e *env, old string, a deploy.Application)
	// later, if set, is called after the limit has passed.
	later func(t *testing.T, e *env, old string, a deploy.Application)
	keep  int  // deployments to retain for each application; 0 means 1
	good  bool // the old deployment succeeds
	left  bool
	// over, if set, removes the reason; the deployment is deleted then.
	over func(t *testing.T, e *env, old string, a deploy.Application)
}

func reasons() []reason {
	command := func(t *testing.T, e *env, old string, a deploy.Application) {
		_, err := e.store.CreateCommand(t.Context(), deploy.Command{ID: "of-" + old, Type: deploy.CommandRetry, ApplicationID: a.ID, DeploymentID: old})
		must(t, err)
	}
	answer := func(t *testing.T, e *env, old string, _ deploy.Application) {
		must(t, e.store.FinishCommand(t.Context(), "of-"+old, deploy.CommandFailed, nil))
	}
	answeredLater := func(t *testing.T, e *env, old string, a deploy.Application) {
		answer(t, e, old, a)
		e.pass(limit + time.Hour)
	}
	apply := func(t *testing.T, e *env, old string, a deploy.Application) {
		must(t, e.store.PutInventory(t.Context(), oldItem(old, a.ID)))
	}
	prune := func(t *testing.T, e *env, old string, a deploy.Application) {
		must(t, e.store.DeleteInventory(t.Context(), a.ID, "c", oldItem(old, a.ID).Object))
	}
	remove := func(t *testing.T, e *env, _ string, a deploy.Application) {
		must(t, e.store.DeleteApplication(t.Context(), a.ID))
	}
	roll := func(phase deploy.RolloutPhase) func(*testing.T, *env, string, deploy.Application) {
		return func(t *testing.T, e *env, old string, a deploy.Application) {
			_, err := e.store.SaveRollout(t.Context(), oldRollout(old, a.ID, phase))
			must(t, err)
			e.route(t, "rollout")
		}
	}
	announce := func(t *testing.T, e *env, old string, _ deploy.Application) {
		must(t, e.store.Announce(t.Context(), deploy.Event{Key: "of " + old, Type: deploy.EventStageStarted, DeploymentID: old, Payload: []byte(`{}`), At: e.clock.now()}))
	}
	give := func(t *testing.T, e *env, old string, a deploy.Application) {
		announce(t, e, old, a)
		e.route(t, "of "+old, "hook")
	}
	return []reason{
		{name: "nothing needs it"},
		{name: "it is among the last", keep: 2, left: true, over: func(t *testing.T, e *env, old string, a deploy.Application) {
			e.create(t, "later-"+old, a)
			e.fail(t, "later-"+old)
			e.route(t, "")
		}},
		{name: "it is the success before the last", good: true, left: true, over: func(t *testing.T, e *env, old string, a deploy.Application) {
			e.create(t, "later-"+old, a)
			e.run(t, "later-"+old)
			e.succeed(t, "later-"+old)
			e.route(t, "")
		}},
		{name: "what was asked of it waits", begins: command, left: true, over: answeredLater},
		{name: "something was asked of it lately", begins: command, later: answer, left: true, over: func(_ *testing.T, e *env, _ string, _ deploy.Application) {
			e.pass(limit + time.Hour)
		}},
		{name: "what was asked of it is old, too", begins: func(t *testing.T, e *env, old string, a deploy.Application) {
			command(t, e, old, a)
			answer(t, e, old, a)
		}},
		{name: "what it applied is there", begins: apply, left: true, over: prune},
		{name: "its rollout goes on", begins: roll(deploy.RolloutProgressing), left: true, over: func(t *testing.T, e *env, old string, a deploy.Application) {
			r := oldRollout(old, a.ID, deploy.RolloutComplete)
			r.Version = 1
			_, err := e.store.SaveRollout(t.Context(), r)
			must(t, err)
			e.route(t, "")
		}},
		{name: "its rollout has ended", begins: roll(deploy.RolloutComplete)},
		{name: "an event of it is not routed yet", begins: announce, left: true, over: func(t *testing.T, e *env, _ string, _ deploy.Application) {
			e.route(t, "")
		}},
		{name: "a delivery is pending", begins: give, left: true, over: func(t *testing.T, e *env, _ string, _ deploy.Application) {
			ds, _ := e.due(t, "hook")
			must(t, e.store.FinishDelivery(t.Context(), ds[0]))
		}},
		{name: "a delivery was given up", begins: func(t *testing.T, e *env, old string, a deploy.Application) {
			give(t, e, old, a)
			ds, _ := e.due(t, "hook")
			must(t, e.store.GiveUpDelivery(t.Context(), ds[0], "gone"))
		}},
		{name: "its application is deleted and something of it is left", keep: 5, left: true, begins: func(t *testing.T, e *env, old string, a deploy.Application) {
			must(t, e.store.PutInventory(t.Context(), oldItem("last-"+old, a.ID)))
			remove(t, e, old, a)
		}, over: func(t *testing.T, e *env, old string, a deploy.Application) { prune(t, e, "last-"+old, a) }},
		{name: "its application is gone", keep: 5, begins: remove},
	}
}

// testOldDeployments: deployments that ended before the limit are deleted, unless there is a
// reason to retain them.
func testOldDeployments(t *testing.T, e *env) {
	e.registerReceivers(t, "hook")
	for i, r := range reasons() {
		t.Run(r.name, func(t *testing.T) {
			old := numbered("old", i)
			a := e.putApp(t, old)
			e.create(t, old, a)
			if r.good {
				e.run(t, old)
				e.succeed(t, old)
			} else {
				e.fail(t, old)
			}
			e.create(t, "last-"+old, a)
			e.run(t, "last-"+old)
			e.succeed(t, "last-"+old)
			e.route(t, "")
			if r.begins != nil {
				r.begins(t, e, old, a)
			}
			e.pass(limit + time.Hour)
			if r.later != nil {
				r.later(t, e, old, a)
			}
			keep := max(1, r.keep)
			e.removeOld(t, keep)
			if got := e.there(t, old); got != r.left {
				t.Fatalf("left: %t, want %t", got, r.left)
			}
			if !e.there(t, "last-"+old) {
				t.Error("the last success is gone")
			}
			if r.over != nil {
				r.over(t, e, old, a)
				if e.removeOld(t, keep); e.there(t, old) {
					t.Error("left although there is no reason any more")
				}
			}
		})
	}
	nothingDangles(t, e)
}

// testNamedDeployments: an application's last success and last triggered deployment are
// retained regardless of their age.
func testNamedDeployments(t *testing.T, e *env) {
	ctx := t.Context()
	a := e.putApp(t, "web")
	e.create(t, "success", a)
	e.run(t, "success")
	e.succeed(t, "success")
	for i := range 3 {
		e.create(t, numbered("failure", i), a)
	}
	e.create(t, "triggered last", a)
	e.fail(t, "triggered last")
	for i := range 3 {
		e.fail(t, numbered("failure", i))
	}
	e.route(t, "")
	q := store.OldDeployments{Keep: 1, Limit: 10}
	remove := func(before time.Time, want int) {
		t.Helper()
		q.Before = before
		if n, next, err := e.store.RemoveDeployments(ctx, q); n != want || next != "" || err != nil {
			t.Errorf("removed %d, %q, %v, want %d", n, next, err, want)
		}
	}
	first, err := e.store.Deployment(ctx, "failure-000")
	must(t, err)
	remove(first.CompletedAt, 0) // Before is exclusive
	remove(first.CompletedAt.Add(time.Millisecond), 1)
	remove(e.clock.now(), 1)
	list, _, err := e.store.ListDeployments(ctx, store.DeploymentQuery{})
	must(t, err)
	got := ids(list)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"failure-002", "success", "triggered last"}, got); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	for _, bad := range []store.OldDeployments{{Keep: 0, Limit: 1}, {Keep: 1, Limit: 0}} {
		_, _, err := e.store.RemoveDeployments(ctx, bad)
		wantKind(t, err, deploy.Internal, "at least 1")
	}
	_, _, err = e.store.RemoveDeployments(ctx, store.OldDeployments{Keep: 1, Limit: 1, Cursor: "?"})
	wantKind(t, err, deploy.Invalid, "cursor")
}

// testOldChains: the deployments of a chain are deleted when all of them can be, together with
// the chain and its commands.
func testOldChains(t *testing.T, e *env) {
	ctx := t.Context()
	first, b, c := e.putApp(t, "first"), e.putApp(t, "b"), e.putApp(t, "c")
	e.beginChain(t, "d1", first, []deploy.Application{b}, []deploy.Application{c})
	e.fail(t, "d1")
	e.answer(t, "ask-b", b, 1)
	e.create(t, "last of first", first)
	e.fail(t, "last of first")
	left := func(when string, want int) {
		t.Helper()
		e.route(t, "")
		e.pass(limit + time.Hour)
		removed := e.removeOld(t, 1)
		_, err := e.store.Chain(ctx, "chain")
		if removed != want || deploy.IsKind(err, deploy.NotFound) != (want > 0) {
			t.Errorf("%s: removed %d, want %d; the chain: %v", when, removed, want, err)
		}
	}
	left("while one waits and one is not made", 0)
	e.fail(t, "by-ask-b")
	left("while one is the last of its application", 0)
	e.create(t, "last of b", b)
	e.fail(t, "last of b")
	left("while one is not made", 0)
	must(t, e.store.FinishCommand(ctx, "ask-c", deploy.CommandFailed, nil))
	e.pass(2 * limit)
	if n, err := e.store.RemoveCommands(ctx, e.clock.now(), 10); n != 0 || err != nil {
		t.Errorf("%d commands of the chain were removed before it, %v", n, err)
	}
	left("when all have ended", 2)
	for _, command := range []string{"ask-b", "ask-c"} {
		_, err := e.store.Command(ctx, command)
		wantKind(t, err, deploy.NotFound, command)
	}
	nothingDangles(t, e)
}

// testWholeDeployments: all rows of a deleted deployment are deleted, and those of others are
// retained.
func testWholeDeployments(t *testing.T, e *env) {
	ctx := t.Context()
	a := e.putApp(t, "web")
	for _, id := range []string{"old", "next", "new"} { // the last two successes stay
		e.create(t, id, a)
		e.run(t, id)
		must(t, e.store.AppendStageLogs(ctx, []deploy.LogBlock{{DeploymentID: id, StageID: "sync", Log: "said", At: e.clock.now()}}))
		must(t, e.store.AppendAnalysisSample(ctx, deploy.AnalysisSample{ApplicationID: a.ID, DeploymentID: id, StageID: "sync", At: e.clock.now()}))
		must(t, e.store.SaveAppliedSet(ctx, deploy.AppliedSet{ApplicationID: a.ID, DeploymentID: id, Objects: []byte("[]")}))
		_, err := e.store.SaveRollout(ctx, oldRollout(id, a.ID, deploy.RolloutComplete))
		must(t, err)
		_, err = e.store.CreateCommand(ctx, deploy.Command{ID: "of-" + id, Type: deploy.CommandApproveStage, DeploymentID: id})
		must(t, err)
		must(t, e.store.FinishCommand(ctx, "of-"+id, deploy.CommandSucceeded, nil))
		e.succeed(t, id)
	}
	e.route(t, "")
	e.pass(limit + time.Hour)
	db := Raw(t, e.dsn)
	tables := withColumn(t, db, "deployment_id")
	rows := func(id string) map[string]int {
		out := map[string]int{}
		for _, table := range tables {
			out[table] = count(t, db, "SELECT COUNT(*) FROM "+table+" WHERE deployment_id = '"+id+"'")
		}
		return out
	}
	want := rows("new")
	for _, table := range []string{"stages", "stage_logs", "transitions", "rollouts", "analysis_samples", "applied_sets", "commands", "deployment_labels"} {
		if want[table] == 0 {
			t.Errorf("nothing is written into %s: %v", table, tables)
		}
	}
	if n := e.removeOld(t, 1); n != 1 {
		t.Errorf("removed %d", n)
	}
	if diff := cmp.Diff(want, rows("new")); diff != "" {
		t.Errorf("of the last success (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"outbox": rows("old")["outbox"]}, rows("old"), cmpopts.IgnoreMapEntries(func(_ string, n int) bool { return n == 0 })); diff != "" {
		t.Errorf("of what was removed (-want +got):\n%s", diff)
	}
}

// testOldDeploymentBatches deletes the old deployments of a large store in batches that do not
// exceed the limit.
func testOldDeploymentBatches(t *testing.T, e *env) {
	const all, old, atOnce = 10_000, 2_990, 50 // ten end in each millisecond
	a := e.putApp(t, "web")
	db := Raw(t, e.dsn)
	for _, fill := range []string{
		`INSERT INTO deployments (id, application_id, application_name, trigger_kind, commit_hash, chain_id, origin, status, state, revision, triggered_at, created_at, updated_at, completed_at)
			SELECT 'd-' || n, '` + a.ID + `', 'web', 'ON_COMMIT', 'c', '', '{}', 'CANCELLED', '{}', 2, n, n, n, n / 10 + 1 FROM numbers`,
		`INSERT INTO stages (deployment_id, id, name, position, spec, status, state) SELECT 'd-' || n, 'sync', 'K8S_SYNC', 0, '{}', 'STAGE_NOT_STARTED_YET', '{}' FROM numbers`,
	} {
		_, err := db.Exec(fmt.Sprintf("WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) ", all-1) + fill)
		must(t, err)
	}
	q := store.OldDeployments{Before: time.UnixMilli(300), Keep: 15, Limit: atOnce}
	removed, batches := 0, 0
	for more := true; more; more = q.Cursor != "" {
		n, next, err := e.store.RemoveDeployments(t.Context(), q)
		must(t, err)
		if n > atOnce {
			t.Fatalf("removed %d at once", n)
		}
		removed, batches, q.Cursor = removed+n, batches+1, next
	}
	left := count(t, db, "SELECT COUNT(*) FROM deployments")
	if removed != old || left != all-old || batches != 60 {
		t.Errorf("removed %d in %d batches, %d are left", removed, batches, left)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM stages"); n != left {
		t.Errorf("%d stages are left of %d deployments", n, left)
	}
}

// testOldStageLogs: each stage that ran gets a line that explains why its log is missing.
func testOldStageLogs(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	write := func(id string, lines int) {
		t.Helper()
		var blocks []deploy.LogBlock
		for i := range lines {
			blocks = append(blocks, deploy.LogBlock{DeploymentID: id, StageID: "sync", Index: int64(i), Severity: deploy.SeverityInfo, Log: numbered("line", i), At: e.clock.now()})
		}
		must(t, e.store.AppendStageLogs(ctx, blocks))
	}
	e.create(t, "never ran", a)
	e.fail(t, "never ran")
	for _, id := range []string{"long", "short"} {
		e.create(t, id, a)
		e.run(t, id)
		e.succeed(t, id)
	}
	write("long", 25)
	write("short", 3)
	before := e.clock.now()
	e.create(t, "young", a)
	e.run(t, "young")
	write("young", 2)
	e.succeed(t, "young")
	e.create(t, "runs", a)
	e.run(t, "runs")
	write("runs", 2)

	var steps []int
	for more := true; more; {
		n, again, err := e.store.RemoveStageLogs(ctx, before, "gone after 90 days", 10)
		must(t, err)
		steps, more = append(steps, n), again
	}
	if diff := cmp.Diff([]int{10, 10, 8}, steps); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	for id, want := range map[string][]string{"never ran": nil, "long": {"gone after 90 days"}, "short": {"gone after 90 days"}, "young": {"line-000", "line-001"}, "runs": {"line-000", "line-001"}} {
		logs, err := e.store.StageLogs(ctx, id)
		must(t, err)
		var got []string
		for _, b := range slices.Concat(slices.Collect(maps.Values(logs))...) {
			if got = append(got, b.Log); b.StageID != "sync" || b.Severity != deploy.SeverityInfo {
				t.Errorf("%s: %+v", id, b)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the log of %s (-want +got):\n%s", id, diff)
		}
	}
	if n, more, err := e.store.RemoveStageLogs(ctx, before, "again", 10); n != 0 || more || err != nil {
		t.Errorf("once more: %d, %t, %v", n, more, err)
	}
}

// testOldCommands: commands completed long ago are deleted, open ones are retained.
func testOldCommands(t *testing.T, e *env) {
	ctx := t.Context()
	for i := range 7 {
		_, err := e.store.CreateCommand(ctx, deploy.Command{ID: numbered("c", i), Type: deploy.CommandSync})
		must(t, err)
	}
	for i := range 5 {
		must(t, e.store.FinishCommand(ctx, numbered("c", i), deploy.CommandSucceeded, nil))
	}
	before := e.clock.now()
	must(t, e.store.FinishCommand(ctx, "c-005", deploy.CommandSucceeded, nil))
	for _, want := range []int{3, 2, 0} {
		if n, err := e.store.RemoveCommands(ctx, before, 3); n != want || err != nil {
			t.Errorf("removed %d, %v, want %d", n, err, want)
		}
	}
	for i, want := range []bool{false, false, false, false, false, true, true} {
		if _, err := e.store.Command(ctx, numbered("c", i)); (err == nil) != want {
			t.Errorf("command %d: %v", i, err)
		}
	}
}

// nothingDangles checks that references to deployments have a target, except references that
// are only displayed or compared.
func nothingDangles(t *testing.T, e *env) {
	t.Helper()
	db := Raw(t, e.dsn)
	tables := withColumn(t, db, "deployment_id")
	if len(tables) < 10 {
		t.Errorf("only the tables %v name deployments", tables)
	}
	for _, table := range tables {
		if table == "outbox" || table == "analyses_passed" {
			continue // events and passed analyses outlive their deployment
		}
		n := count(t, db, "SELECT COUNT(*) FROM "+table+" WHERE deployment_id <> '' AND deployment_id NOT IN (SELECT id FROM deployments)")
		if n > 0 {
			t.Errorf("%d rows of %s name a deployment that is gone", n, table)
		}
	}
	if n := count(t, db, "SELECT COUNT(*) FROM chains WHERE id NOT IN (SELECT chain_id FROM deployments)"); n > 0 {
		t.Errorf("%d chains have no deployment", n)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM applications WHERE last_successful_id <> '' AND last_successful_id NOT IN (SELECT id FROM deployments)"); n > 0 {
		t.Errorf("the last success of %d applications is gone", n)
	}
}

// withColumn returns the names of the tables that have a column, sorted.
func withColumn(t *testing.T, db *sql.DB, column string) (tables []string) {
	t.Helper()
	query := "SELECT table_name FROM information_schema.columns WHERE column_name = '" + column + "' AND table_schema = current_schema()"
	var sqlite int
	if db.QueryRow("SELECT COUNT(*) FROM sqlite_master").Scan(&sqlite) == nil {
		query = "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = '" + column + "'"
	}
	rows, err := db.Query(query)
	must(t, err)
	defer rows.Close() //nolint:errcheck // rows.Err reports what matters
	for rows.Next() {
		var name string
		must(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	must(t, rows.Err())
	slices.Sort(tables)
	return tables
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	must(t, db.QueryRow(query).Scan(&n))
	return n
}
