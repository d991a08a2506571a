package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/config/endpoint"
	"github.com/c785c783/piped/piped/git/gittest"
)

// machine is a home directory with a kubeconfig, and a repository in the working directory.
func machine(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "kubeconfig"))
	text := `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: here, context: {cluster: c, user: u}}]
current-context: here
`
	if err := os.WriteFile("kubeconfig", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	repo, err := gittest.NewRepo("apps.git")
	if err != nil {
		t.Fatal(err)
	}
	repo.Push(t, "add web", map[string]string{"web/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: web}\n"})
}

// program returns the program with a command line, in a process of its own: client-go's logger is
// one for a process, and goroutines of its clients outlive an agent.
func program(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=yes")
	return cmd
}

// TestRunWithoutAFile: an agent that was given a repository alone serves its page, prints an
// address that signs a browser in, and is found by pipectl.
func TestRunWithoutAFile(t *testing.T) {
	machine(t)
	agent := program(t, "run", "--repo", "apps.git", "--api-address", "127.0.0.1:0", "--web-address", "127.0.0.1:0")
	stdout, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	agent.Stderr = &stderr
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var printed, page string
	link := regexp.MustCompile(`(?m)^page +(http://127\.0\.0\.1:\d+/\S+)$`)
	for lines := bufio.NewScanner(stdout); page == "" && lines.Scan(); {
		printed += lines.Text() + "\n"
		if found := link.FindStringSubmatch(lines.Text()); found != nil {
			page = found[1]
		}
	}
	if page != "" {
		resp, err := http.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("the sign-in link answers %s", resp.Status)
		}
		if err := agent.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	if _, err := io.Copy(io.Discard, stdout); err != nil {
		t.Error(err)
	}
	if err := agent.Wait(); err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	if page == "" || !strings.Contains(printed, "branch main of") || !strings.Contains(printed, "context here of") {
		t.Errorf("printed %q", printed)
	}
	if _, path, err := endpoint.Find(endpoint.Directories()); err != nil || path != filepath.Join(os.Getenv("HOME"), ".piped", endpoint.FileName) {
		t.Errorf("pipectl finds %s, %v", path, err)
	}
}

// TestConfigInit writes the configuration of piped run --repo as a file, and overwrites none.
func TestConfigInit(t *testing.T) {
	machine(t)
	var stdout, stderr bytes.Buffer
	command := []string{"config", "init", "--repo", "apps.git", "--path", "web", "--output", "piped.yaml"}
	if code := run(t.Context(), command, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr.String())
	}
	cfg, warnings, err := app.Kinds().LoadPiped("piped.yaml")
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	if r := cfg.Repositories[0]; r.RepoID != "apps" || r.Branch != "main" || len(r.Discover.Paths) != 1 {
		t.Errorf("the repository is %+v", r)
	}
	if code := run(t.Context(), command, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "piped.yaml exists") {
		t.Errorf("a second time: exit code %d, %q", code, stderr.String())
	}
}

// TestDryRunOfARepository prints what cannot be deployed, exits with 1, and leaves no file.
func TestDryRunOfARepository(t *testing.T) {
	machine(t)
	t.Setenv("TMPDIR", t.TempDir())
	var stdout, stderr bytes.Buffer
	dry := program(t, "run", "--repo", "apps.git", "--dry-run")
	dry.Stdout, dry.Stderr = &stdout, &stderr
	if _ = dry.Run(); dry.ProcessState.ExitCode() != 1 {
		t.Errorf("%s\n%s", dry.ProcessState, stderr.String())
	}
	for _, want := range []string{"web  (web/app.pipecd.yaml)", "cannot be deployed: ", "1 application found, 1 cannot be deployed. Nothing was changed."} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("%q lacks %q", stdout.String(), want)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if _, err := os.Stat(".piped"); err == nil {
		t.Error("a dry run made the data directory of an agent")
	}
}
