package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/c785c783/piped/piped/pipectl"
)

// asMain is an environment variable that makes the test program run the agent.
const asMain = "PIPED_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	testscript.Main(m, map[string]func(){"piped": main, "pipectl": func() {
		os.Exit(pipectl.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}})
}

// tester is the common interface of tests and scripts.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// process is an agent in its own process.
type process struct {
	t     tester
	cmd   *exec.Cmd
	lines chan map[string]any // of its log
}

// start starts the agent and returns its process and API address.
func start(t tester, config string) (p *process, api string) {
	t.Helper()
	p = &process{t: t, cmd: exec.Command(os.Args[0], "run", "--config", config, "--log-format", "json"), lines: make(chan map[string]any, 1000)}
	p.cmd.Env = append(os.Environ(), asMain+"=yes")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() }) // it may have ended
	go p.read(stderr)
	return p, p.await("serving the control API")["address"].(string)
}

func (p *process) read(stderr io.Reader) {
	defer close(p.lines)
	for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
		var line map[string]any
		if json.Unmarshal(scanner.Bytes(), &line) == nil {
			p.lines <- line
		}
	}
}

// await returns the next log line with a message that contains text.
func (p *process) await(text string) map[string]any {
	p.t.Helper()
	for timeout := time.After(10 * time.Minute); ; {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the agent ended before it said %q", text)
			}
			if strings.Contains(line["msg"].(string), text) {
				return line
			}
		case <-timeout:
			p.t.Fatalf("the agent does not say %q", text)
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// hold stops the agent as Ctrl-Z does, and returns once it stands still. What it is sent then is
// pending until SIGCONT.
func (p *process) hold() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		p.t.Fatalf("the agent does not stand still: status %x, %v", int(status), err)
	}
}

// wait returns the exit code after the agent has ended.
func (p *process) wait() int {
	for range p.lines { // until the end: Wait must not cut it off
	}
	_ = p.cmd.Wait() // the exit code is in ProcessState
	return p.cmd.ProcessState.ExitCode()
}

func writeConfig(t *testing.T, path, more string) {
	t.Helper()
	text := head + "  dataDir: data\n  api: {address: 127.0.0.1:0}\n  web: {address: 127.0.0.1:0}\n" + more
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSignals: SIGHUP reloads, the first SIGINT or SIGTERM stops the agent gracefully,
// and the second one at once.
func TestSignals(t *testing.T) {
	t.Run("reload and an orderly end", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "piped.yaml")
		writeConfig(t, path, "")
		p, _ := start(t, path)
		writeConfig(t, path, "  limits: {deployments: 7}\n")
		p.signal(syscall.SIGHUP)
		if changed := p.await("the changed configuration is in effect")["changed"]; changed != "limits" {
			t.Errorf("changed: %v", changed)
		}
		p.signal(syscall.SIGTERM)
		if reason := p.await("the agent stops")["reason"]; reason != "SIGTERM" {
			t.Errorf("reason: %v", reason)
		}
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d after SIGTERM, want 0", code)
		}
	})
	t.Run("a second signal", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "piped.yaml")
		writeConfig(t, path, "")
		p, api := start(t, path)
		conn, err := grpc.NewClient(api, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		health, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := health.Recv(); err != nil { // the open call delays the graceful shutdown
			t.Fatal(err)
		}
		p.hold() // else the graceful shutdown could end before the second signal is sent
		p.signal(syscall.SIGINT)
		p.signal(syscall.SIGTERM)
		p.signal(syscall.SIGCONT)
		if code := p.wait(); code != exitKilled {
			t.Errorf("exit code %d after the second signal, want %d", code, exitKilled)
		}
	})
}
