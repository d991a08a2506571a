package trigger

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// live is a Live of a function.
type live func(provider, dir string) ([]string, error)

func (f live) RunningCommits(_ context.Context, provider string, git deploy.GitPath, _ string) ([]string, error) {
	return f(provider, git.Dir)
}

// Foreign reports no objects of others.
func (f live) Foreign(context.Context, string, deploy.Application, string) ([]deploy.AdoptedObject, error) {
	return nil, nil
}

// end completes the newest deployment of an application.
func (l *env) end(dir string, to deploy.Status) {
	l.t.Helper()
	d := l.run(dir)
	if _, err := l.store.UpdateDeployment(l.t.Context(), d.ID, func(d *deploy.Deployment) error { return d.Complete(to, "", l.clock()) }); err != nil {
		l.t.Fatal(err)
	}
}

// TestTakeOver: what runs when an application is first seen is deployed again as
// it is; what the branch has brought since follows once that has ended.
func TestTakeOver(t *testing.T) {
	for name, outcome := range map[string]deploy.Status{"succeeds": deploy.Success, "fails": deploy.Failure} {
		t.Run("the take-over "+name, func(t *testing.T) {
			var running []string
			l := newEnv(t, func(_ *env, c *Config) {
				c.Live = live(func(string, string) ([]string, error) { return running, nil })
			})
			older := l.upstream.Push(t, "older", map[string]string{"web/app.pipecd.yaml": appFile("web"), "web/a.yaml": "1"})
			running = []string{older, l.upstream.Push(t, "running", map[string]string{"web/a.yaml": "2"}), strings.Repeat("0", 40)}
			l.push("head", map[string]string{"web/a.yaml": "3"})

			if diff := cmp.Diff([]string{"running PENDING"}, l.deployments("web")); diff != "" {
				t.Fatalf("at first sight (-want +got):\n%s", diff)
			}
			trigger := l.all("web")[0].Trigger
			if !trigger.TakeOver || trigger.Strategy != deploy.StrategyQuickSync || !strings.Contains(trigger.StrategySummary, "Taking over") {
				t.Errorf("the trigger is %+v", trigger)
			}
			l.push("newer", map[string]string{"web/a.yaml": "4"})
			if diff := cmp.Diff([]string{"running PENDING"}, l.deployments("web")); diff != "" {
				t.Fatalf("while it is under way (-want +got):\n%s", diff)
			}
			l.end("web", outcome)
			l.poll()
			want := []string{"running " + string(outcome), "newer PENDING"}
			if diff := cmp.Diff(want, l.deployments("web")); diff != "" {
				t.Fatalf("once it has ended (-want +got):\n%s", diff)
			}
			if l.all("web")[1].Trigger.TakeOver {
				t.Error("what followed takes over again")
			}
		})
	}
}

// TestTakeOverOfTheHead: where the head runs already, it is deployed once.
func TestTakeOverOfTheHead(t *testing.T) {
	var running []string
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(string, string) ([]string, error) { return running, nil })
	})
	running = []string{l.upstream.Push(t, "head", map[string]string{"web/app.pipecd.yaml": appFile("web")})}
	l.poll()
	l.end("web", deploy.Success)
	l.poll()
	if diff := cmp.Diff([]string{"head SUCCESS"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

// TestNothingToTakeOver states when an application is deployed as new.
func TestNothingToTakeOver(t *testing.T) {
	cases := map[string]struct {
		spec string
		live func(older string) live
	}{
		"nothing runs": {"", func(string) live { return func(string, string) ([]string, error) { return nil, nil } }},
		"a commit the branch has lost": {"", func(string) live {
			return func(string, string) ([]string, error) { return []string{strings.Repeat("a", 40)}, nil }
		}},
		"the commit could not be deployed": {"", func(older string) live { return func(string, string) ([]string, error) { return []string{older}, nil } }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var older string
			l := newEnv(t, func(_ *env, cfg *Config) {
				cfg.Live = live(func(provider, dir string) ([]string, error) { return c.live(older)(provider, dir) })
			})
			older = l.upstream.Push(t, "older", map[string]string{"web/app.pipecd.yaml": "not one"})
			l.push("head", map[string]string{"web/app.pipecd.yaml": appFile("web")})
			if diff := cmp.Diff([]string{"head PENDING"}, l.deployments("web")); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFailedLookupIsRepeated: an application of which it is unknown what
// runs is not deployed as new; the others are not held up.
func TestFailedLookupIsRepeated(t *testing.T) {
	var running []string
	broken := true
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(_, dir string) ([]string, error) {
			if dir == "web" && broken {
				return nil, deploy.Errorf(deploy.Internal, "the disk is broken")
			}
			return running, nil
		})
	})
	running = []string{l.upstream.Push(t, "running", map[string]string{"web/app.pipecd.yaml": appFile("web"), "api/app.pipecd.yaml": appFile("api")})}
	l.push("head", map[string]string{"web/a.yaml": "1", "api/a.yaml": "1"})
	if diff := cmp.Diff([]string{"running PENDING"}, l.deployments("api")); diff != "" {
		t.Errorf("deployments of the other application (-want +got):\n%s", diff)
	}
	if got := l.deployments("web"); len(got) != 0 {
		t.Errorf("deployments while it is unknown what runs: %v", got)
	}
	broken = false
	l.poll()
	if diff := cmp.Diff([]string{"running PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments once it can (-want +got):\n%s", diff)
	}
}

// TestOwnCommitsAreNotTakenOver: what a failed deployment of this agent left
// behind is no state to return to.
func TestOwnCommitsAreNotTakenOver(t *testing.T) {
	var running []string
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(string, string) ([]string, error) { return running, nil })
	})
	running = []string{l.push("bad", map[string]string{"web/app.pipecd.yaml": appFile("web"), "web/a.yaml": "1"})}
	l.end("web", deploy.Failure)
	l.push("good", map[string]string{"web/a.yaml": "2"})
	if diff := cmp.Diff([]string{"bad FAILURE", "good PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(l.all("web"), func(d deploy.Deployment) bool { return d.Trigger.TakeOver }) {
		t.Error("a take-over")
	}
}
