package pipectl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/pipectl"
	"github.com/c785c783/piped/piped/pipectl/signin/signintest"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){
		"pipectl": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			os.Exit(pipectl.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

// leakChecked runs the tests and then detects leaked goroutines.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// TestScripts runs each script with a control API of its own, and with PIPECTL_ADDRESS,
// PIPECTL_INSECURE and PIPECTL_API_KEY_FILE set for it. The commands below simulate the
// agent.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: startAgent,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"application": play("name [label=value ...]", 1, func(a *controltest.Agent, args []string) {
				labels := map[string]string{}
				for _, pair := range args[1:] {
					k, v, _ := strings.Cut(pair, "=")
					labels[k] = v
				}
				a.Application(args[0], labels)
			}),
			"disable": act("application", 1, func(a *controltest.Agent, args []string) error {
				return a.Store.SetDisabled(context.Background(), "app-"+args[0], true)
			}),
			"deployment": act("id application", 2, func(a *controltest.Agent, args []string) error {
				app, err := a.Store.Application(context.Background(), "app-"+args[1])
				if err == nil {
					a.Deployment(args[0], app, "")
				}
				return err
			}),
			"move": play("id status reason", 3, func(a *controltest.Agent, args []string) {
				a.Move(args[0], deploy.Status(args[1]), args[2])
			}),
			// event registers an event that wrote the commit of all deployments, in pull
			// request 12.
			"event": act("id", 1, func(a *controltest.Agent, args []string) error {
				ctx := context.Background()
				_, err := a.Store.RegisterEvent(ctx, deploy.RegisteredEvent{ID: args[0], Name: "image", Data: "v2", Trigger: deploy.TriggerCommit{Hash: "c0ffee0123", URL: "https://git.example.com/src"}})
				if err != nil {
					return err
				}
				err = a.Store.SaveEventHandling(ctx, args[0], deploy.EventHandling{
					RepoID: "apps", PullRequest: true, Status: deploy.EventHandled, Commit: "0123456789abcdef0123456789abcdef01234567", PullRequestURL: "https://git.example.com/shop/apps/pulls/12",
				})
				if err != nil {
					return err
				}
				return a.Store.FinishEvent(ctx, args[0], deploy.EventHandled, "opened a pull request")
			}),
			// rollout stores a rollout of a deployment that lasted from the start of the clock until
			// now.
			"rollout": act("deployment", 1, func(a *controltest.Agent, args []string) error {
				d, err := a.Store.Deployment(context.Background(), args[0])
				if err != nil {
					return err
				}
				_, err = a.Store.SaveRollout(context.Background(), deploy.Rollout{
					ID: "rollout-" + args[0], ApplicationID: d.ApplicationID, DeploymentID: d.ID, StageID: controltest.SyncStage, Cluster: "dev", Workload: deployment, Phase: deploy.RolloutComplete,
					Reason: "all pods are available", StartedAt: controltest.Epoch,
				})
				return err
			}),
			// analysis stores a check of a deployment with a sample of each verdict.
			"analysis": act("deployment", 1, func(a *controltest.Agent, args []string) error {
				ctx := context.Background()
				err := a.Store.SaveAnalysisChecks(ctx, []deploy.AnalysisCheck{{
					DeploymentID: args[0], StageID: controltest.SyncStage, ID: "metrics[0]", Name: "errors", Kind: deploy.AnalysisMetrics, Provider: "prometheus", Query: "rate(errors)",
					Expected: "at most 0.5", Strategy: "THRESHOLD", Max: new(0.5), Interval: time.Minute, FailureLimit: 2,
				}})
				for i, s := range []deploy.AnalysisSample{
					{Verdict: deploy.AnalysisOK, Values: []float64{0.125, 0.25}, Text: "0.125 to 0.25"},
					{Verdict: deploy.AnalysisNoData, Counted: true, Text: "no data"},
					{Verdict: deploy.AnalysisError, Counted: true, Text: "connection refused"},
				} {
					s.ApplicationID, s.DeploymentID, s.StageID, s.Check, s.Name = "app-web", args[0], controltest.SyncStage, "metrics[0]", "errors"
					s.Position, s.At = int64(i+1), controltest.Epoch.Add(time.Duration(i)*time.Minute)
					err = errors.Join(err, a.Store.AppendAnalysisSample(ctx, s))
				}
				return err
			}),
			// watched waits until the objects of an application are watched.
			"watched": func(ts *testscript.TestScript, neg bool, args []string) {
				select {
				case <-ts.Value(watchesKey{}).(chan struct{}):
				case <-time.After(10 * time.Minute): // what watches may be a program that has yet to start
					ts.Fatalf("nothing is watched")
				}
			},
			"refuse-prune": play("id name", 2, func(a *controltest.Agent, args []string) {
				a.RefusePrune(args[0], deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: args[1]})
			}),
			"log": play("id stage line ...", 3, func(a *controltest.Agent, args []string) {
				a.Log(args[0], args[1], args[2:]...)
			}),
			// announce publishes the agent's address, like a running agent.
			"announce": func(ts *testscript.TestScript, neg bool, args []string) {
				text := fmt.Sprintf(`{"address": %q, "ownerKeyFile": %q}`, ts.Getenv("ADDRESS"), ts.MkAbs("owner.key"))
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
			},
			// web serves the routes of sign-in, where ana of the group payments signs in,
			// at $WEB.
			"web": func(ts *testscript.TestScript, neg bool, args []string) {
				agent := ts.Value(agentKey{}).(*controltest.Agent)
				web := signintest.New(func() string { return agent.SignIn(ana) }, signintest.Answer{Status: 400, Code: "authorization_pending"})
				ts.Defer(web.Close)
				ts.Setenv("WEB", web.URL)
			},
			// config writes the agent's address into a configuration file.
			"config": func(ts *testscript.TestScript, neg bool, args []string) {
				file := ts.MkAbs(filepath.Join("settings", args[0]))
				text := strings.ReplaceAll(ts.ReadFile(file), "$ADDRESS", ts.Getenv("ADDRESS"))
				ts.Check(os.WriteFile(file, []byte(text), 0o600))
			},
			// status runs pipectl, which must end with the exit code.
			"status": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec("pipectl", args[1:]...)
				var exit *exec.ExitError
				if !errors.As(err, &exit) || fmt.Sprint(exit.ExitCode()) != args[0] {
					ts.Fatalf("pipectl %s: %v, want exit code %s", strings.Join(args[1:], " "), err, args[0])
				}
			},
			// accept answers the open command with a new deployment, answer with
			// success, refuse with a reason.
			"accept": act("id", 1, func(a *controltest.Agent, args []string) error {
				command := a.OpenCommand()
				app, err := a.Store.Application(context.Background(), command.ApplicationID)
				if err == nil {
					a.Deployment(args[0], app, command.ID)
				}
				return err
			}),
			"answer": act("", 0, func(a *controltest.Agent, _ []string) error {
				return a.Store.FinishCommand(context.Background(), a.OpenCommand().ID, deploy.CommandSucceeded, nil)
			}),
			"adoption": act("application token", 2, func(a *controltest.Agent, args []string) error {
				_, err := a.Store.SetAdoption(context.Background(), deploy.Adoption{
					ApplicationID: "app-" + args[0], Token: args[1], RunningCommit: "0123456789abcdef0123456789abcdef01234567", Since: controltest.Epoch,
					Objects: []deploy.AdoptedObject{{Object: deployment, Managers: []string{"kubectl"}, Changes: true}},
				})
				return err
			}),
			// preview answers the open command with an application preview.
			"preview": act("application summary", 2, func(a *controltest.Agent, args []string) error {
				return a.Store.AnswerPlanPreview(context.Background(), deploy.PlanPreview{
					CommandID: a.OpenCommand().ID, At: controltest.Epoch,
					Results: []deploy.ApplicationPreview{{
						ApplicationID: "app-" + args[0], Name: args[0], Kind: string(deploy.KindKubernetes), Dir: args[0], Strategy: deploy.StrategyQuickSync,
						Summary: args[1], Details: "+ replicas: 3", At: controltest.Epoch, Warnings: []string{"app.pipecd.yaml:4: not used"},
						Changes: []deploy.PlannedChange{{Object: deployment, Action: deploy.PlannedUpdate, Diff: "@@ -1 +1 @@\n-replicas: 2\n+replicas: 3\n"}},
					}},
				}, deploy.CommandSucceeded)
			}),
			// drift stores a report of an application with that ID; end ends the
			// period.
			"drift": act("application id [end]", 2, func(a *controltest.Agent, args []string) error {
				ctx := context.Background()
				app, err := a.Store.Application(ctx, "app-"+args[0])
				if err != nil {
					return err
				}
				at := controltest.Epoch.Add(time.Hour)
				report := deploy.DriftReport{
					ID: args[1], ApplicationID: app.ID, Cluster: app.Provider, Status: deploy.OutOfSync, Objects: []deploy.ObjectDrift{drifted()}, Compared: 2, CheckedAt: at, BeganAt: at,
				}
				state := deploy.SyncState{Status: deploy.OutOfSync, ShortReason: "1 object differs", Reason: "Deployment shop/web: spec.replicas", At: at}
				if len(args) > 2 {
					at = at.Add(time.Minute)
					report.CheckedAt, report.EndedAt, report.End = at, at, deploy.DriftEnd(args[2])
					state = deploy.SyncState{Status: deploy.Synced, At: at}
				}
				_, err = a.Store.ReportDrift(ctx, app, state, &report)
				return err
			}),
			"refuse": act("reason", 1, func(a *controltest.Agent, args []string) error {
				return a.Store.FinishCommand(context.Background(), a.OpenCommand().ID, deploy.CommandFailed, map[string]string{deploy.MetaReason: args[0]})
			}),
		},
	})
}

// ana is a user with a role of her group.
var ana = deploy.User{Issuer: "corp", Subject: "ana@example.com", Name: "Ana", Groups: []string{"payments"}}

// withRoles gives the API a role of users.
func withRoles(c *control.Config) {
	c.Policy = access.NewPolicy([]access.Role{{
		Name: "payments", Groups: []string{"payments"}, Applications: deploy.Selector{Labels: map[string]string{"team": "payments"}},
		Permissions: []deploy.Permission{deploy.PermView, deploy.PermSync},
	}})
}

// agentKey is the key of the agent in a script's environment, watchesKey that of the channel that
// gets a value for each watch of objects.
type (
	agentKey   struct{}
	watchesKey struct{}
)

func startAgent(env *testscript.Env) error {
	watches := make(chan struct{}, 1)
	agent := controltest.Start(scriptTB{env}, env.WorkDir, withComponents, withWatches(watches), withConfigurations(env.WorkDir), withRoles)
	env.Values[agentKey{}], env.Values[watchesKey{}] = agent, watches
	owner, watcher := filepath.Join(env.WorkDir, "owner.key"), filepath.Join(env.WorkDir, "watcher.key")
	for file, key := range map[string]string{owner: agent.ReadWrite, watcher: agent.ReadOnly} {
		if err := os.WriteFile(file, []byte("\n "+key+" \n"), 0o600); err != nil {
			return err
		}
	}
	env.Setenv("ADDRESS", agent.Server.Addr())
	env.Setenv("OWNER", agent.ReadWrite)
	env.Setenv("PIPECTL_ADDRESS", agent.Server.Addr())
	env.Setenv("PIPECTL_INSECURE", "true")
	env.Setenv("PIPECTL_API_KEY_FILE", owner)
	return nil
}

// act returns a script command that calls f with at least n arguments.
func act(usage string, n int, f func(*controltest.Agent, []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < n {
			ts.Fatalf("usage: %s", usage)
		}
		ts.Check(f(ts.Value(agentKey{}).(*controltest.Agent), args))
	}
}

func play(usage string, n int, f func(*controltest.Agent, []string)) func(*testscript.TestScript, bool, []string) {
	return act(usage, n, func(a *controltest.Agent, args []string) error {
		f(a, args)
		return nil
	})
}

// scriptTB ends an agent with its script.
type scriptTB struct{ env *testscript.Env }

func (s scriptTB) Fatal(args ...any) { s.env.T().Fatal(args...) }
func (s scriptTB) Cleanup(f func())  { s.env.Defer(f) }
