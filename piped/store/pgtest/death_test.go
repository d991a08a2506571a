package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// crashEnv makes the re-executed test binary start a server and panic.
const crashEnv = "PGTEST_CRASH"

func TestAPanicLeavesNoServerBehind(t *testing.T) {
	if os.Getenv(crashEnv) != "" {
		var s Server
		s.NewDSN(t)
		fmt.Printf("pid=%d dir=%s;\n", s.process.cmd.Process.Pid, s.dir)
		go panic("a test that panics in a goroutine of its own")
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), crashEnv+"=1")
	out, err := cmd.Output()
	if err == nil {
		t.Fatalf("the child did not panic: %s", out)
	}
	fields := bytes.FieldsFunc(out, func(r rune) bool { return r == '=' || r == ' ' || r == ';' })
	if len(fields) < 4 {
		t.Fatalf("the child started no server: %s", out)
	}
	pid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(string(fields[3])) //nolint:errcheck // of the child, which could not
	deadline := time.After(stopTimeout)
	for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		select {
		case <-deadline:
			t.Fatalf("the server, process %d, outlived the test process", pid)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
