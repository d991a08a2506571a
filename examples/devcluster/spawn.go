package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts all children from one OS thread that lives as long as the
// process. The kernel sends a child's parent-death signal when the *thread*
// that started it ends, and Go ends threads at will.
type spawner struct {
	requests chan spawnRequest
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

// newSpawner starts the thread. There is no way to end it: that would kill
// every child.
func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	go func() {
		runtime.LockOSThread()
		for r := range s.requests {
			r.done <- r.cmd.Start()
		}
	}()
	return s
}

// process is a running or ended child.
type process struct {
	pid    int
	ended  chan struct{} // closed when the process is gone
	result string        // how it ended; valid once ended is closed
	signal func(os.Signal) error
	logged int64 // where its part of the component's log begins
}

// start runs a component, its output appended to its log.
func (s *spawner) start(d dir, c component) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	log, err := openLog(d.log(c.name))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	logged, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("finding the end of a component's log: %w", err)
	}
	cmd := exec.Command(self, append([]string{"component", c.name}, c.args...)...)
	cmd.Dir = string(d)
	cmd.Env = childEnv(d)
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own keeps the terminal's Ctrl-C from the child: the
	// parent ends the components in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	done := make(chan error)
	s.requests <- spawnRequest{cmd, done}
	if err := <-done; err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	p := &process{pid: cmd.Process.Pid, ended: make(chan struct{}), signal: cmd.Process.Signal, logged: logged}
	go func() {
		defer close(p.ended)
		cmd.Wait()
		p.result = cmd.ProcessState.String()
	}()
	return p, nil
}

const maxLog = 16 << 20

// openLog appends to a log, putting one that has grown large aside first.
func openLog(file string) (*os.File, error) {
	if info, err := os.Stat(file); err == nil && info.Size() > maxLog {
		if err := os.Rename(file, file+".old"); err != nil {
			return nil, fmt.Errorf("putting the old log aside: %w", err)
		}
	}
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a component's log: %w", err)
	}
	return log, nil
}
