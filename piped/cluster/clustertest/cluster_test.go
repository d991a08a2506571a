package clustertest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// holdCluster makes the test binary a process that starts a cluster and is killed; see
// TestAClusterEndsWithItsParent.
const holdCluster = "CLUSTERTEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdCluster) == "" {
		Main(m)
	}
	c, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.process.Pid, c.Dir())
	select {}
}

func TestAClusterFromStartToStop(t *testing.T) {
	ctx := context.Background()
	c, err := Start(ctx, Options{Args: []string{"--nodes", "1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	nodes, err := c.Client(t).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("nodes: %v, %v", nodes, err)
	}
	if err := c.StopComponent(ctx, "apiserver"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(t).Discovery().ServerVersion(); err == nil {
		t.Error("a stopped API server answers")
	}
	if err := c.StartComponent(ctx, "apiserver"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Client(t).Discovery().ServerVersion(); err != nil {
		t.Errorf("a started API server: %v", err)
	}
	if err := c.StopComponent(ctx, "flux-capacitor"); err == nil {
		t.Error("a component that does not exist was stopped")
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(c.process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process after Stop: %v", err)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary directory after Stop: %v", err)
	}
}

func TestAClusterEndsWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), holdCluster+"=1")
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var pid int
	var dir string
	if _, scanErr := fmt.Sscan(line, &pid, &dir); err != nil || scanErr != nil {
		t.Fatalf("the process printed %q (%v): %v", line, err, parent.Wait())
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Fatal("a killed process ended without an error")
	}
	err = wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, stopTimeout, true, func(context.Context) (bool, error) {
		return !alive(pid), nil
	})
	if err != nil {
		t.Errorf("the cluster (process %d) outlives its parent: %v", pid, err)
	}
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestStartSaysWhyThereIsNoCluster(t *testing.T) {
	dir := t.TempDir()
	failing := filepath.Join(dir, "failing")
	if err := os.WriteFile(failing, []byte("#!/bin/sh\necho no room for etcd >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	module := filepath.Join(dir, "module", "deep")
	if err := os.MkdirAll(module, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "module", "go.mod"), []byte("module m\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ program, workDir, want string }{
		"the program ends":       {failing, dir, "the cluster in DIR ended before it was ready: exit status 3\nno room for etcd"},
		"DEVCLUSTER is wrong":    {dir + "/none", dir, "DEVCLUSTER names no program: stat " + dir + "/none: no such file or directory"},
		"DEVCLUSTER is a folder": {dir, dir, "DEVCLUSTER names no program: " + dir + " cannot be executed"},
		"nothing is built": {"", module, "the test cluster is not built: run `make devcluster` in " + dir + "/module, or set DEVCLUSTER to the program: stat " +
			dir + "/module/bin/devcluster: no such file or directory"},
		"outside a module": {"", dir, "find the module: no go.mod above the working directory; set DEVCLUSTER to the program"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DEVCLUSTER", c.program)
			t.Chdir(c.workDir)
			data := t.TempDir()
			_, err := Start(context.Background(), Options{Dir: data})
			if err == nil || strings.ReplaceAll(err.Error(), data, "DIR") != c.want {
				t.Errorf("error:\n%v\nwant:\n%s", err, c.want)
			}
		})
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	script := filepath.Join(t.TempDir(), "slow")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DEVCLUSTER", script)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("enough"))
	_, err := Start(ctx, Options{Dir: t.TempDir()})
	if err == nil || !strings.HasSuffix(err.Error(), ": enough") {
		t.Errorf("error: %v", err)
	}
}

func TestNamespacesOfASharedCluster(t *testing.T) {
	c := Shared(t)
	if Shared(t) != c {
		t.Error("two shared clusters")
	}
	var name string
	t.Run("in use", func(t *testing.T) {
		name = c.Namespace(t)
		if other := c.Namespace(t); other == name {
			t.Errorf("two namespaces named %s", name)
		}
	})
	ns, err := c.Client(t).CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
	if err == nil && ns.DeletionTimestamp == nil {
		t.Errorf("namespace %s outlives its test", name)
	}
}
