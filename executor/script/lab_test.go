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
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// lines is the log of a stage that runs a script.
type lines struct{ deploytest.Log }

// printed returns what the script printed: the log without the agent's own lines.
func (l *lines) printed() []string {
	return slices.DeleteFunc(l.Lines(), func(line string) bool {
		return strings.HasPrefix(line, "Preparing the files of ") || strings.HasPrefix(line, "Running the script in ") || strings.HasPrefix(line, "OK ")
	})
}

// await waits until the script has printed a line.
func (l *lines) await(t *testing.T, line string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if slices.Contains(l.Lines(), line) {
			return
		}
	}
	t.Fatalf("the script did not print %q: %q", line, l.Lines())
}

// The commits: the one that is deployed, and the last success.
const (
	hash     = "c0ffee0123456789c0ffee0123456789c0ffee01"
	lastHash = "0ddba110123456789c0ffee0123456789c0ffee0"
)

// lab is a store with one RUNNING deployment, d, that has a script stage "s",
// its rollback stage "back", and an executor in a directory of its own.
type lab struct {
	t        *testing.T
	store    *store.Store
	executor *Executor
	tree     fstest.MapFS
	last     fstest.MapFS // of the last success
	log      *lines
	count    string // a file that scripts of ours append to whenever they run
	mode     sandbox.Mode
	users    sandbox.Users // of OtherUser
}

// inModes runs a test for each way in which scripts run.
func inModes(t *testing.T, test func(t *testing.T, mode sandbox.Mode)) {
	modes := []sandbox.Mode{sandbox.Namespaces, sandbox.Landlock, sandbox.None}
	if os.Geteuid() == 0 {
		modes = append(modes, sandbox.OtherUser)
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) { test(t, mode) })
	}
}

// labs counts the labs, so that each has users of its own.
var labs atomic.Int32

func newLab(t *testing.T) *lab { return newLabIn(t, sandbox.Namespaces) }

func newLabIn(t *testing.T, mode sandbox.Mode) *lab {
	l := &lab{
		t: t, store: storetest.New(t, nil), log: &lines{}, count: filepath.Join(sandboxtest.PublicDir(t), "count"), mode: mode,
		tree: fstest.MapFS{
			"apps/web/hello.txt": {Data: []byte("hello from the commit\n")},
			"apps/web/tool.sh":   {Data: []byte("#!/bin/sh\necho tool $1\n"), Mode: 0o755},
			"shared.txt":         {Data: []byte("shared\n")},
		},
		last: fstest.MapFS{"apps/web/hello.txt": {Data: []byte("hello from the last success\n")}},
	}
	if mode == sandbox.OtherUser {
		l.users = sandbox.Users{UID: 1<<28 + 256*os.Getpid() + int(labs.Add(1)), Count: 1, Dir: filepath.Join(sandboxtest.PublicDir(t), "scripts")}
		if err := os.Chown(filepath.Dir(l.count), l.users.UID, l.users.UID); err != nil {
			t.Fatal(err)
		}
	}
	l.executor = l.newExecutor(filepath.Join(t.TempDir(), "scripts"))
	t.Cleanup(l.wantNothingLeft)
	return l
}

func (l *lab) newExecutor(dir string) *Executor {
	l.t.Helper()
	e, err := New(Config{
		Dir: dir, Grace: 2 * time.Minute, Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)),
		Launcher: launcher, Isolation: sandbox.Settings{Modes: []sandbox.Mode{l.mode}, Allow: []string{filepath.Dir(l.count)}, Users: l.users},
		Tree: func(repo, commit string) (fs.FS, error) {
			if tree := map[string]fs.FS{hash: l.tree, lastHash: l.last}[commit]; repo == "r" && tree != nil {
				return tree, nil
			}
			return nil, fmt.Errorf("no commit %s in %s", commit, repo)
		},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return e
}

// wantNothingLeft fails if a process or a file of a run is left.
func (l *lab) wantNothingLeft() {
	l.t.Helper()
	left := func() []int {
		out := markedProcesses([]byte(markVariable + "=" + l.executor.Dir))
		if l.users.Dir != "" {
			out = append(out, markedProcesses([]byte(markVariable+"="+l.users.Dir))...)
		}
		return out
	}
	for end := time.Now().Add(2 * time.Minute); len(left()) != 0; time.Sleep(5 * time.Millisecond) { // a killed process ends a moment later
		if time.Now().After(end) {
			l.t.Fatalf("processes %v of the script are left", left())
		}
	}
	for _, dir := range []string{l.executor.Dir, l.users.Dir} {
		if dir == "" {
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 0 {
			l.t.Errorf("files of the script are left: %v, %v", entries, err)
		}
	}
}

// deployment stores d. The rollback stage carries what the planner wrote to it.
func (l *lab) deployment(o any, rollback map[string]string) {
	l.t.Helper()
	l.planned(o, deploy.Plan{Summary: "Sync it", Stages: []deploy.Stage{
		{ID: "s", Name: deploy.StageScriptRun},
		{ID: "back", Name: deploy.StageScriptRunRollback, Rollback: true, Metadata: rollback},
	}})
}

// planned stores d with a plan, whose first stage has the options.
func (l *lab) planned(o any, plan deploy.Plan) {
	l.t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		l.t.Fatal(err)
	}
	a := deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes, Provider: "one", Git: deploy.GitPath{RepoID: "r", Dir: "apps/web"}}
	if _, err := l.store.PutApplication(context.Background(), a); err != nil {
		l.t.Fatal(err)
	}
	d := deploy.Deployment{
		ID: "d", ApplicationID: "app", ApplicationName: "web", Status: deploy.Pending,
		Git:    deploy.GitPath{RepoID: "r", Remote: "https://bot:hunter2@git.example.com/shop/web.git", Branch: "main", Dir: "apps/web"},
		Labels: map[string]string{"env": "prod", "team": "a=b c"},
		Trigger: deploy.Trigger{
			Kind: deploy.OnCommand, Commander: "ann", At: time.Unix(1_700_000_000, 0), Commit: deploy.Commit{Hash: hash},
		},
	}
	if _, err := l.store.CreateDeployment(context.Background(), store.NewDeployment{Deployment: d}); err != nil {
		l.t.Fatal(err)
	}
	plan.Stages[0].Options = options
	l.update(func(d *deploy.Deployment) error { return d.Plan(plan, time.Now()) })
	l.update(func(d *deploy.Deployment) error { return d.Start(time.Now()) })
}

func (l *lab) update(fn func(*deploy.Deployment) error) {
	l.t.Helper()
	if _, err := l.store.UpdateDeployment(context.Background(), "d", fn); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) startStage(id string) {
	l.t.Helper()
	l.update(func(d *deploy.Deployment) error { return d.StartStage(id, time.Now()) })
}

// stageRun returns a run of a stage as the scheduler hands it over.
func (l *lab) stageRun(id string, resumed bool) deploy.StageRun {
	l.t.Helper()
	d, err := l.store.Deployment(context.Background(), "d")
	if err != nil {
		l.t.Fatal(err)
	}
	return deploy.StageRun{
		Deployment: d, Stage: *d.Stage(id), Resumed: resumed, Log: l.log,
		SaveMetadata: func(ctx context.Context, kv map[string]string) error {
			_, err := l.store.UpdateDeployment(ctx, "d", func(d *deploy.Deployment) error {
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
			_, err := l.store.UpdateDeployment(ctx, "d", func(d *deploy.Deployment) error {
				return d.Stage(id).SwapMetadata(key, was, value, time.Now())
			})
			return err
		},
	}
}

// runScript runs a script in a new deployment to its end.
func (l *lab) runScript(script string) deploy.StageResult {
	l.t.Helper()
	l.deployment(options{Run: script}, nil)
	l.startStage("s")
	return l.executor.Execute(l.t.Context(), l.stageRun("s", false))
}

// begin runs a stage in the background; stop tells it to stop.
func (l *lab) begin(id string) (stop context.CancelCauseFunc, result <-chan deploy.StageResult) {
	l.t.Helper()
	ctx, stop := context.WithCancelCause(l.t.Context())
	run := l.stageRun(id, false)
	ended := make(chan deploy.StageResult, 1)
	go func() { ended <- l.executor.Execute(ctx, run) }()
	return stop, ended
}

// wantRuns fails unless scripts of ours ran so many times.
func (l *lab) wantRuns(want int) {
	l.t.Helper()
	data, err := os.ReadFile(l.count)
	if err != nil && !os.IsNotExist(err) {
		l.t.Fatal(err)
	}
	if got := strings.Count(string(data), "x"); got != want {
		l.t.Errorf("the script ran %d times, want %d", got, want)
	}
}

func wantResult(t *testing.T, got deploy.StageResult, status deploy.StageStatus, reason string) {
	t.Helper()
	if want := (deploy.StageResult{Status: status, Reason: reason}); got != want {
		t.Errorf("the stage ended as %+v, want %+v", got, want)
	}
}
