package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// head is the begin of a configuration; its spec follows.
const head = "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n"

// TestCommandLine: exit codes and messages of command lines.
func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.yaml", head+"  dataDir: "+filepath.Join(dir, "data")+"\n")
	mistakes := file("mistakes.yaml", head+"  syncInterval: never\n  repositories: [{repoId: r, branch: main}]\n")
	cases := []struct {
		name   string
		args   []string
		code   int
		stdout string   // a regular expression
		stderr []string // each must be contained
	}{
		{"version", []string{"version"}, 0, `^Version: \S+, GitCommit: \S+, GoVersion: go1\.\S+\n$`, nil},
		{"version as a flag", []string{"--version"}, 0, `^Version: \S+, GitCommit: \S+, GoVersion: go1\.\S+\n$`, nil},
		{"help", []string{"--help"}, 0, `(?s)A GitOps agent.*run.*version`, nil},
		{"unknown command", []string{"fly"}, 1, `^$`, []string{`piped: unknown command "fly"`}},
		{"neither --config nor --repo", []string{"run"}, 1, `^$`, []string{"piped: at least one of the flags in the group [config repo] is required"}},
		{"both --config and --repo", []string{"run", "--config", good, "--repo", "."}, 1, `^$`, []string{"piped: if any flags in the group [config repo] are set none of the others can be"}},
		{"a flag of --repo", []string{"run", "--config", good, "--branch", "main"}, 1, `^$`, []string{"piped: --branch is for --repo: set it in " + good}},
		{"an observer without a cluster", []string{"observe", "--kubeconfig", filepath.Join(dir, "none")}, 1, `^$`, []string{"piped: read the kubeconfig: ", "none: no such file"}},
		{"an observer with an argument", []string{"observe", "now"}, 1, `^$`, []string{`"now"`}},
		{"an argument too many", []string{"run", "--config", good, "now"}, 1, `^$`, []string{`"now"`}},
		{"unknown flag", []string{"run", "--conf", good}, 1, `^$`, []string{"unknown flag: --conf"}},
		{"unreadable file", []string{"run", "--config", filepath.Join(dir, "none.yaml")}, 1, `^$`, []string{"piped: read the configuration: ", "none.yaml", "no such file"}},
		{"a directory", []string{"run", "--config", dir}, 1, `^$`, []string{"piped: read the configuration: ", "is a directory"}},
		{"two mistakes", []string{"run", "--config", mistakes}, 1, `^$`, []string{"mistakes.yaml:4: spec.syncInterval: ", "mistakes.yaml:5: spec.repositories[0].remote: required"}},
		{"unknown log level", []string{"run", "--config", good, "--log-level", "loud"}, 1, `^$`, []string{`piped: --log-level "loud": use debug, info, warn or error`}},
		{"unknown log format", []string{"run", "--config", good, "--log-format", "xml"}, 1, `^$`, []string{`piped: --log-format "xml": use text or json`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), c.args, &stdout, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !regexp.MustCompile(c.stdout).MatchString(stdout.String()) {
				t.Errorf("printed %q, want %s", stdout.String(), c.stdout)
			}
			for _, want := range c.stderr {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("stderr %q lacks %q", stderr.String(), want)
				}
			}
			if c.stderr == nil && stderr.Len() > 0 {
				t.Errorf("stderr %q, want nothing", stderr.String())
			}
		})
	}
}

// TestRunUntilStopped: the agent runs, reports settings without effect, and exits
// cleanly when stopped.
func TestRunUntilStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "piped.yaml")
	text := head + "  dataDir: data\n  api: {address: 127.0.0.1:0}\n  web: {address: 127.0.0.1:0}\n  webAddress: http://elsewhere\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var stdout bytes.Buffer
	stderr := &watched{text: `"msg":"agent ready to run"`, seen: stop}
	if code := run(ctx, []string{"run", "--config", path, "--log-format", "json"}, &stdout, stderr); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{stderr.text, `"warning":"`, "webAddress", `"msg":"the agent stops"`} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, stderr.String())
		}
	}
	if stdout.Len() > 0 {
		t.Errorf("printed %q", stdout.String())
	}
}

// watched stores what is written and calls seen when it contains a text.
type watched struct {
	text string
	seen func()

	mu sync.Mutex
	bytes.Buffer
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if bytes.Contains(p, []byte(w.text)) {
		w.seen()
	}
	return w.Buffer.Write(p)
}
