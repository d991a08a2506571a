package leftovers

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// start starts a shell with the entry in its environment, and returns when count
// processes of it run. It is waited for when the test ends.
func start(t *testing.T, entry string, count int, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", entry}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // a signal ends it
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	for deadline := time.Now().Add(time.Minute); len(processes(entry)) != count; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v run, want %d processes", processes(entry), count)
		}
	}
	return cmd
}

func TestEndEndsAProcessAndItsChildren(t *testing.T) {
	entry := "LEFTOVERS=" + t.TempDir()
	cmd := start(t, entry, 2, "sleep 60 & wait")
	left := End(entry, 0)
	if len(left) != 2 || left[0].PID != cmd.Process.Pid && left[1].PID != cmd.Process.Pid {
		t.Errorf("left %v, want the shell %d and its child", left, cmd.Process.Pid)
	}
	if still := processes(entry); len(still) > 0 {
		t.Errorf("%v runs after End", still)
	}
}

func TestEndWaitsForAProcessThatEndsByItself(t *testing.T) {
	entry := "LEFTOVERS=" + t.TempDir()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, entry, 2, `cat "$1"; :`, fifo) // cat runs until the other end of the pipe is closed
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() {
		time.Sleep(time.Second)
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
	if left := End(entry, 30*time.Second); len(left) > 0 {
		t.Errorf("left %v, want none", left)
	}
}

func TestEndLeavesAloneWhoOnlyNamesTheValue(t *testing.T) {
	dir := t.TempDir()
	cmd := start(t, "OTHER=LEFTOVERS="+dir, 2, "sleep 60 & wait", "LEFTOVERS="+dir)
	if left := End("LEFTOVERS="+dir, 0); len(left) > 0 {
		t.Errorf("left %v, want none", left)
	}
	if still := processes("OTHER=LEFTOVERS=" + dir); len(still) != 2 {
		t.Errorf("%v run, want the shell %d and its child", still, cmd.Process.Pid)
	}
	End("OTHER=LEFTOVERS="+dir, 0)
}

// TestAProcessThatReplacesItsProgramIsFound: a process is known at every moment, also while it
// becomes another program.
func TestAProcessThatReplacesItsProgramIsFound(t *testing.T) {
	entry := "LEFTOVERS=" + t.TempDir()
	start(t, entry, 1, `exec /bin/sh -c "$1" sh "$1"`, `exec /bin/sh -c "$1" sh "$1"`) // again and again
	for range 50 {
		if len(processes(entry)) != 1 {
			t.Fatal("the process was not found")
		}
	}
}
