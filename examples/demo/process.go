package main

import (
	"errors"
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
	ended     chan struct{} // closed when the program has ended
	err       error         // how it ended; read after ended is closed
}

// startProcess starts a program whose output goes to the file log.
func startProcess(program, log string, args ...string) (*process, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	defer file.Close()
	p := &process{name: filepath.Base(program), log: log, cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = file, file
	p.cmd.SysProcAttr = childAttributes()
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
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.ended)
}

// failure describes a program that ended by itself, with the end of its log.
func (p *process) failure() error {
	how := "with status 0"
	if p.err != nil {
		how = p.err.Error()
	}
	return fmt.Errorf("%s ended unexpectedly (%s); the end of %s:\n%s", p.name, how, p.log, p.tail())
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

// stop ends the program and waits for it.
func (p *process) stop() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-p.ended:
	case <-timeout.C:
		err := p.cmd.Process.Kill()
		<-p.ended
		return errors.Join(fmt.Errorf("%s did not stop within %s and was killed; its log: %s", p.name, stopTimeout, p.log), err)
	}
	if p.err != nil {
		return fmt.Errorf("%s did not stop cleanly (%w); its log: %s", p.name, p.err, p.log)
	}
	return nil
}
