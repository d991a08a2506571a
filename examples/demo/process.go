package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is how long a program may take to end before it is killed.
const stopTimeout = 15 * time.Second

// process is a program that runs beside the demo and ends with it.
type process struct {
	name, log string
	cmd       *exec.Cmd
	terminate context.CancelFunc
	ended     chan struct{} // closed when the program has ended
}

// startProcess starts a program whose output goes to the file log.
func startProcess(program, log string, args ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	defer file.Close()
	ctx, terminate := context.WithCancel(context.Background())
	p := &process{name: filepath.Base(program), log: log, terminate: terminate, ended: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, program, args...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = file, file, childAttributes()
	p.cmd.Cancel, p.cmd.WaitDelay = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }, stopTimeout
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return p, nil
}

// run starts the program and waits for it. It keeps its thread: the kernel
// sends the parent-death signal when the thread that started the program ends.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.ended)
	}
}

// failure describes a program that has ended and should not have, with the end
// of its log.
func (p *process) failure() error {
	return fmt.Errorf("%s ended unexpectedly (%s); the end of %s:\n%s", p.name, p.cmd.ProcessState, p.log, p.tail())
}

// tail returns the end of the program's log.
func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-15):], "\n  ")
}

// stop ends the program, by force after a while, and waits for it.
func (p *process) stop() error {
	p.terminate()
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not stop cleanly within %s (%s); its log: %s", p.name, stopTimeout, p.cmd.ProcessState, p.log)
	}
	return nil
}
