package script

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/linelog"
)

func TestScripts(t *testing.T) {
	cases := []struct {
		name    string
		script  string
		printed []string
		status  deploy.StageStatus
		reason  string
	}{
		{"the commit's files", "pwd | sed 's,.*/tree/,,'; cat hello.txt ../../shared.txt; ./tool.sh x", []string{"apps/web", "hello from the commit", "shared", "tool x"}, deploy.StageSuccess, ""},
		{"both outputs, in order", "echo one; echo two >&2; echo three", []string{"one", "two", "three"}, deploy.StageSuccess, ""},
		{"several lines, the last not ended", "echo a\necho\nprintf b", []string{"a", "", "b"}, deploy.StageSuccess, ""},
		{"what is no text", `printf 'a\377b\000c\r\n100%%d\n'`, []string{"a\uFFFDb\uFFFDc", "100%d"}, deploy.StageSuccess, ""},
		{"no input", "cat", nil, deploy.StageSuccess, ""},
		{"exit code", "echo bad; exit 3", []string{"bad"}, deploy.StageFailure, "the script failed: it exited with code 3"},
		{"signal", "kill -KILL $$", nil, deploy.StageFailure, "the script failed: it was ended by signal 9 (killed)"},
		{"no such command", "nonesuch-command 2>/dev/null", nil, deploy.StageFailure, "the script failed: it exited with code 127"},
		{"empty", "", []string{"The stage has no script to run"}, deploy.StageSuccess, ""},
		{"write rights taken from a directory", "mkdir -p $HOME/cache/deep && touch $HOME/cache/deep/f && chmod -R a-w $HOME/cache", nil, deploy.StageSuccess, ""},
	}
	inModes(t, func(t *testing.T, mode sandbox.Mode) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				f := newFixtureIn(t, mode)
				wantResult(t, f.runScript(c.script), c.status, c.reason)
				if diff := cmp.Diff(c.printed, f.log.printed()); diff != "" && len(c.printed)+len(f.log.printed()) > 0 {
					t.Errorf("printed (-want +got):\n%s", diff)
				}
			})
		}
	})
}

// TestEnvironment: a script has the documented environment and nothing of the agent's.
func TestEnvironment(t *testing.T) {
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "AWS_SECRET_ACCESS_KEY", "GIT_ASKPASS", "SSH_AUTH_SOCK"} {
		t.Setenv(name, "/the/agents/own")
	}
	f := newFixture(t)
	f.deployment(options{Run: "env", Env: map[string]string{"STAGE": "canary", "SR_SUMMARY": "mine", markVariable: "none"}}, nil)
	f.startStage("s")
	wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", false)), deploy.StageSuccess, "")

	got := f.log.printed()
	for i, line := range got { // the run's directory has a random name
		if at := strings.Index(line, f.executor.Dir+"/run-"); at >= 0 {
			rest := line[at+len(f.executor.Dir)+1:]
			_, inside, _ := strings.Cut(rest, "/")
			got[i] = line[:at] + "RUN/" + inside
		}
	}
	got = slices.DeleteFunc(got, func(line string) bool { // set by the shell itself
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_"}, name)
	})
	slices.Sort(got)
	want := []string{
		"HOME=RUN/home",
		"LANG=C.UTF-8",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"PIPED_SCRIPT_DIR=RUN/",
		"SR_APPLICATION_ID=app",
		"SR_APPLICATION_NAME=web",
		`SR_CONTEXT_RAW={"deploymentID":"d","applicationID":"app","applicationName":"web","triggeredAt":1700000000,"triggeredCommitHash":"` + hash +
			`","triggeredCommander":"ann","repositoryURL":"https://git.example.com/shop/web.git","summary":"Sync it","labels":{"env":"prod","team":"a=b c"}}`,
		"SR_DEPLOYMENT_ID=d",
		"SR_IS_ROLLBACK=false",
		"SR_LABELS_ENV=prod",
		"SR_LABELS_TEAM=a=b c",
		"SR_REPOSITORY_URL=https://git.example.com/shop/web.git",
		"SR_SUMMARY=mine",
		"SR_TRIGGERED_AT=1700000000",
		"SR_TRIGGERED_COMMANDER=ann",
		"SR_TRIGGERED_COMMIT_HASH=" + hash,
		"STAGE=canary",
		"TMPDIR=RUN/tmp",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestWithoutPassword(t *testing.T) {
	for remote, want := range map[string]string{
		"https://bot:hunter2@git.example.com/a.git": "https://git.example.com/a.git",
		"https://token@git.example.com/a.git":       "https://git.example.com/a.git",
		"ssh://git:hunter2@git.example.com/a.git":   "ssh://git@git.example.com/a.git",
		"git@git.example.com:a.git":                 "git@git.example.com:a.git",
		"https://git.example.com/a.git":             "https://git.example.com/a.git",
		"/srv/git/a.git":                            "/srv/git/a.git",
	} {
		if got := withoutPassword(remote); got != want {
			t.Errorf("withoutPassword(%q) = %q, want %q", remote, got, want)
		}
	}
}

// TestPrivateDirectory: no other user can enter a run's directory.
func TestPrivateDirectory(t *testing.T) {
	f := newFixture(t)
	wantResult(t, f.runScript(`stat -c %a "$PIPED_SCRIPT_DIR" "$HOME" "$TMPDIR"`), deploy.StageSuccess, "")
	if info, err := os.Stat(f.executor.Dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of all runs: %v, %v, want mode 0700", info, err)
	}
	if diff := cmp.Diff([]string{"700", "700", "700"}, f.log.printed()); diff != "" {
		t.Errorf("modes (-want +got):\n%s", diff)
	}
}

func TestOutputIsBounded(t *testing.T) {
	cut := "output cut: only the first 10000 lines and 4 MiB are kept"
	cases := []struct {
		name, script string
		lines        int
		last         string
	}{
		{"lines", "seq 1 300000", 10_000, "10000"},
		{"bytes", "line=$(head -c 50000 /dev/zero | tr '\\0' y); i=0; while [ $i -lt 200 ]; do echo $line; i=$((i+1)); done", 4 << 20 / 50_001, strings.Repeat("y", 50_000)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			wantResult(t, f.runScript(c.script), deploy.StageSuccess, "")
			got := f.log.printed()
			if len(got) != c.lines+1 || got[c.lines] != cut || got[c.lines-1] != c.last {
				t.Errorf("%d lines, the last %.80q, want %d, %.80q and %q", len(got), got[max(0, len(got)-2):], c.lines, c.last, cut)
			}
		})
	}
	t.Run("one line", func(t *testing.T) {
		f := newFixture(t)
		wantResult(t, f.runScript("head -c 1000000 /dev/zero | tr '\\0' z; echo; echo next"), deploy.StageSuccess, "")
		if diff := cmp.Diff([]string{strings.Repeat("z", linelog.MaxLine) + " … (cut)", "next"}, f.log.printed()); diff != "" {
			t.Errorf("the long line is not cut well: %.200s", diff)
		}
	})
}

func TestRefusals(t *testing.T) {
	cases := []struct {
		name string
		edit func(*fixture, *deploy.StageRun)
		want string
	}{
		{"options", func(_ *fixture, r *deploy.StageRun) { r.Stage.Options = json.RawMessage("[]") },
			"read the options of SCRIPT_RUN: json: cannot unmarshal array into Go value of type script.options"},
		{"a commit that is gone", func(_ *fixture, r *deploy.StageRun) { r.Deployment.Trigger.Commit.Hash = "beef" }, "no commit beef in r"},
		{"an environment no program can have", func(_ *fixture, r *deploy.StageRun) {
			r.Stage.Options = json.RawMessage(`{"run": "true", "env": {"a=b": "c"}}`)
		}, `environment variable "a=b": expected a name without "=", and no NUL character in it or its value`},
		{"a directory the commit does not have", func(f *fixture, r *deploy.StageRun) { r.Deployment.Git.Dir = "gone" }, "no such file or directory"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.deployment(options{Run: "echo x >> " + f.count}, nil)
			f.startStage("s")
			run := f.stageRun("s", false)
			c.edit(f, &run)
			if got := f.executor.Execute(t.Context(), run); got.Status != deploy.StageFailure || !strings.Contains(got.Reason, c.want) {
				t.Errorf("the stage ended as %+v, want FAILURE because %q", got, c.want)
			}
			f.wantRuns(0)
		})
	}
}

func TestRollback(t *testing.T) {
	meta := func(script string) map[string]string {
		return map[string]string{deploy.MetaBaseStage: "s", deploy.MetaOnRollback: script, deploy.MetaScriptEnv: `{"WHAT": "undo"}`}
	}
	skipped := func(d *deploy.Deployment) error { return d.FinishStage("s", deploy.StageSkipped, "", d.CreatedAt) }
	failed := func(d *deploy.Deployment) error { return d.FinishStage("s", deploy.StageFailure, "", d.CreatedAt) }
	cases := []struct {
		name     string
		rollback map[string]string
		start    bool // of the base stage
		end      func(*deploy.Deployment) error
		status   deploy.StageStatus
		reason   string
		printed  []string
	}{
		{"of a stage that failed", meta("echo $WHAT $SR_IS_ROLLBACK; cat hello.txt"), true, failed, deploy.StageSuccess, "", []string{"undo true", "hello from the commit"}},
		{"that fails itself", meta("exit 4"), true, failed, deploy.StageFailure, "the script failed: it exited with code 4", nil},
		{"without a script", meta(""), true, failed, deploy.StageSuccess, "", []string{"Stage s has no onRollback script"}},
		{"of a stage that never started", meta("echo no"), false, nil, deploy.StageSuccess, "", []string{"There is nothing to roll back: stage s did not run"}},
		{"of a stage that was skipped", meta("echo no"), true, skipped, deploy.StageSuccess, "", []string{"There is nothing to roll back: stage s did not run"}},
		{"of a stage that was skipped while its script ran", meta("echo $WHAT"), true, func(d *deploy.Deployment) error {
			d.Stage("s").Metadata = map[string]string{metaIntent: "yes"}
			return skipped(d)
		}, deploy.StageSuccess, "", []string{"undo"}},
		{"of no stage", map[string]string{deploy.MetaBaseStage: "zzz"}, true, failed, deploy.StageFailure,
			`the deployment has no stage "zzz" whose script could be rolled back; please report it`, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t)
			f.deployment(options{Run: "true"}, c.rollback)
			if c.start {
				f.startStage("s")
				f.update(c.end)
			}
			f.update(func(d *deploy.Deployment) error { return d.BeginRollback(deploy.Failure, "", d.CreatedAt) })
			f.startStage("back")
			wantResult(t, f.executor.Execute(t.Context(), f.stageRun("back", false)), c.status, c.reason)
			if diff := cmp.Diff(c.printed, f.log.printed()); diff != "" && len(c.printed)+len(f.log.printed()) > 0 {
				t.Errorf("printed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSecondIntent: of concurrent runs of one stage from the same state, as two agents
// would start them, only one runs the script.
func TestSecondIntent(t *testing.T) {
	f := newFixture(t)
	f.deployment(options{Run: "printf x >> " + f.count}, nil)
	f.startStage("s")
	results := make(chan deploy.StageResult, 4)
	var runs []deploy.StageRun
	for range cap(results) {
		runs = append(runs, f.stageRun("s", false)) // all before the first run
	}
	for _, run := range runs {
		go func() { results <- f.executor.Execute(t.Context(), run) }()
	}
	byStatus := map[deploy.StageStatus]int{}
	for range cap(results) {
		result := <-results
		byStatus[result.Status]++
		if result.Status != deploy.StageSuccess && !strings.Contains(result.Reason, "another run of the stage changed scriptIntent") {
			t.Errorf("a second run ended as %+v", result)
		}
	}
	if byStatus[deploy.StageSuccess] != 1 {
		t.Errorf("runs ended as %v, want one success", byStatus)
	}
	f.wantRuns(1)
}

// TestConcurrentStages: concurrent runs of different stages do not interfere.
func TestConcurrentStages(t *testing.T) {
	f := newFixture(t)
	f.deployment(options{Run: "echo mine > $HOME/f; echo mine > hello.txt; ls $HOME"}, nil)
	f.startStage("s")
	results := make(chan deploy.StageResult, 4)
	var runs []deploy.StageRun
	for range cap(results) {
		run := f.stageRun("s", false) // before any of them stores its intent
		run.SwapMetadata = func(context.Context, string, string, string) error { return nil }
		runs = append(runs, run)
	}
	for _, run := range runs {
		go func() { results <- f.executor.Execute(t.Context(), run) }()
	}
	for range cap(results) {
		wantResult(t, <-results, deploy.StageSuccess, "")
	}
	if got := string(f.tree["apps/web/hello.txt"].Data); got != "hello from the commit\n" {
		t.Errorf("a script changed the commit: %q", got)
	}
}

func FuzzOptions(f *testing.F) {
	for _, seed := range []string{"", "null", `{"run": "true", "env": {"A": "b"}, "onInterrupted": "rerun"}`, `{"env": {"": ""}}`, `{"env": {"A": "\u0000"}}`, "{"} {
		f.Add([]byte(seed))
	}
	ws := workspace{dir: "/w", home: filepath.Join("/w", "home"), tmp: filepath.Join("/w", "tmp")}
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := jobOf(deploy.StageRun{Stage: deploy.Stage{Name: deploy.StageScriptRun, Options: text}})
		if err != nil {
			if !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("%q: error of kind %s, want invalid", text, deploy.KindOf(err))
			}
			return
		}
		if (j.script == "") != (j.nothing != "") || j.rollback {
			t.Errorf("%q is read as %+v", text, j)
		}
		env, err := environment(ws, deploy.Deployment{}, j)
		if err == nil && !slices.Contains(env, fmt.Sprintf("%s=%s", markVariable, ws.dir)) {
			t.Errorf("%q took the mark away: %q", text, env)
		}
	})
}
