package planner

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

// TestOldestFirst: an application's deployments are planned oldest first, each after
// the end of the one before. Other applications do not wait.
func TestOldestFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		now := time.Now()
		var loaded []string
		e.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if git.Dir == "web" {
				loaded = append(loaded, strings.TrimPrefix(commit, "c0ffee0123456789-"))
			}
			return e.read(ctx, git, commit)
		}
		e.create("b", "web", now)
		e.create("a", "web", now) // triggered at the same moment: the ID decides
		e.create("c", "web", now.Add(-time.Minute))
		e.create("x", "db", now)
		e.start()
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
				e.finish(s.end, s.as)
				synctest.Wait()
			}
			if diff := cmp.Diff(s.want, e.statuses("a", "b", "c", "x")); diff != "" {
				t.Errorf("after the end of %q (-want +got):\n%s", s.end, diff)
			}
		}
		if diff := cmp.Diff([]string{"c", "a", "b"}, loaded); diff != "" {
			t.Errorf("each is planned once, in turn (-want +got):\n%s", diff)
		}
	})
}

// TestFailedPlanMakesRoom: a deployment that cannot be planned is logged as a warning
// and does not block the next one.
func TestFailedPlanMakesRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if commit == "c0ffee0123456789-a" {
				return nil, deploy.Errorf(deploy.Invalid, "web/d.yaml:3: expected an object")
			}
			return e.read(ctx, git, commit)
		}
		e.start()
		synctest.Wait()
		e.create("a", "web", time.Now())
		e.create("b", "web", time.Now().Add(time.Second))
		synctest.Wait()
		if diff := cmp.Diff([]string{"a FAILURE", "b PLANNED"}, e.statuses("a", "b")); diff != "" {
			t.Errorf("deployments (-want +got):\n%s", diff)
		}
		e.shutdown()
		failed := regexp.MustCompile(`level=WARN msg="deployment not planned" .*deployment=a .*status=FAILURE reason="[^"]*web/d.yaml:3: expected an object"`)
		if log := e.logged.String(); !failed.MatchString(log) || strings.Count(log, "level=WARN") != 1 {
			t.Errorf("the failure is not the only warning in the log:\n%s", log)
		}
	})
}

// TestCannotBePlanned: errors that end a deployment before it is planned.
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
			return deploy.Plan{}, deploy.Errorf(deploy.Invalid, "a pipeline was requested")
		}, want: "Cannot be planned: a pipeline was requested"},
		{name: "a panic", plan: func() (deploy.Plan, error) { panic("nil map") },
			want: "Cannot be planned: internal error while planning: nil map; please report it with the agent's log"},
		{name: "another kind", app: "terraform", want: "Cannot be planned: this agent cannot deploy applications of kind TERRAFORM"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				if c.load != nil {
					e.load = c.load
				}
				if c.plan != nil {
					e.plan = c.plan
				}
				if c.app == "" {
					c.app = "web"
				}
				e.start()
				e.create("d", c.app, time.Now())
				synctest.Wait()
				if d := e.get("d"); d.Status != deploy.Failure || d.StatusReason != c.want {
					t.Errorf("%s because %q,\nwant FAILURE because %q", d.Status, d.StatusReason, c.want)
				}
			})
		})
	}
}

// TestPlanningIsTriedAgain: temporary errors are retried with backoff and do not delay
// other applications.
func TestPlanningIsTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		var tries []time.Duration
		began := time.Now()
		e.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if git.Dir == "db" {
				return e.read(ctx, git, commit)
			}
			tries = append(tries, time.Since(began))
			if len(tries) < 4 {
				return nil, errors.New("disk full")
			}
			return e.read(ctx, git, commit)
		}
		e.start()
		e.create("d", "web", time.Now())
		e.create("x", "db", time.Now())
		synctest.Wait()
		if diff := cmp.Diff([]string{"d PENDING", "x PLANNED"}, e.statuses("d", "x")); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"d PLANNED", "x PLANNED"}, e.statuses("d", "x")); diff != "" {
			t.Errorf("later (-want +got):\n%s", diff)
		}
		if want := []time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond}; !cmp.Equal(want, tries) {
			t.Errorf("tried at %v, want %v", tries, want)
		}
	})
}

// TestPlanContents: the deployment contains the plan and the application's last success
// as the target of a rollback.
func TestPlanContents(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		e.plan = func() (deploy.Plan, error) {
			return deploy.Plan{
				Summary: "Quick sync", Timeout: time.Hour, RollbackTimeout: time.Minute, Versions: []deploy.ArtifactVersion{{Version: "v1"}},
				Stages: []deploy.Stage{{ID: "sync", Name: deploy.StageK8sSync}},
			}, nil
		}
		e.start()
		e.create("first", "web", time.Now())
		synctest.Wait()
		if d := e.get("first"); d.RunningCommit != "" || d.RunningDeploymentID != "" {
			t.Errorf("a first deployment has %q of %q to return to", d.RunningCommit, d.RunningDeploymentID)
		}
		e.finish("first", deploy.Success)
		e.create("second", "web", time.Now())
		synctest.Wait()
		d := e.get("second")
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

// TestSupersededWhilePlanning: a deployment that is cancelled during its planning stays
// cancelled.
func TestSupersededWhilePlanning(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		planned := e.plan
		e.plan = func() (deploy.Plan, error) {
			time.Sleep(time.Second)
			return planned()
		}
		e.start()
		e.create("d", "web", time.Now())
		synctest.Wait()
		e.finish("d", deploy.Cancelled)
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := e.get("d"); d.Status != deploy.Cancelled || d.StatusReason != "by the test" {
			t.Errorf("%s because %q", d.Status, d.StatusReason)
		}
	})
}

// TestRestartWhilePlanning: an interrupted planning is repeated after the restart.
func TestRestartWhilePlanning(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		planned := e.load
		e.load = func(ctx context.Context, _ deploy.GitPath, _ string) (*source.Source, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		e.start()
		e.create("d", "web", time.Now())
		synctest.Wait()
		e.shutdown()
		if d := e.get("d"); d.Status != deploy.Pending {
			t.Fatalf("after the shutdown it is %s because %q", d.Status, d.StatusReason)
		}
		e.load = planned
		e.start()
		synctest.Wait()
		if d := e.get("d"); d.Status != deploy.Planned {
			t.Errorf("after the restart it is %s because %q", d.Status, d.StatusReason)
		}
	})
}
