package agenttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is the time that a program gets to end before it is killed. The agent itself gives its
// components 30 s, and then says which have not ended.
const stopTimeout = 2 * time.Minute

// Process is a child process that ends with this one.
type Process struct {
	name, log string
	from      int64 // size of the log when the program was started
	cmd       *exec.Cmd
	ended     chan struct{} // closed when the program has ended
}

// StartProcess starts a program whose output is appended to the file log.
func StartProcess(program, log string, args ...string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p := &Process{name: filepath.Base(program), log: log, from: info.Size(), ended: make(chan struct{}), cmd: exec.Command(program, args...)}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return p, nil
}

// run starts the program and waits for it. It keeps its thread: the kernel
// sends the parent-death signal when the thread that started the program ends.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.ended)
	}
}

// PID returns the program's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the program has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Failure describes an unexpected end of the program, with the end of its log.
func (p *Process) Failure() error {
	return fmt.Errorf("%s ended unexpectedly (%s); the end of %s:\n%s", p.name, p.cmd.ProcessState, p.log, p.Tail())
}

// Log returns what the program has written to its log since it was started.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[min(p.from, int64(len(data))):])
}

// Tail returns the end of the program's log.
func (p *Process) Tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-15):], "\n  ")
}

// Kill ends the program with SIGKILL and waits for it.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// Stop ends the program, by force after a timeout, and waits for it. It returns an error
// if the program did not exit by itself with status 0.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		p.Kill()
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not stop cleanly within %s (%s); the end of %s:\n%s", p.name, stopTimeout, p.cmd.ProcessState, p.log, p.Tail())
	}
	return nil
}
