package script

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/linelog"
	"github.com/c785c783/piped/piped/marked"
)

const (
	groupPoll = 20 * time.Millisecond // interval of checks whether a stopped group still runs
	drainTime = time.Second           // time to read output after the last process was killed
)

// command is a script to run. Without isolation it runs in its own process group.
type command struct {
	script string
	dir    string   // working directory
	mark   string   // value of markVariable: the workspace
	env    []string // the whole environment
	grace  time.Duration
}

// run runs the script and returns nil if it exited with 0. When ctx is cancelled the
// whole group gets SIGTERM, and SIGKILL after the grace period. When run returns, no
// process of the script is left: processes that outlive the shell are killed.
//
// The shell is not a login shell (-l): profiles of the image and the user would change
// PATH and other variables of the stage's environment.
func (c command) run(ctx context.Context, log deploy.StageLog) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", c.script)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, c.env, w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = c.grace
	err = cmd.Start()
	w.Close() // only the script's copies keep the pipe open
	if err != nil {
		return err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		linelog.Copy(log, r)
	}()
	err = cmd.Wait()
	c.finish(ctx, cmd.Process.Pid)
	timer := time.AfterFunc(drainTime, func() { r.Close() })
	<-copied
	timer.Stop()
	return err
}

// finish ends the rest of the group after its leader has ended. A stopped group has the
// grace period to end.
func (c command) finish(ctx context.Context, group int) {
	end := time.NewTimer(c.grace)
	defer end.Stop()
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for waiting := ctx.Err() != nil; waiting && groupLives(group); {
		select {
		case <-end.C:
			waiting = false
		case <-poll.C:
		}
	}
	_ = signalGroup(group, syscall.SIGKILL) // the group may be empty
	groupLives(group)                       // reaps the killed processes
	marked.Kill(markVariable, c.mark)
}

// signalGroup sends a signal to every process of a group.
func signalGroup(group int, sig syscall.Signal) error {
	err := syscall.Kill(-group, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// groupLives reports whether a process of a group still runs. As init process of its
// container the agent reaps orphans. Under another init, unreaped zombies do not count
// as running.
func groupLives(group int) bool {
	for {
		if pid, err := syscall.Wait4(-group, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			break
		}
	}
	if syscall.Kill(-group, 0) != nil {
		return false
	}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err == nil && runsIn(stat, group) {
			return true
		}
	}
	return len(files) == 0 // without /proc zombies cannot be detected
}

// runsIn reports, for a line of /proc/<pid>/stat, whether the process belongs to the
// group and has not ended.
func runsIn(stat []byte, group int) bool {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // after the name: state, parent, group
	if len(fields) < 3 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return false
	}
	return string(fields[2]) == strconv.Itoa(group)
}
