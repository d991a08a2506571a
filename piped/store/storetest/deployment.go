package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func testDeploymentLife(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	created := e.create(t, "d1", a)
	e.same(t, created)
	got, err := e.store.Application(ctx, a.ID)
	if err != nil || got.LastTriggered == nil || got.LastTriggered.DeploymentID != "d1" || got.EvaluatedCommit != created.Trigger.Commit.Hash || got.Deploying {
		t.Fatalf("application after the trigger: %+v, %v", got, err)
	}
	e.same(t, e.run(t, "d1"))
	if got, err = e.store.Application(ctx, a.ID); err != nil || !got.Deploying {
		t.Errorf("the application is not deploying: %v", err)
	}
	e.same(t, e.update(t, "d1", func(d *deploy.Deployment) error {
		d.Metadata = map[string]string{"a": "1"}
		d.Stages[0].Metadata = map[string]string{"b": "2"}
		return nil
	}))
	done := e.succeed(t, "d1")
	e.same(t, done)
	if got, err = e.store.Application(ctx, a.ID); err != nil || got.Deploying {
		t.Errorf("the application is still deploying: %v", err)
	}
	if diff := cmp.Diff(done.Ref(), got.LastSuccessful); diff != "" {
		t.Errorf("last success (-want +got):\n%s", diff)
	}
	moves, err := e.store.Transitions(ctx, "d1")
	if err != nil {
		t.Fatal(err)
	}
	var log, keys []string
	for _, m := range moves {
		log = append(log, m.StageID+":"+m.From+">"+m.To)
	}
	want := []string{":>PENDING", ":PENDING>PLANNED", "sync:>NOT_STARTED_YET", "rollback:>NOT_STARTED_YET", ":PLANNED>RUNNING",
		"sync:NOT_STARTED_YET>RUNNING", "sync:RUNNING>SUCCESS", ":RUNNING>SUCCESS"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("transition log (-want +got):\n%s", diff)
	}
	events, err := e.store.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events {
		keys = append(keys, ev.Key)
	}
	want = []string{"d1//PENDING", "d1//PLANNED", "d1//RUNNING", "d1/sync/RUNNING", "d1/sync/SUCCESS", "d1//SUCCESS"}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("outbox (-want +got):\n%s", diff)
	}
}

// same fails the test unless the stored deployment equals want, which a write returned.
func (e *env) same(t *testing.T, want deploy.Deployment) {
	t.Helper()
	got, err := e.store.Deployment(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("stored deployment (-returned +read):\n%s", diff)
	}
}

func testDeploymentRefusals(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	d := e.create(t, "d1", a)
	_, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment("d1", a, deploy.OnCommit)})
	wantKind(t, err, deploy.Exists, "d1 exists already")
	_, err = e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment("d2", app("nobody"), deploy.OnCommit)})
	wantKind(t, err, deploy.NotFound, "no application app-nobody")
	running := e.deployment("d3", a, deploy.OnCommit)
	running.Status = deploy.Running
	_, err = e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: running})
	wantKind(t, err, deploy.Illegal, `from "" to "RUNNING"`)
	_, err = e.store.UpdateDeployment(ctx, "nobody", func(*deploy.Deployment) error { return nil })
	wantKind(t, err, deploy.NotFound, "no deployment nobody")
	_, err = e.store.UpdateDeployment(ctx, "d1", func(d *deploy.Deployment) error { d.Status = deploy.Success; return nil })
	wantKind(t, err, deploy.Illegal, "not a legal transition")
	mine := errors.New("mine")
	if _, err = e.store.UpdateDeployment(ctx, "d1", func(d *deploy.Deployment) error { d.Summary = "lost"; return mine }); err != mine {
		t.Errorf("the func's error came back as %v", err)
	}
	unchanged := e.update(t, "d1", func(d *deploy.Deployment) error {
		d.ApplicationID, d.Trigger.Kind, d.Labels, d.Revision = "other", deploy.OnChain, nil, 99
		return nil
	})
	if diff := cmp.Diff(d, unchanged, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("an update that changes nothing (-want +got):\n%s", diff)
	}
	e.same(t, d)
	cancelled := e.update(t, "d1", func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "by jane", e.clock.now()) })
	_, err = e.store.UpdateDeployment(ctx, "d1", func(d *deploy.Deployment) error { d.Summary = "too late"; return nil })
	wantKind(t, err, deploy.Illegal, "CANCELLED")
	e.same(t, cancelled)
}

func testDeploymentPages(t *testing.T, e *env) {
	ctx, a, b := t.Context(), e.putApp(t, "a"), e.putApp(t, "b")
	e.clock.stand.Store(true)
	var want []string
	for i := range 7 {
		owner := a
		if i%2 == 1 {
			owner = b
		}
		want = append(want, e.create(t, numbered("d", i), owner).ID)
	}
	e.clock.stand.Store(false)
	e.clock.now()
	e.run(t, want[4])
	byUpdate := []string{want[4], want[0], want[1], want[2], want[3], want[5], want[6]}
	for name, c := range map[string]struct {
		query store.DeploymentQuery
		want  []string
	}{
		"all":               {store.DeploymentQuery{Limit: 3}, byUpdate},
		"status":            {store.DeploymentQuery{Statuses: []deploy.Status{deploy.Running, deploy.Failure}}, want[4:5]},
		"pages of statuses": {store.DeploymentQuery{Statuses: []deploy.Status{deploy.Pending, deploy.Failure, deploy.Running}, Limit: 2}, byUpdate},
		"pages of statuses and a kind": {store.DeploymentQuery{
			Statuses: []deploy.Status{deploy.Pending, deploy.Running}, Kinds: []string{"KUBERNETES"}, Limit: 3,
		}, byUpdate},
		"pages of a status and a label": {store.DeploymentQuery{Statuses: []deploy.Status{deploy.Pending}, Labels: map[string]string{"name": "a"}, Limit: 2},
			[]string{want[0], want[2], want[6]}},
		"pages of a label":          {store.DeploymentQuery{Labels: map[string]string{"team": "core", "name": "b"}, Limit: 2}, []string{want[1], want[3], want[5]}},
		"a page of an unused label": {store.DeploymentQuery{Labels: map[string]string{"team": "other"}, Limit: 2}, nil},
		"kind":                      {store.DeploymentQuery{Kinds: []string{"KUBERNETES"}, Limit: 2}, byUpdate},
		"other kind":                {store.DeploymentQuery{Kinds: []string{"TERRAFORM"}}, nil},
		"applications":              {store.DeploymentQuery{ApplicationIDs: []string{b.ID, "nobody"}, Limit: 1}, []string{want[1], want[3], want[5]}},
		"name":                      {store.DeploymentQuery{ApplicationName: "b"}, []string{want[1], want[3], want[5]}},
		"commit":                    {store.DeploymentQuery{Commits: []string{"c0ffee0123-" + want[1]}}, []string{want[1]}},
		"commits":                   {store.DeploymentQuery{Commits: []string{"c0ffee0123-" + want[1], "c0ffee0123-" + want[3]}}, []string{want[1], want[3]}},
		"labels":                    {store.DeploymentQuery{Labels: map[string]string{"team": "core", "name": "b"}}, []string{want[1], want[3], want[5]}},
	} {
		if diff := cmp.Diff(c.want, e.deploymentPages(t, c.query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, _, err := e.store.ListDeployments(ctx, store.DeploymentQuery{Cursor: "bm90IGpzb24"})
	wantKind(t, err, deploy.Invalid, "cursor")
	pending, err := e.store.DeploymentsIn(ctx, deploy.Pending, deploy.Running)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, ids(pending)); diff != "" {
		t.Errorf("by trigger (-want +got):\n%s", diff)
	}
	if len(pending[4].Stages) != 2 || pending[4].Stages[1].ID != "rollback" {
		t.Errorf("stages of a listed deployment: %+v", pending[4].Stages)
	}
	brief, _, err := e.store.ListDeployments(ctx, store.DeploymentQuery{ActiveStages: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range brief {
		whole, err := e.store.Deployment(ctx, d.ID)
		if err != nil {
			t.Fatal(err)
		}
		if whole.Status.Completed() {
			whole.Stages = nil
		}
		if diff := cmp.Diff(whole, d); diff != "" {
			t.Errorf("%s with the stages of active deployments only (-want +got):\n%s", d.ID, diff)
		}
	}
}

func (e *env) deploymentPages(t *testing.T, q store.DeploymentQuery) []string {
	t.Helper()
	var out []string
	for {
		page, cursor, err := e.store.ListDeployments(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if (cursor == "") != (len(page) == 0) {
			t.Fatalf("%d deployments with the cursor %q", len(page), cursor)
		}
		for _, id := range ids(page) {
			if slices.Contains(out, id) {
				t.Fatalf("%s is on two pages", id)
			}
			out = append(out, id)
		}
		if cursor == "" {
			return out
		}
		q.Cursor = cursor
	}
}

func testDeploymentCommand(t *testing.T, e *env) {
	ctx, a := t.Context(), e.putApp(t, "web")
	c, err := e.store.CreateCommand(ctx, deploy.Command{ID: "c1", Type: deploy.CommandSync, ApplicationID: a.ID, Metadata: map[string]string{"kept": "yes"}})
	if err != nil {
		t.Fatal(err)
	}
	create := func(id, command string) error {
		_, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment(id, a, deploy.OnCommand), CommandID: command})
		return err
	}
	if err := create("d1", c.ID); err != nil {
		t.Fatal(err)
	}
	if c, err = e.store.Command(ctx, c.ID); err != nil || c.Status != deploy.CommandSucceeded || c.HandledAt.IsZero() {
		t.Errorf("command: %+v, %v", c, err)
	}
	want := map[string]string{"kept": "yes", deploy.MetaTriggeredDeployment: "d1"}
	if diff := cmp.Diff(want, c.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	wantKind(t, create("d2", c.ID), deploy.Conflict, "c1 was answered before")
	wantKind(t, create("d3", "nobody"), deploy.NotFound, "no command nobody")
	if diff := cmp.Diff([]string{"d1"}, e.deploymentPages(t, store.DeploymentQuery{})); diff != "" {
		t.Errorf("a refused deployment was written (-want +got):\n%s", diff)
	}
	if got, err := e.store.Application(ctx, a.ID); err != nil || got.LastTriggered.DeploymentID != "d1" {
		t.Errorf("a refused deployment was noted: %+v, %v", got.LastTriggered, err)
	}
}

func testSupersede(t *testing.T, e *env) {
	ctx, a, other := t.Context(), e.putApp(t, "web"), e.putApp(t, "other")
	begins, chained := e.deployment("begins", a, deploy.OnCommit), e.deployment("chained", a, deploy.OnChain)
	begins.ChainID, chained.ChainID, chained.ChainBlock = "chain", "other chain", 1
	for _, d := range []deploy.Deployment{
		e.deployment("commit", a, deploy.OnCommit), e.deployment("drift", a, deploy.OnOutOfSync), e.deployment("planned", a, deploy.OnCommit),
		e.deployment("manual", a, deploy.OnCommand), e.deployment("elsewhere", other, deploy.OnCommit), begins, chained,
	} {
		if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
			t.Fatal(err)
		}
	}
	e.update(t, "planned", func(d *deploy.Deployment) error { return d.Plan(plan(), e.clock.now()) })
	if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: e.deployment("newer", a, deploy.OnCommit), Supersede: true}); err != nil {
		t.Fatal(err)
	}
	got := map[string]deploy.Status{}
	for _, id := range []string{"commit", "drift", "planned", "manual", "elsewhere", "begins", "chained", "newer"} {
		d, err := e.store.Deployment(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		got[id] = d.Status
		by := ""
		if d.Status == deploy.Cancelled {
			by = "newer"
		}
		if d.SupersededBy != by {
			t.Errorf("%s is superseded by %q, want %q", id, d.SupersededBy, by)
		}
	}
	want := map[string]deploy.Status{"commit": deploy.Cancelled, "drift": deploy.Cancelled, "planned": deploy.Cancelled,
		"begins": deploy.Cancelled, "manual": deploy.Pending, "elsewhere": deploy.Pending, "chained": deploy.Pending, "newer": deploy.Pending}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	moves, err := e.store.Transitions(ctx, "planned")
	if err != nil {
		t.Fatal(err)
	}
	last := moves[len(moves)-1]
	if last.To != "CANCELLED" || last.Reason != "Superseded by the newer deployment newer of commit c0ffee0" {
		t.Errorf("the log says %+v", last)
	}
	events, err := e.store.Events(ctx, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var cancelled int
	for _, ev := range events {
		if ev.Type == deploy.EventCancelled {
			cancelled++
		}
	}
	if cancelled != 4 {
		t.Errorf("%d events of a cancellation, want 4", cancelled)
	}
}

// testReplace: a new deployment requests the cancellation of running deployments that Git or
// drift triggered; without the new deployment nothing is requested.
func testReplace(t *testing.T, e *env) {
	ctx := t.Context()
	for kind, cancelled := range map[deploy.TriggerKind]bool{
		deploy.OnCommit: true, deploy.OnOutOfSync: true, deploy.OnCommand: false, deploy.OnChain: false,
	} {
		a := e.putApp(t, string(kind))
		running := e.deployment("running-"+string(kind), a, kind)
		if _, err := e.store.CreateDeployment(ctx, store.NewDeployment{Deployment: running}); err != nil {
			t.Fatal(err)
		}
		e.update(t, running.ID, func(d *deploy.Deployment) error { return d.Plan(plan(), e.clock.now()) })
		e.update(t, running.ID, func(d *deploy.Deployment) error { return d.Start(e.clock.now()) })
		newer := store.NewDeployment{Deployment: e.deployment("newer-"+string(kind), a, deploy.OnCommit), Replace: true}
		if _, err := e.store.CreateDeployment(ctx, newer); err != nil {
			t.Fatal(err)
		}
		_, err := e.store.CreateDeployment(ctx, newer)
		wantKind(t, err, deploy.Exists, "exists already")

		var got []deploy.Command
		open, err := e.store.OpenCommands(ctx, deploy.CommandCancel)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range open {
			if c.ApplicationID == a.ID {
				if c.SupersededBy != newer.Deployment.ID {
					t.Errorf("%s is replaced by %q, want %s", kind, c.SupersededBy, newer.Deployment.ID)
				}
				got = append(got, c)
			}
		}
		switch {
		case !cancelled && len(got) != 0:
			t.Errorf("%s: cancelled by %+v", kind, got)
		case cancelled && (len(got) != 1 || got[0].DeploymentID != running.ID || !got[0].ForceNoRollback || got[0].Commander != "trigger.queue: replace, for commit c0ffee0"):
			t.Errorf("%s: the cancels are %+v", kind, got)
		}
	}
}

// testDeploymentsByPrefix: deployments are found by ID prefix, the last triggered first.
func testDeploymentsByPrefix(t *testing.T, e *env) {
	for id, app := range map[string]string{"0ab-first": "web", "0AB-third": "cache"} {
		e.create(t, id, e.putApp(t, app))
	}
	e.create(t, "0ab-second", e.putApp(t, "db"))
	for prefix, want := range map[string][]string{"0ab": {"0ab-second", "0ab-first"}, "0ab-f": {"0ab-first"}, "%": nil, "0_b": nil} {
		ds, err := e.store.DeploymentsByPrefix(t.Context(), prefix, 5)
		must(t, err)
		var got []string
		for _, d := range ds {
			got = append(got, d.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", prefix, diff)
		}
	}
	if ds, err := e.store.DeploymentsByPrefix(t.Context(), "0ab", 1); err != nil || len(ds) != 1 {
		t.Errorf("with a limit: %d, %v", len(ds), err)
	}
}

func testDeploymentsAtStage(t *testing.T, e *env) {
	for _, id := range []string{"waiting", "before", "after", "done"} {
		e.create(t, id, e.putApp(t, "app-"+id))
		e.run(t, id)
	}
	stage := func(id string) {
		e.update(t, id, func(d *deploy.Deployment) error { return d.StartStage("sync", e.clock.now()) })
	}
	stage("waiting")
	stage("after")
	e.update(t, "after", func(d *deploy.Deployment) error {
		return d.FinishStage("sync", deploy.StageSuccess, "done", e.clock.now())
	})
	e.succeed(t, "done")
	for name, want := range map[string][]string{deploy.StageK8sSync: {"waiting"}, deploy.StageWaitApproval: nil} {
		found, err := e.store.DeploymentsAtStage(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, ids(found), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", name, diff)
		}
		for _, d := range found {
			e.same(t, d)
		}
	}
}
