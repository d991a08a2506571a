package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// probeTime bounds the script that probes a mode.
const probeTime = 20 * time.Second

// Program is started as the launcher: this one. Tests may set a smaller one before the first script.
var Program = "/proc/self/exe"

// Settings configure the isolation of scripts.
type Settings struct {
	Modes []Mode   // permitted modes, the strongest first
	Allow []string // see Command
	Users Users    // of OtherUser
}

// Choose returns the first way that works on this machine. It probes each with a script in
// a directory below dir, or below the users' directory with OtherUser. If none works, the
// error explains why each does not.
func Choose(ctx context.Context, dir string, s Settings) (Way, error) {
	var why []string
	for _, mode := range s.Modes {
		var err error
		for _, by := range mode.ways() {
			way := Way{mode, by}
			if err = probe(ctx, way, dir, s); err == nil {
				return way, nil
			}
		}
		why = append(why, fmt.Sprintf("%s: %v", mode, err))
	}
	return Way{}, fmt.Errorf("scripts cannot be isolated on this machine: %s; run the agent where user namespaces or Landlock of Linux 6.12 are permitted, "+
		"or as root with scripts.user, or write scripts.isolation: none to let scripts do all that the agent can", strings.Join(why, "; "))
}

// probe runs a script that exercises what a way must provide.
func probe(ctx context.Context, way Way, dir string, s Settings) error {
	c := Command{Way: way, Script: "exec <&- && : >probe && rm probe", Allow: s.Allow}
	if way.Mode == OtherUser {
		if err := s.Users.Open(); err != nil {
			return err
		}
		dir, c.Hidden = s.Users.Dir, s.Users.Hidden
		c.UID, c.GID = s.Users.IDs(0)
	}
	own, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(own)
	c.Own, c.Dir, c.Tmp, c.Root = own, own, filepath.Join(own, "tmp"), filepath.Join(own, "root")
	if err := errors.Join(os.Mkdir(c.Tmp, 0o700), os.Mkdir(c.Root, 0o700)); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	p, err := Start(c, null, nil)
	if err != nil {
		return err
	}
	timer := time.AfterFunc(probeTime, p.Kill)
	defer timer.Stop()
	defer context.AfterFunc(ctx, p.Kill)()
	return p.Wait()
}

// Process is a running script. Its methods are safe for concurrent use.
type Process struct {
	command Command
	cmd     *exec.Cmd
	control *os.File
	report  *os.File
}

// Start starts a script whose output goes to out. The launcher holds lock, if not nil,
// open while any process of the script may run.
func Start(c Command, out, lock *os.File) (*Process, error) {
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode the script: %w", err)
	}
	control, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer control.Close()
	reported, reports, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	defer reports.Close()
	cmd := again(outerName, spec, out, control, reports)
	cmd.Path = Program
	if lock != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, lock)
	}
	p := &Process{c, cmd, orders, reported}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the launcher of scripts: %w", err), orders.Close(), reported.Close())
	}
	return p, nil
}

// Terminate sends SIGTERM to every process of the script.
func (p *Process) Terminate() { _, _ = p.control.Write([]byte{1}) } // ignored by a script that has ended

// Kill ends every process of the script at once.
func (p *Process) Kill() { _ = p.control.Close() } // it may be closed

// Wait returns after every process of the script has ended: nil if it exited with 0, an
// *Ended otherwise, and another error if it could not be started.
func (p *Process) Wait() error {
	var r report
	reportErr := json.NewDecoder(p.report).Decode(&r) // the first report contains the cause
	waitErr := p.cmd.Wait()
	p.Kill() // leftovers of a killed launcher
	if reportErr != nil {
		endLeft(p.command, p.cmd.Process.Pid)
	}
	if err := errors.Join(reportErr, p.report.Close()); err != nil {
		return fmt.Errorf("the launcher of the script ended without a report: %w", errors.Join(waitErr, err))
	}
	return r.result()
}
