package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// load and decide make a Sources and a Decider of functions.
type (
	load   func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error)
	decide func() (deploy.Plan, error)
)

func (f load) Load(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
	return f(ctx, git, commit)
}

func (f decide) Decide(context.Context, deploy.Application, deploy.Deployment, *source.Source, func(context.Context) (*source.Source, error)) (deploy.Plan, error) {
	return f()
}

// lab is a store and a planner on it, inside a bubble of testing/synctest.
type lab struct {
	t     *testing.T
	store *store.Store
	load  load
	plan  decide
	stop  context.CancelFunc
	ended chan error
}

func inBubble(t *testing.T, test func(t *testing.T, l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), storetest.SQLite(t), store.Options{Key: storetest.Key()})
		if err != nil {
			t.Fatal(err)
		}
		l := &lab{t: t, store: s,
			load: func(_ context.Context, _ deploy.GitPath, commit string) (*source.Source, error) {
				return &source.Source{Commit: commit}, nil
			},
			plan: func() (deploy.Plan, error) {
				return deploy.Plan{Summary: "Quick sync", Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}}}, nil
			},
		}
		defer func() {
			l.shutdown()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, l)
	})
}

func (l *lab) start() {
	p := New(Config{
		Store: l.store, Now: time.Now, Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)),
		Sources: load(func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			return l.load(ctx, git, commit)
		}),
		Deciders: map[string]Decider{deploy.KindKubernetes: decide(func() (deploy.Plan, error) { return l.plan() })},
	})
	ctx, stop := context.WithCancel(context.Background())
	l.stop, l.ended = stop, make(chan error, 1)
	go func() { l.ended <- p.Run(ctx) }()
}

func (l *lab) shutdown() {
	if l.stop == nil {
		return
	}
	l.stop()
	if err := <-l.ended; err != nil {
		l.t.Errorf("Run = %v", err)
	}
	l.stop = nil
}

// create stores a PENDING deployment of an application.
func (l *lab) create(id, app string, at time.Time) {
	l.t.Helper()
	a := deploy.Application{ID: app, Name: app, Kind: deploy.KindKubernetes, Git: deploy.GitPath{RepoID: "r", Dir: app, ConfigFile: "app.pipecd.yaml"}}
	if app == "terraform" {
		a.Kind = "TERRAFORM"
	}
	if _, err := l.store.PutApplication(l.t.Context(), a); err != nil {
		l.t.Fatal(err)
	}
	_, err := l.store.CreateDeployment(l.t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: app, ApplicationName: app, Git: a.Git, Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommand, At: at, Commit: deploy.Commit{Hash: "c0ffee0123456789-" + id}},
	}})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) get(id string) deploy.Deployment {
	l.t.Helper()
	d, err := l.store.Deployment(l.t.Context(), id)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

// statuses returns "id STATUS" for each of these deployments.
func (l *lab) statuses(ids ...string) []string {
	l.t.Helper()
	var out []string
	for _, id := range ids {
		out = append(out, fmt.Sprintf("%s %s", id, l.get(id).Status))
	}
	return out
}

// finish brings a PLANNED deployment to its end.
func (l *lab) finish(id string, end deploy.Status) {
	l.t.Helper()
	moves := []func(*deploy.Deployment) error{func(d *deploy.Deployment) error { return d.Complete(end, "as told", time.Now()) }}
	if end == deploy.Success {
		moves = append([]func(*deploy.Deployment) error{func(d *deploy.Deployment) error { return d.Start(time.Now()) }}, moves...)
	}
	for _, move := range moves {
		if _, err := l.store.UpdateDeployment(l.t.Context(), id, move); err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestOldestFirst: an application's deployments are planned one by one, the
// oldest first; each waits for the end of the one before. Other applications do
// not wait.
func TestOldestFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		now := time.Now()
		var loaded []string
		succeed := l.load
		l.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if git.Dir == "web" {
				loaded = append(loaded, strings.TrimPrefix(commit, "c0ffee0123456789-"))
			}
			return succeed(ctx, git, commit)
		}
		l.create("b", "web", now)
		l.create("a", "web", now) // triggered at the same moment: the ID decides
		l.create("c", "web", now.Add(-time.Minute))
		l.create("x", "db", now)
		l.start()
		synctest.Wait()
		steps := []struct {
			end  string
			as   deploy.Status
			want []string
		}{
			{"", "", []string{"a PENDING", "b PENDING", "c PLANNED", "x PLANNED"}},
			{"c", deploy.Success, []string{"a PLANNED", "b PENDING", "c SUCCESS", "x PLANNED"}},
			{"a", deploy.Cancelled, []string{"a CANCELLED", "b PLANNED", "c SUCCESS", "x PLANNED"}},
		}
		for _, s := range steps {
			if s.end != "" {
				l.finish(s.end, s.as)
				synctest.Wait()
			}
			if diff := cmp.Diff(s.want, l.statuses("a", "b", "c", "x")); diff != "" {
				t.Errorf("after the end of %q (-want +got):\n%s", s.end, diff)
			}
		}
		if diff := cmp.Diff([]string{"c", "a", "b"}, loaded); diff != "" {
			t.Errorf("each is looked at once, when its turn has come (-want +got):\n%s", diff)
		}
	})
}

// TestFailedPlanMakesRoom: a deployment that cannot be planned is no obstacle to
// the next one.
func TestFailedPlanMakesRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.load = func(_ context.Context, _ deploy.GitPath, commit string) (*source.Source, error) {
			if commit == "c0ffee0123456789-a" {
				return nil, deploy.Errorf(deploy.Invalid, "web/d.yaml:3: expected an object")
			}
			return &source.Source{}, nil
		}
		l.start()
		synctest.Wait()
		l.create("a", "web", time.Now())
		l.create("b", "web", time.Now().Add(time.Second))
		synctest.Wait()
		if diff := cmp.Diff([]string{"a FAILURE", "b PLANNED"}, l.statuses("a", "b")); diff != "" {
			t.Errorf("deployments (-want +got):\n%s", diff)
		}
	})
}

// TestCannotBePlanned states what ends a deployment before it is planned.
func TestCannotBePlanned(t *testing.T) {
	cases := []struct {
		name string
		app  string
		load load
		plan decide
		want string
	}{
		{name: "broken source", load: func(context.Context, deploy.GitPath, string) (*source.Source, error) {
			return nil, deploy.Errorf(deploy.Invalid, "web/d.yaml:3: expected an object")
		}, want: "Cannot be planned: load web/app.pipecd.yaml at commit c0ffee0: web/d.yaml:3: expected an object"},
		{name: "commit gone", load: func(context.Context, deploy.GitPath, string) (*source.Source, error) {
			return nil, deploy.Errorf(deploy.NotFound, "commit c0ffee0 is not in the mirror")
		}, want: "Cannot be planned: load web/app.pipecd.yaml at commit c0ffee0: commit c0ffee0 is not in the mirror"},
		{name: "refused by the decider", plan: func() (deploy.Plan, error) {
			return deploy.Plan{}, deploy.Errorf(deploy.Invalid, "a pipeline was asked for")
		}, want: "Cannot be planned: a pipeline was asked for"},
		{name: "a panic", plan: func() (deploy.Plan, error) { panic("nil map") },
			want: "Cannot be planned: internal error while planning: nil map; please report it with the agent's log"},
		{name: "another kind", app: "terraform", want: "Cannot be planned: this agent cannot deploy applications of kind TERRAFORM"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				if c.load != nil {
					l.load = c.load
				}
				if c.plan != nil {
					l.plan = c.plan
				}
				if c.app == "" {
					c.app = "web"
				}
				l.start()
				l.create("d", c.app, time.Now())
				synctest.Wait()
				if d := l.get("d"); d.Status != deploy.Failure || d.StatusReason != c.want {
					t.Errorf("%s because %q,\nwant FAILURE because %q", d.Status, d.StatusReason, c.want)
				}
			})
		})
	}
}

// TestPlanningIsTriedAgain: what cannot be planned now is tried again, less and
// less often, and delays no other application.
func TestPlanningIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		var tries []time.Duration
		began := time.Now()
		l.load = func(_ context.Context, git deploy.GitPath, _ string) (*source.Source, error) {
			if git.Dir == "db" {
				return &source.Source{}, nil
			}
			tries = append(tries, time.Since(began))
			if len(tries) < 4 {
				return nil, errors.New("disk full")
			}
			return &source.Source{}, nil
		}
		l.start()
		l.create("d", "web", time.Now())
		l.create("x", "db", time.Now())
		synctest.Wait()
		if diff := cmp.Diff([]string{"d PENDING", "x PLANNED"}, l.statuses("d", "x")); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"d PLANNED", "x PLANNED"}, l.statuses("d", "x")); diff != "" {
			t.Errorf("later (-want +got):\n%s", diff)
		}
		if want := []time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond}; !cmp.Equal(want, tries) {
			t.Errorf("tried at %v, want %v", tries, want)
		}
	})
}

// TestPlanContents: the deployment holds what was decided and the application's
// last success, to which a rollback returns.
func TestPlanContents(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.plan = func() (deploy.Plan, error) {
			return deploy.Plan{
				Summary: "Quick sync", Timeout: time.Hour, RollbackTimeout: time.Minute, Versions: []deploy.ArtifactVersion{{Version: "v1"}},
				Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}},
			}, nil
		}
		l.start()
		l.create("first", "web", time.Now())
		synctest.Wait()
		if d := l.get("first"); d.RunningCommit != "" || d.RunningDeploymentID != "" {
			t.Errorf("a first deployment has %q of %q to return to", d.RunningCommit, d.RunningDeploymentID)
		}
		l.finish("first", deploy.Success)
		l.create("second", "web", time.Now())
		synctest.Wait()
		d := l.get("second")
		got := deploy.Plan{
			Summary: d.Summary, Versions: d.Versions, Timeout: d.Timeout, RollbackTimeout: d.RollbackTimeout,
			RunningCommit: d.RunningCommit, RunningConfigFile: d.RunningConfigFile, RunningDeploymentID: d.RunningDeploymentID,
		}
		want := deploy.Plan{
			Summary: "Quick sync", Versions: []deploy.ArtifactVersion{{Version: "v1"}}, Timeout: time.Hour, RollbackTimeout: time.Minute,
			RunningCommit: "c0ffee0123456789-first", RunningConfigFile: "app.pipecd.yaml", RunningDeploymentID: "first",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("plan (-want +got):\n%s", diff)
		}
		if s := d.Stages; len(s) != 1 || s[0].Status != deploy.StageNotStarted {
			t.Errorf("stages: %+v", s)
		}
	})
}

// TestSupersededWhilePlanning: a deployment that is cancelled while it is being
// planned stays cancelled.
func TestSupersededWhilePlanning(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		planned := l.plan
		l.plan = func() (deploy.Plan, error) {
			time.Sleep(time.Second)
			return planned()
		}
		l.start()
		l.create("d", "web", time.Now())
		synctest.Wait()
		l.finish("d", deploy.Cancelled)
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := l.get("d"); d.Status != deploy.Cancelled || d.StatusReason != "as told" {
			t.Errorf("%s because %q", d.Status, d.StatusReason)
		}
	})
}

// TestRestartWhilePlanning: what was being planned when the agent ended is
// planned after the next start.
func TestRestartWhilePlanning(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		planned := l.load
		l.load = func(ctx context.Context, _ deploy.GitPath, _ string) (*source.Source, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		l.start()
		l.create("d", "web", time.Now())
		synctest.Wait()
		l.shutdown()
		if d := l.get("d"); d.Status != deploy.Pending {
			t.Fatalf("after the shutdown it is %s because %q", d.Status, d.StatusReason)
		}
		l.load = planned
		l.start()
		synctest.Wait()
		if d := l.get("d"); d.Status != deploy.Planned {
			t.Errorf("after the restart it is %s because %q", d.Status, d.StatusReason)
		}
	})
}
