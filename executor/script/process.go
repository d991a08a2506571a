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
	"github.com/c785c783/piped/piped/marked"
	"github.com/c785c783/piped/piped/ownership"
)

// isolation is the isolation of one script.
type isolation struct {
	command sandbox.Command // without the script
	dir     string          // parent of its workspace
}

// isolate returns the isolation for a script. With OtherUser it waits for a free user
// and reserves it until release is called.
func (e *Executor) isolate(ctx context.Context, log deploy.StageLog) (_ isolation, release func(), err error) {
	in := isolation{sandbox.Command{Way: e.way, Allow: e.Isolation.Allow}, e.Dir}
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

// command is a script to run.
type command struct {
	script string
	dir    string   // working directory
	env    []string // the whole environment
	grace  time.Duration
}

const (
	drainTime = time.Second     // to read output after the last process was killed
	lostGrace = 2 * time.Second // from SIGTERM to SIGKILL if another replica may continue: see ownership.Config.Margin
)

// run runs the script and returns nil if it exited with 0. When ctx is cancelled all its
// processes get SIGTERM, and SIGKILL after the grace period. When run returns, no process of
// the script is left: what outlives the shell is killed. When this process is killed, the
// launcher kills the script.
//
// The shell is not a login shell (-l): profiles of the image and the user would change
// PATH and other variables of the stage's environment.
func (c command) run(ctx context.Context, log deploy.StageLog, in isolation, ws workspace) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	isolated := in.command
	isolated.Script, isolated.Dir, isolated.Env, isolated.Own, isolated.Tmp, isolated.Root = c.script, c.dir, c.env, ws.dir, ws.tmp, ws.root
	process, err := sandbox.Start(isolated, w, ws.lock)
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
	marked.Kill(markVariable, ws.dir) // of a launcher that was killed
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
	if errors.Is(context.Cause(ctx), ownership.ErrLost) {
		c.grace = min(c.grace, lostGrace)
	}
	grace := time.NewTimer(c.grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		process.Kill()
	}
}
