package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usageFile is the environment variable with the file that receives what test programs used.
const usageFile = "CHECKS_USAGE"

// execTest runs a test program and returns its exit code. It records the processor time of the
// program and of the processes that it started. Signals are passed on: on SIGQUIT, which the go
// command sends at the end of the time, the program prints its goroutines. It does not see
// GOTMPDIR, which is for what the go command builds: a test that sees it makes its own
// directories there.
func execTest(args []string, stderr io.Writer) int {
	runtime.LockOSThread() // the program is killed when the thread that started it ends
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGINT)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOTMPDIR=") })
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(stderr, "checks:", err)
		return 2
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // fails when it has ended
		}
	}()
	_ = cmd.Wait() // the exit code says it
	if err := recordUsage(os.Getenv(usageFile), processorTime(cmd.ProcessState)); err != nil {
		fmt.Fprintln(stderr, "checks:", err)
		return 2
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return 2 // ended by a signal
}

// processorTime returns that of an ended process and of its descendants, as far as they were
// waited for.
func processorTime(p *os.ProcessState) time.Duration {
	if p == nil {
		return 0
	}
	return p.UserTime() + p.SystemTime()
}

// recordUsage adds a line with the processor time of the test program of a package, whose source
// is in the working directory.
func recordUsage(path string, used time.Duration) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%d %s\n", used.Milliseconds(), dir)
	return cmp.Or(err, file.Close())
}

// sortUsage replaces the lines that recordUsage has added to a file by a table of the processor
// time of each package's tests, the longest first.
func sortUsage(path string) {
	root, _ := os.Getwd()
	type usage struct {
		ms  int64
		pkg string
	}
	var all []usage
	recorded, _ := os.ReadFile(path)
	for line := range strings.Lines(string(recorded)) {
		ms, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		pkg, err := filepath.Rel(root, dir)
		n, parseErr := strconv.ParseInt(ms, 10, 64)
		if err == nil && parseErr == nil {
			all = append(all, usage{n, pkg})
		}
	}
	slices.SortFunc(all, func(a, b usage) int { return cmp.Compare(b.ms, a.ms) })
	var b strings.Builder
	for _, u := range all {
		fmt.Fprintf(&b, "%8.1f s  %s\n", float64(u.ms)/1000, u.pkg)
	}
	_ = os.WriteFile(path, []byte(b.String()), 0o644) // a table for people, without which nothing fails
}
