package script

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/deploy"
)

// isolation is how a script is kept apart.
type isolation struct {
	launcher sandbox.Launcher
	mode     sandbox.Mode
	allow    []string
	ws       workspace
}

// runIsolated is run for a script in a sandbox. Every process of it gets SIGTERM
// when ctx is cancelled, and SIGKILL after the grace period.
func (c command) runIsolated(ctx context.Context, log deploy.StageLog, in isolation) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	process, err := in.launcher.Start(sandbox.Command{
		Mode: in.mode, Script: c.script, Dir: c.dir, Env: c.env, Own: in.ws.dir, Tmp: in.ws.tmp, Root: in.ws.root, Allow: in.allow,
	}, w, in.ws.lock)
	w.Close() // the script's copies are what keeps the pipe open
	if err != nil {
		return err
	}
	var copied sync.WaitGroup
	copied.Go(func() { (&output{log: log}).copy(r) })
	ended := make(chan struct{})
	copied.Go(func() { c.stop(ctx, process, ended) })
	err = process.Wait()
	close(ended)
	drain := time.AfterFunc(drainTime, func() { r.Close() })
	copied.Wait()
	drain.Stop()
	if err == nil && ctx.Err() != nil {
		return ctx.Err() // it ended in order, as asked to
	}
	return err
}

// stop ends a script when ctx is cancelled before it has ended.
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
