package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout bounds how long an interrupted command may take to end before it is
// killed.
const stopTimeout = 20 * time.Second

// step is one command of a check. It runs once the steps that it needs have passed, and
// those that it follows have ended.
type step struct {
	name  string
	args  []string
	env   []string
	log   string  // the file that receives its output
	needs []*step // they must have passed
	after []*step // they must have ended: both at once are more than the machine can do
	tests *tests  // not nil for `go test -json`: its output is read, not only written

	done chan struct{} // closed when it has ended or was left out
	err  error
	took time.Duration
	used time.Duration // processor time, with that of the processes that it started
}

// errLeftOut is the error of a step whose needs failed.
var errLeftOut = errors.New("not run: a step that it needs failed")

// runAll runs all steps, each as soon as what it needs has passed, and returns when
// every one has ended.
func runAll(ctx context.Context, steps []*step, stdout io.Writer) {
	out := &lines{w: stdout}
	for _, s := range steps {
		s.done = make(chan struct{})
	}
	var running sync.WaitGroup
	for _, s := range steps {
		running.Go(func() {
			defer close(s.done)
			began := time.Now()
			s.err = s.runAfterNeeds(ctx, out)
			s.took = time.Since(began)
			if !errors.Is(s.err, errLeftOut) && ctx.Err() == nil {
				out.printf("%s %s (%s, %.0f s of processor time)\n", outcome(s.err), s.name, s.took.Round(time.Second), s.used.Seconds())
			}
		})
	}
	running.Wait()
}

func outcome(err error) string {
	if err != nil {
		return "FAILED"
	}
	return "passed"
}

func (s *step) runAfterNeeds(ctx context.Context, out *lines) error {
	for _, need := range s.needs {
		<-need.done
		if need.err != nil {
			return errLeftOut
		}
	}
	for _, other := range s.after {
		<-other.done
	}
	return s.run(ctx, out)
}

// run runs the command in a process group of its own. When ctx ends, the group gets
// SIGINT, as from a terminal, and is killed if it has not ended in time.
func (s *step) run(ctx context.Context, out *lines) (err error) {
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.CommandContext(ctx, s.args[0], s.args[1:]...)
	cmd.Env = s.env
	cmd.Stdout, cmd.Stderr = log, log
	if s.tests != nil {
		s.tests.begin(log, out)
		cmd.Stdout = s.tests
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	err = cmd.Run()
	s.used = processorTime(cmd.ProcessState)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(s.args, " "), err)
	}
	return nil
}

// lines writes whole lines from several goroutines.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format, args...)
}

// logFile returns the file for the output of a step.
func logFile(dir, name string) string {
	return filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".log")
}
