package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCluster is one cluster's day, from its first start to SIGTERM.
func TestCluster(t *testing.T) {
	c := up(t, filepath.Join(t.TempDir(), "cluster"), "--route-status", "accept")
	t.Run("pods", func(t *testing.T) { testPods(t, c) })
	t.Run("workloads", func(t *testing.T) { testWorkloads(t, c) })
	t.Run("scale", func(t *testing.T) { testScale(t, c) })
	t.Run("routes", func(t *testing.T) { testRoutes(t, c) })
	t.Run("second up", func(t *testing.T) {
		out, err := c.run(t, "up")
		if err == nil || !strings.Contains(out, "is up in") || !strings.Contains(out, "devcluster down") {
			t.Errorf("a second up: %v, %q, want a failure that says what to do", err, out)
		}
	})
	t.Run("stop and start", func(t *testing.T) { testStopStart(t, c) })
	t.Run("restart", func(t *testing.T) { testRestart(t, c) })
	t.Run("SIGTERM", func(t *testing.T) {
		pids := c.pids(t)
		start := time.Now()
		if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := <-c.ended; err != nil {
			t.Errorf("up ended with %v, want exit code 0\n%s", err, c.stderr)
		}
		t.Logf("stopped after %s", time.Since(start).Round(10*time.Millisecond))
		noneAlive(t, pids)
	})
}

func testStopStart(t *testing.T, c *testCluster) {
	pid := c.pids(t)["apiserver"]
	c.mustRun(t, "stop", "apiserver")
	if alive(pid) {
		t.Error("the API server runs after it was stopped")
	}
	if _, err := c.client.Discovery().ServerVersion(); err == nil {
		t.Error("the API answers after it was stopped")
	}
	if _, running := c.pids(t)["apiserver"]; running {
		t.Error("status says that the API server runs")
	}
	c.mustRun(t, "start", "apiserver")
	if _, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("after start has returned, the API says %v", err)
	}
	if out, err := c.run(t, "stop", "kubelet"); err == nil || !strings.Contains(out, "choose one of etcd") {
		t.Errorf("stopping an unknown component: %v, %q, want a failure that names those there are", err, out)
	}
}

// testRestart kills one component behind the parent's back.
func testRestart(t *testing.T, c *testCluster) {
	pid := c.pids(t)["scheduler"]
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(context.Context) error {
		if now := c.pids(t)["scheduler"]; now == 0 || now == pid {
			return errors.New("the scheduler was not started again")
		}
		return nil
	})
	eventually(t, func(context.Context) error { // what up says comes through a pipe
		if said := c.stderr.String(); !strings.Contains(said, "scheduler ended by itself") {
			return fmt.Errorf("up said %q, want a word about the scheduler", said)
		}
		return nil
	})
}

// TestKill checks that nothing outlives a killed parent, and nothing is lost.
func TestKill(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cluster")
	c := up(t, folder)
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "note"}, Data: map[string]string{"kept": "yes"}}
	if _, err := c.client.CoreV1().ConfigMaps("default").Create(t.Context(), note, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pids := c.pids(t)
	if len(pids) != 6 {
		t.Fatalf("%d components run, want 6: %v", len(pids), pids)
	}
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-c.ended
	noneAlive(t, pids)

	again := up(t, folder)
	got, err := again.client.CoreV1().ConfigMaps("default").Get(t.Context(), "note", metav1.GetOptions{})
	if err != nil || got.Data["kept"] != "yes" {
		t.Errorf("after the kill: %v, %v, want the data kept", got, err)
	}
	if _, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the first kubeconfig is no longer good: %v", err)
	}
	again.mustRun(t, "down")
	if err := <-again.ended; err != nil {
		t.Errorf("after down, up ended with %v, want exit code 0", err)
	}
	again.mustRun(t, "down")
}

// noneAlive waits for the kernel to have carried out the parent's death.
func noneAlive(t *testing.T, pids map[string]int) {
	t.Helper()
	eventually(t, func(context.Context) error {
		for name, pid := range pids {
			if alive(pid) {
				return fmt.Errorf("%s (%d) is still there", name, pid)
			}
		}
		return nil
	})
}
