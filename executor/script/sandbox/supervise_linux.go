package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// killEvery is the interval of repeated kills of a script's processes, which may have
// forked meanwhile.
const killEvery = 10 * time.Millisecond

// exit is the end of a child process.
type exit struct {
	pid    int
	status syscall.WaitStatus
}

// family reaches the processes of a script. Its functions succeed if there are none.
type family struct {
	signal  func(script int, sig syscall.Signal) // sends a signal to all; script is the PID of the shell
	kill    func()                               // kills all, possibly without those that fork meanwhile
	finish  func()                               // ends the rest after all children have ended
	started func() error                         // called after the script's start; may be nil
}

// supervise runs the script as a child, directly or through this program under a name
// that restricts itself. It reports the end after the last process of the script has
// ended. Orphans of the script become children of this process.
func supervise(c Command, through string, f family) error {
	pid, err := start(c, through)
	if err == nil && f.started != nil {
		err = f.started()
	}
	if err == nil {
		err = Hide()
	}
	if err != nil {
		signalDescendants(syscall.SIGKILL)
		return err
	}
	exits, terminate, kill := make(chan exit), make(chan struct{}), make(chan struct{})
	go reap(exits)
	go obey(terminate, kill)
	var status syscall.WaitStatus
	var again <-chan time.Time // next repeated kill; nil before the first
	for terminating := false; ; {
		select {
		case e, ok := <-exits:
			if !ok {
				f.finish()
				return conclude(status)
			}
			if e.pid == pid {
				if status = e.status; !terminating {
					again = time.After(0)
				}
			}
		case <-terminate:
			terminating, terminate = true, nil
			f.signal(pid, syscall.SIGTERM)
		case <-kill:
			again, kill = time.After(0), nil
		case <-again:
			f.kill()
			again = time.After(killEvery)
		}
	}
}

// start starts the script and returns its PID.
func start(c Command, through string) (pid int, err error) {
	if through != "" {
		return startRestricted(c, through)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err = syscall.ForkExec("/bin/sh", []string{"/bin/sh", "-c", c.Script}, &syscall.ProcAttr{
		Dir: c.Dir, Env: c.Env, Files: []uintptr{null.Fd(), 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("start /bin/sh in %s: %w", c.Dir, err)
	}
	return pid, nil
}

// startRestricted starts this program under a name, with the command and a report pipe.
func startRestricted(c Command, name string) (pid int, err error) {
	spec, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	// The shell does not inherit the report pipe: launch closes it on exec. The
	// descriptor in place of the control pipe is not readable.
	pid, err = syscall.ForkExec("/proc/self/exe", []string{name}, &syscall.ProcAttr{
		Env: ownEnv(), Files: []uintptr{r.Fd(), 1, 2, 2, reportFD}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, errors.Join(err, w.Close())
	}
	_, err = w.Write(spec)
	return pid, errors.Join(err, w.Close())
}

// obey reads the agent's control pipe: a byte to terminate, the end to kill.
func obey(terminate, kill chan<- struct{}) {
	control, order := os.NewFile(controlFD, "control"), make([]byte, 1)
	for first := true; ; first = false {
		if n, err := control.Read(order); n == 0 || err != nil {
			break
		}
		if first {
			close(terminate)
		}
	}
	close(kill)
}

// reap sends every ended child to exits, and closes exits after the last.
func reap(exits chan<- exit) {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			close(exits)
			return
		default:
			exits <- exit{pid, status}
		}
	}
}

// conclude reports the end of the script.
func conclude(status syscall.WaitStatus) error {
	r := report{Code: status.ExitStatus()}
	if status.Signaled() {
		r = report{Signal: status.Signal()}
	}
	send(r)
	return nil
}

// signalScript sends a signal to the process group of a script, at once, so that none that is
// being forked in it escapes, and to its descendants in other groups.
func signalScript(script int, sig syscall.Signal) {
	_ = syscall.Kill(-script, sig) // it may have ended
	for _, pid := range descendants(os.Getpid(), parents()) {
		if group, err := syscall.Getpgid(pid); err == nil && group != script {
			_ = syscall.Kill(pid, sig)
		}
	}
}

// signalDescendants sends a signal to all descendants of this process. Orphans are its
// children, so none escapes.
func signalDescendants(sig syscall.Signal) {
	for _, pid := range descendants(os.Getpid(), parents()) {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}

// descendants returns the descendants of a process, parents before children: a shell
// must end by the signal, not because its child ended.
func descendants(of int, parents map[int]int) []int {
	var out []int
	depth := map[int]int{}
	for pid := range parents {
		for at, steps := parents[pid], 1; at != 0 && steps <= len(parents); at, steps = parents[at], steps+1 {
			if at == of {
				out, depth[pid] = append(out, pid), steps
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b int) int { return depth[a] - depth[b] })
	return out
}

// parents returns the parent of every process by PID.
func parents() map[int]int {
	out := map[int]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // after the name: state, parent
		if len(fields) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(fields[1])); err == nil {
			out[pid] = parent
		}
	}
	return out
}

// endLeft ends the processes of a script whose launcher was killed.
func endLeft(c Command, launcher int) {
	if c.EndedBy == ByCgroup {
		if g, err := groupOf(launcher); err == nil {
			g.end()
		}
	}
	if c.Mode == OtherUser {
		endUser(c.UID)
	}
}
