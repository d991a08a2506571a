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

// TestOldestFirst: an application's deployments are planned one by one, the
// oldest first; each waits for the end of the one before. Other applications do
// not wait.
func TestOldestFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		now := time.Now()
		var loaded []string
		l.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if git.Dir == "web" {
				loaded = append(loaded, strings.TrimPrefix(commit, "c0ffee0123456789-"))
			}
			return l.read(ctx, git, commit)
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

// TestFailedPlanMakesRoom: a deployment that cannot be planned is a warning in the log and
// no obstacle to the next one.
func TestFailedPlanMakesRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		l.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if commit == "c0ffee0123456789-a" {
				return nil, deploy.Errorf(deploy.Invalid, "web/d.yaml:3: expected an object")
			}
			return l.read(ctx, git, commit)
		}
		l.start()
		synctest.Wait()
		l.create("a", "web", time.Now())
		l.create("b", "web", time.Now().Add(time.Second))
		synctest.Wait()
		if diff := cmp.Diff([]string{"a FAILURE", "b PLANNED"}, l.statuses("a", "b")); diff != "" {
			t.Errorf("deployments (-want +got):\n%s", diff)
		}
		l.shutdown()
		failed := regexp.MustCompile(`level=WARN msg="deployment not planned" .*deployment=a .*status=FAILURE reason="[^"]*web/d.yaml:3: expected an object"`)
		if log := l.said.String(); !failed.MatchString(log) || strings.Count(log, "level=WARN") != 1 {
			t.Errorf("the failure is not the only warning in the log:\n%s", log)
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
		l.load = func(ctx context.Context, git deploy.GitPath, commit string) (*source.Source, error) {
			if git.Dir == "db" {
				return l.read(ctx, git, commit)
			}
			tries = append(tries, time.Since(began))
			if len(tries) < 4 {
				return nil, errors.New("disk full")
			}
			return l.read(ctx, git, commit)
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
