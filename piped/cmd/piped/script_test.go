package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store"
)

// TestScripts runs the program like a CI job.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Values[agentKey{}] = new(*process)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"bare": bare, "agent": agent, "deployed": deployed},
	})
}

// inScript adapts a script to tester.
type inScript struct{ *testscript.TestScript }

func (inScript) Helper()               {}
func (s inScript) Fatal(args ...any)   { s.Fatalf("%s", fmt.Sprint(args...)) }
func (s inScript) Cleanup(then func()) { s.Defer(then) }

// agentKey is the key of a script's agent.
type agentKey struct{}

// agent starts an agent for the script, with its owner key for pipectl, or kills it:
// agent start configuration, agent kill.
func agent(ts *testscript.TestScript, _ bool, args []string) {
	running := ts.Value(agentKey{}).(**process)
	if args[0] == "kill" {
		(*running).signal(os.Kill)
		(*running).wait()
		return
	}
	var address string
	*running, address = start(inScript{ts}, ts.MkAbs(args[1]))
	ts.Setenv("PIPECTL_ADDRESS", address)
	ts.Setenv("PIPECTL_INSECURE", "true")
}

// deployed stores a completed deployment of an agent, which may be running: deployed
// configuration id.
func deployed(ts *testscript.TestScript, _ bool, args []string) {
	cfg, _, err := app.Kinds().LoadPiped(ts.MkAbs(args[0]))
	ts.Check(err)
	ctx := context.Background()
	st, err := store.Open(ctx, cfg.Store.DSN.Reveal(), store.Options{Existing: true})
	ts.Check(err)
	defer st.Close() //nolint:errcheck // what was written is committed
	_, err = st.PutApplication(ctx, deploy.Application{ID: "app-web", Name: "web", Kind: deploy.KindKubernetes})
	ts.Check(err)
	d := deploy.Deployment{ID: args[1], ApplicationID: "app-web", ApplicationName: "web", Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommand, At: time.Now(), Commit: deploy.Commit{Hash: "c0ffee"}}}
	_, err = st.CreateDeployment(ctx, store.NewDeployment{Deployment: d})
	ts.Check(err)
	_, err = st.UpdateDeployment(ctx, d.ID, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", time.Now()) })
	ts.Check(err)
}

// bare creates a bare repository of files: bare repository file...
func bare(ts *testscript.TestScript, _ bool, args []string) {
	repo, err := gittest.NewRepo(ts.MkAbs(args[0]))
	ts.Check(err)
	files := map[string]string{}
	for _, name := range args[1:] {
		files[name] = ts.ReadFile(name)
	}
	ts.Check(repo.Write(files))
	_, err = repo.Commit("Files")
	ts.Check(err)
}
