package script

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/executor/script/sandbox/sandboxtest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/deploy/deploytest"
	"github.com/c785c783/piped/piped/marked"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// lines is the log of a script stage.
type lines struct{ deploytest.Log }

// printed returns the script's output: the log without the agent's lines.
func (f *lines) printed() []string {
	return slices.DeleteFunc(f.Lines(), func(line string) bool {
		return strings.HasPrefix(line, "Preparing the files of ") || strings.HasPrefix(line, "Running the script in ") || strings.HasPrefix(line, "OK ")
	})
}

// await waits until the script has printed a line.
func (f *lines) await(t *testing.T, line string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if slices.Contains(f.Lines(), line) {
			return
		}
	}
	t.Fatalf("the script did not print %q: %q", line, f.Lines())
}

// The deployed commit, and that of the last success.
const (
	hash     = "c0ffee0123456789c0ffee0123456789c0ffee01"
	lastHash = "0ddba110123456789c0ffee0123456789c0ffee0"
)

// fixture is a store with one RUNNING deployment, d, that has a script stage "s", its
// rollback stage "back", and an executor in a directory of its own.
type fixture struct {
	t        *testing.T
	store    *store.Store
	executor *Executor
	tree     fstest.MapFS
	last     fstest.MapFS // of the last success
	log      *lines
	count    string // a file to which test scripts append on each run
	mode     sandbox.Mode
	users    sandbox.Users // for OtherUser
}

// inModes runs a test with each isolation mode.
func inModes(t *testing.T, test func(t *testing.T, mode sandbox.Mode)) {
	modes := []sandbox.Mode{sandbox.Namespaces, sandbox.Landlock, sandbox.None}
	if os.Geteuid() == 0 {
		modes = append(modes, sandbox.OtherUser)
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) { test(t, mode) })
	}
}

// fixtures counts the fixtures, so that each has different users.
var fixtures atomic.Int32

func newFixture(t *testing.T) *fixture { return newFixtureIn(t, sandbox.Namespaces) }

func newFixtureIn(t *testing.T, mode sandbox.Mode) *fixture {
	f := &fixture{
		t: t, store: storetest.New(t, nil), log: &lines{}, count: filepath.Join(sandboxtest.PublicDir(t), "count"), mode: mode,
		tree: fstest.MapFS{
			"apps/web/hello.txt": {Data: []byte("hello from the commit\n")},
			"apps/web/tool.sh":   {Data: []byte("#!/bin/sh\necho tool $1\n"), Mode: 0o755},
			"shared.txt":         {Data: []byte("shared\n")},
		},
		last: fstest.MapFS{"apps/web/hello.txt": {Data: []byte("hello from the last success\n")}},
	}
	if mode == sandbox.OtherUser {
		f.users = sandbox.Users{UID: 1<<28 + 256*os.Getpid() + int(fixtures.Add(1)), Count: 1, Dir: filepath.Join(sandboxtest.PublicDir(t), "scripts")}
		if err := os.Chown(filepath.Dir(f.count), f.users.UID, f.users.UID); err != nil {
			t.Fatal(err)
		}
	}
	f.executor = f.newExecutor(filepath.Join(t.TempDir(), "scripts"))
	t.Cleanup(f.wantNothingLeft)
	return f
}

func (f *fixture) newExecutor(dir string) *Executor {
	f.t.Helper()
	e, err := New(Config{
		Dir: dir, Grace: 2 * time.Minute, Logger: slog.New(slog.NewTextHandler(f.t.Output(), nil)),
		Isolation: sandbox.Settings{Modes: []sandbox.Mode{f.mode}, Allow: []string{filepath.Dir(f.count)}, Users: f.users},
		Tree: func(repo, commit string) (fs.FS, error) {
			if tree := map[string]fs.FS{hash: f.tree, lastHash: f.last}[commit]; repo == "r" && tree != nil {
				return tree, nil
			}
			return nil, fmt.Errorf("no commit %s in %s", commit, repo)
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return e
}

// wantNothingLeft fails if a process or a file of a run is left.
func (f *fixture) wantNothingLeft() {
	f.t.Helper()
	left := func() []int {
		out := marked.Processes(markVariable, f.executor.Dir)
		if f.users.Dir != "" {
			out = append(out, marked.Processes(markVariable, f.users.Dir)...)
		}
		return out
	}
	for end := time.Now().Add(2 * time.Minute); len(left()) != 0; time.Sleep(5 * time.Millisecond) { // a killed process ends a moment later
		if time.Now().After(end) {
			f.t.Fatalf("processes %v of the script are left", left())
		}
	}
	for _, dir := range []string{f.executor.Dir, f.users.Dir} {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 0 {
			f.t.Errorf("files of the script are left: %v, %v", entries, err)
		}
	}
}

// deployment stores d. The rollback stage has the given metadata.
func (f *fixture) deployment(o any, rollback map[string]string) {
	f.t.Helper()
	f.planned(o, deploy.Plan{Summary: "Sync it", Stages: []deploy.Stage{
		{ID: "s", Name: deploy.StageScriptRun},
		{ID: "back", Name: deploy.StageScriptRunRollback, Rollback: true, Metadata: rollback},
	}})
}

// planned stores d with a plan, whose first stage has the options.
func (f *fixture) planned(o any, plan deploy.Plan) {
	f.t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		f.t.Fatal(err)
	}
	a := deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: "apps/web"}}
	if _, err := f.store.PutApplication(context.Background(), a); err != nil {
		f.t.Fatal(err)
	}
	d := deploy.Deployment{
		ID: "d", ApplicationID: "app", ApplicationName: "web", Status: deploy.Pending,
		Git:    deploy.GitPath{RepoID: "r", Remote: "https://bot:hunter2@git.example.com/shop/web.git", Branch: "main", Dir: "apps/web"},
		Labels: map[string]string{"env": "prod", "team": "a=b c"},
		Trigger: deploy.Trigger{
			Kind: deploy.OnCommand, Commander: "ann", At: time.Unix(1_700_000_000, 0), Commit: deploy.Commit{Hash: hash},
		},
	}
	if _, err := f.store.CreateDeployment(context.Background(), store.NewDeployment{Deployment: d}); err != nil {
		f.t.Fatal(err)
	}
	plan.Stages[0].Options = options
	f.update(func(d *deploy.Deployment) error { return d.Plan(plan, time.Now()) })
	f.update(func(d *deploy.Deployment) error { return d.Start(time.Now()) })
}

func (f *fixture) update(fn func(*deploy.Deployment) error) {
	f.t.Helper()
	if _, err := f.store.UpdateDeployment(context.Background(), "d", fn); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) startStage(id string) {
	f.t.Helper()
	f.update(func(d *deploy.Deployment) error { return d.StartStage(id, time.Now()) })
}

// stageRun returns the StageRun of a stage, as from the scheduler.
func (f *fixture) stageRun(id string, resumed bool) deploy.StageRun {
	f.t.Helper()
	d, err := f.store.Deployment(context.Background(), "d")
	if err != nil {
		f.t.Fatal(err)
	}
	return deploy.StageRun{
		Deployment: d, Stage: *d.Stage(id), Resumed: resumed, Log: f.log,
		SaveMetadata: func(ctx context.Context, kv map[string]string) error {
			_, err := f.store.UpdateDeployment(ctx, "d", func(d *deploy.Deployment) error {
				stage := d.Stage(id)
				if stage.Metadata == nil {
					stage.Metadata = map[string]string{}
				}
				for k, v := range kv {
					stage.Metadata[k] = v
				}
				return nil
			})
			return err
		},
		SwapMetadata: func(ctx context.Context, key, was, value string) error {
			_, err := f.store.UpdateDeployment(ctx, "d", func(d *deploy.Deployment) error {
				return d.Stage(id).SwapMetadata(key, was, value, time.Now())
			})
			return err
		},
	}
}

// runScript runs a script in a new deployment.
func (f *fixture) runScript(script string) deploy.StageResult {
	f.t.Helper()
	f.deployment(options{Run: script}, nil)
	f.startStage("s")
	return f.executor.Execute(f.t.Context(), f.stageRun("s", false))
}

// begin runs a stage in the background; stop stops it.
func (f *fixture) begin(id string) (stop context.CancelCauseFunc, result <-chan deploy.StageResult) {
	f.t.Helper()
	ctx, stop := context.WithCancelCause(f.t.Context())
	run := f.stageRun(id, false)
	ended := make(chan deploy.StageResult, 1)
	go func() { ended <- f.executor.Execute(ctx, run) }()
	return stop, ended
}

// wantRuns fails unless the test scripts ran that many times.
func (f *fixture) wantRuns(want int) {
	f.t.Helper()
	data, err := os.ReadFile(f.count)
	if err != nil && !os.IsNotExist(err) {
		f.t.Fatal(err)
	}
	if got := strings.Count(string(data), "x"); got != want {
		f.t.Errorf("the script ran %d times, want %d", got, want)
	}
}

func wantResult(t *testing.T, got deploy.StageResult, status deploy.StageStatus, reason string) {
	t.Helper()
	if want := (deploy.StageResult{Status: status, Reason: reason}); got != want {
		t.Errorf("the stage ended as %+v, want %+v", got, want)
	}
}
