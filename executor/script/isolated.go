package script

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/linelog"
)

// isolation is the isolation of one script.
type isolation struct {
	launcher sandbox.Launcher
	command  sandbox.Command // without the script
	dir      string          // parent of its workspace
}

// isolate returns the isolation for a script. With OtherUser it waits for a free user
// and reserves it until release is called.
func (e *Executor) isolate(ctx context.Context, log deploy.StageLog) (_ isolation, release func(), err error) {
	in := isolation{e.Launcher, sandbox.Command{Way: e.way, Allow: e.Isolation.Allow}, e.Dir}
	if e.way.Mode != sandbox.OtherUser {
		return in, func() {}, nil
	}
	users := e.Isolation.Users
	var n int
	select {
	case n = <-e.free:
	default:
		log.Infof("Waiting until another script ends: scripts.user.count permits %d at once", users.Count)
		select {
		case n = <-e.free:
		case <-ctx.Done():
			return isolation{}, nil, errors.New("the script was not started: it waited for the end of another")
		}
	}
	in.dir, in.command.Hidden = users.Dir, users.Hidden
	in.command.UID, in.command.GID = users.IDs(n)
	return in, func() { e.free <- n }, nil
}

// runIsolated is run in a sandbox. When ctx is cancelled all processes of the script get
// SIGTERM, and SIGKILL after the grace period.
func (c command) runIsolated(ctx context.Context, log deploy.StageLog, in isolation, ws workspace) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	isolated := in.command
	isolated.Script, isolated.Dir, isolated.Env, isolated.Own, isolated.Tmp, isolated.Root = c.script, c.dir, c.env, ws.dir, ws.tmp, ws.root
	process, err := in.launcher.Start(isolated, w, ws.lock)
	w.Close() // only the script's copies keep the pipe open
	if err != nil {
		return err
	}
	var copied sync.WaitGroup
	copied.Go(func() { linelog.Copy(log, r) })
	ended := make(chan struct{})
	copied.Go(func() { c.stop(ctx, process, ended) })
	err = process.Wait()
	close(ended)
	drain := time.AfterFunc(drainTime, func() { r.Close() })
	copied.Wait()
	drain.Stop()
	if err == nil && ctx.Err() != nil {
		return ctx.Err() // it exited after SIGTERM
	}
	return err
}

// stop ends a running script when ctx is cancelled.
func (c command) stop(ctx context.Context, process *sandbox.Process, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	process.Terminate()
	grace := time.NewTimer(c.grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		process.Kill()
	}
}
