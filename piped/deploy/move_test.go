package deploy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTransitionTable states every legal move; all others are refused.
func TestTransitionTable(t *testing.T) {
	legal := map[[2]Status]bool{
		{"", Pending}:      true,
		{Pending, Pending}: true, {Pending, Planned}: true, {Pending, Failure}: true, {Pending, Cancelled}: true,
		{Planned, Planned}: true, {Planned, Running}: true, {Planned, Failure}: true, {Planned, Cancelled}: true,
		{Running, Running}: true, {Running, Success}: true, {Running, RollingBack}: true, {Running, Failure}: true, {Running, Cancelled}: true,
		{RollingBack, RollingBack}: true, {RollingBack, Failure}: true, {RollingBack, Cancelled}: true,
	}
	for _, from := range append(Statuses(), "") {
		for _, to := range Statuses() {
			err := CheckTransition(from, to)
			if (err == nil) != legal[[2]Status{from, to}] {
				t.Errorf("from %q to %q: %v", from, to, err)
			}
			if err != nil && !IsKind(err, Illegal) {
				t.Errorf("from %q to %q: kind %v, want illegal", from, to, KindOf(err))
			}
		}
	}
}

func TestStageTransitionTable(t *testing.T) {
	legal := map[[2]StageStatus]bool{
		{"", StageNotStarted}:              true,
		{StageNotStarted, StageNotStarted}: true, {StageNotStarted, StageRunning}: true, {StageNotStarted, StageSkipped}: true, {StageNotStarted, StageCancelled}: true,
		{StageRunning, StageRunning}: true, {StageRunning, StageSuccess}: true, {StageRunning, StageFailure}: true,
		{StageRunning, StageCancelled}: true, {StageRunning, StageSkipped}: true, {StageRunning, StageExited}: true,
	}
	for _, from := range append(StageStatuses(), "") {
		for _, to := range StageStatuses() {
			if err := CheckStageTransition(from, to); (err == nil) != legal[[2]StageStatus{from, to}] {
				t.Errorf("from %q to %q: %v", from, to, err)
			}
		}
	}
}

// TestMovesNeverBreakTheTable calls moves in random order: the table allows each
// accepted move, and a terminal status is final.
func TestMovesNeverBreakTheTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_700_000_000, 0)
		d := Deployment{ID: "d", Status: Pending}
		moves := map[string]func() error{
			"plan": func() error {
				return d.Plan(Plan{Timeout: time.Minute, Stages: []Stage{{ID: "a"}, {ID: "b"}, {ID: "r", Rollback: true}}}, now)
			},
			"start": func() error { return d.Start(now) },
			"stage": func() error { return d.StartStage(rapid.SampledFrom([]string{"a", "b", "r", "x"}).Draw(t, "id"), now) },
			"finish": func() error {
				return d.FinishStage(rapid.SampledFrom([]string{"a", "b", "r"}).Draw(t, "id"), rapid.SampledFrom(StageStatuses()).Draw(t, "to"), "", now)
			},
			"rollback": func() error { return d.BeginRollback(rapid.SampledFrom(Statuses()).Draw(t, "outcome"), "", now) },
			"complete": func() error { return d.Complete(rapid.SampledFrom(Statuses()).Draw(t, "to"), "", now) },
		}
		names := []string{"plan", "start", "stage", "finish", "rollback", "complete"}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Second)
			before := d.Clone()
			err := moves[rapid.SampledFrom(names).Draw(t, "move")]()
			if err != nil {
				if len(d.Diff(&before, now)) != 0 {
					t.Fatalf("a refused move changed the deployment: %v", d.Diff(&before, now))
				}
				continue
			}
			if before.Status.Completed() {
				t.Fatalf("a deployment that was %s moved to %s", before.Status, d.Status)
			}
			if err := d.CheckMove(&before); err != nil {
				t.Fatalf("move allowed but not in the table: %v", err)
			}
		}
	})
}

func TestRestartDoesNotMoveADeadline(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	d := Deployment{ID: "d", Status: Pending}
	must(t, d.Plan(Plan{Stages: []Stage{{ID: "a", Timeout: time.Minute}}}, now))
	must(t, d.Start(now))
	must(t, d.StartStage("a", now))
	want := now.Add(time.Minute)
	must(t, d.StartStage("a", now.Add(30*time.Second)))
	if got := d.Stage("a").Deadline; !got.Equal(want) {
		t.Errorf("deadline moved from %v to %v", want, got)
	}
}

func TestApplicationIDIsStable(t *testing.T) {
	p := GitPath{RepoID: "repo", Dir: "apps/web", ConfigFile: "app.pipecd.yaml"}
	const want = "91fad849-f58e-5d0e-8112-b1891962a68d"
	if got := ApplicationID(p); got != want {
		t.Errorf("ApplicationID = %s, want %s: it must survive a lost database", got, want)
	}
	moved := p
	moved.Remote, moved.Branch = "elsewhere", "main"
	if ApplicationID(moved) != ApplicationID(p) {
		t.Error("the ID must not depend on the remote or the branch")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
