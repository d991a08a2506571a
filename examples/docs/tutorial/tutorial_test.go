package tutorial

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/examples/programs"
	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
)

const page = "../../../docs/tutorial.md"

func TestMain(m *testing.M) { clustertest.Main(m) }

// Every command of the tutorial succeeds, and prints what the page shows.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	cluster := clustertest.Shared(t)
	dir := t.TempDir()
	if err := os.Symlink(cluster.Kubeconfig(), filepath.Join(dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	api, web, err := agenttest.FreeAddresses()
	if err != nil {
		t.Fatal(err)
	}
	addresses := strings.NewReplacer("127.0.0.1:9083", api, "127.0.0.1:9085", web)
	sh := startShell(t, dir, programs.Dir(t))
	steps := parsePage(string(text))
	if len(steps) < 20 {
		t.Fatalf("found only %d steps", len(steps))
	}
	for _, s := range steps {
		if s.file != "" {
			name := filepath.Join(dir, s.file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(addresses.Replace(s.content)), 0o644)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		printed, code := sh.run(t, addresses.Replace(s.command))
		t.Logf("$ %s\n%s", s.command, printed)
		if code != 0 {
			log, _ := os.ReadFile(filepath.Join(dir, "piped.log"))
			t.Fatalf("tutorial.md:%d: %s: exit code %d\n%s\nthe agent's log:\n%s", s.line, s.command, code, printed, log)
		}
		if !matches(s.output, printed) {
			t.Errorf("tutorial.md:%d: %s prints\n%s\nthe page shows\n%s", s.line, s.command, printed, s.output)
		}
	}
}

func TestMatches(t *testing.T) {
	for name, c := range map[string]struct {
		shown, printed string
		want           bool
	}{
		"equal":            {"a b\nc\n", "a  b\nc\n", true},
		"a varying hash":   {"at 1234abc", "at 89abcde", true},
		"a pod's name":     {"web-5dc5d57c8c-m59dg runs", "web-76b758c74f-bbbbb runs", true},
		"a duration":       {"after 240ms", "after 1m3s", true},
		"another word":     {"SUCCESS", "FAILURE", false},
		"a line too much":  {"a", "a\nb", false},
		"lines left out":   {"a\n...\nd", "a\nb\nc\nd", true},
		"none left out":    {"a\n...\nb", "a\nb", true},
		"within a line":    {"a ... c", "a b b c", true},
		"nothing is shown": {"", "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := matches(c.shown, c.printed); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// commandTimeout bounds one command: it waits for a deployment at most.
const commandTimeout = 5 * time.Minute

// shell is a shell that runs one command after another, as a terminal does.
type shell struct {
	input io.Writer
	lines chan string // of the output; closed when the shell has ended
}

// startShell starts a shell in dir that finds the programs of bin. It ends with the
// test, with all that it has started.
func startShell(t *testing.T, dir, bin string) *shell {
	t.Helper()
	cmd := exec.Command("bash", "--noprofile", "--norc")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir(), "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, printed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = printed, printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed.Close()
	sh := &shell{input: input, lines: make(chan string)}
	done := make(chan struct{})
	go func() {
		defer close(sh.lines)
		for in := bufio.NewScanner(output); in.Scan(); {
			select {
			case sh.lines <- in.Text():
			case <-done:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(done)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the agent, too, if a step failed
		_ = cmd.Wait()
		output.Close()
		for range sh.lines { // until the reader has ended
		}
	})
	return sh
}

// marker begins the line that the shell prints after each command.
const marker = "=== ended with "

// run runs a command and returns what it prints, and its exit code.
func (s *shell) run(t *testing.T, command string) (printed string, code int) {
	t.Helper()
	if _, err := fmt.Fprintf(s.input, "%s\necho '%s'$?\n", command, marker); err != nil {
		t.Fatal(err)
	}
	timeout := time.After(commandTimeout)
	for {
		select {
		case line, open := <-s.lines:
			if !open {
				t.Fatalf("%s: the shell has ended", command)
			}
			if end, ended := strings.CutPrefix(line, marker); ended {
				if _, err := fmt.Sscan(end, &code); err != nil {
					t.Fatal(err)
				}
				return printed, code
			}
			printed += line + "\n"
		case <-timeout:
			t.Fatalf("%s: not over after %s; so far:\n%s", command, commandTimeout, printed)
		}
	}
}
