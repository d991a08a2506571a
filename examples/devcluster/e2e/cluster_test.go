package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// binary returns the devcluster to test.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("DEVCLUSTER")
	if path == "" {
		t.Fatal("DEVCLUSTER is not set; build the binary with examples/devcluster/build.sh OUT and set DEVCLUSTER to the absolute path of OUT")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("DEVCLUSTER names no binary: %v; build it with examples/devcluster/build.sh %s", err, path)
	}
	return path
}

// testCluster is a running "devcluster up".
type testCluster struct {
	dir     string
	cmd     *exec.Cmd
	stderr  *lockedBuffer
	ended   chan error
	client  kubernetes.Interface
	dynamic dynamic.Interface
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// up starts a cluster and returns when it announced its kubeconfig. It is
// ended with the test.
func up(t *testing.T, dir string, flags ...string) *testCluster {
	t.Helper()
	c := &testCluster{dir: dir, stderr: &lockedBuffer{}, ended: make(chan error, 1)}
	c.cmd = exec.Command(binary(t), append([]string{"up", "--dir", dir}, flags...)...)
	c.cmd.Stderr = c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Signal(syscall.SIGTERM); <-c.ended })
	line, readErr := bufio.NewReader(stdout).ReadString('\n')
	go func() { c.ended <- c.cmd.Wait(); close(c.ended) }()
	if readErr != nil {
		t.Fatalf("up printed no kubeconfig: %v\n%s", readErr, c.stderr)
	}
	if want := filepath.Join(dir, "kubeconfig") + "\n"; line != want {
		t.Fatalf("up printed %q, want %q", line, want)
	}
	t.Logf("ready after %s", time.Since(start).Round(10*time.Millisecond))
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c.client = kubernetes.NewForConfigOrDie(config)
	c.dynamic = dynamic.NewForConfigOrDie(config)
	return c
}

// run executes another command on the cluster and returns all it printed.
func (c *testCluster) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(binary(t), append(args, "--dir", c.dir)...).CombinedOutput()
	return string(out), err
}

// mustRun is run for a command that has to succeed.
func (c *testCluster) mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run(t, args...)
	if err != nil {
		t.Fatalf("devcluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// pids returns the process ids of the running components by name.
func (c *testCluster) pids(t *testing.T) map[string]int {
	t.Helper()
	pids := map[string]int{}
	for line := range strings.Lines(c.mustRun(t, "status")) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			t.Fatalf("status printed %q, want name, state, pid and port", line)
		}
		pid, err := strconv.Atoi(fields[2])
		if err != nil {
			t.Fatal(err)
		}
		if fields[1] == "running" {
			pids[fields[0]] = pid
		}
	}
	return pids
}

// alive reports whether a process exists and is no zombie. One whose first thread has
// ended is a zombie, too, but holds its files until the others have.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z") || len(threads) > 1
}

// eventually polls until check returns nil, and fails with its last error.
func eventually(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("it did not happen in ten minutes: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
