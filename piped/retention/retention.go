package retention

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/store"
)

// Times of the component.
const (
	defaultFirst = 5 * time.Minute // what is due after a start comes before
	every        = time.Hour
	pause        = 200 * time.Millisecond // between two batches
)

// Sizes of a batch: what one transaction removes.
const (
	deploymentsAtOnce = 50
	commandsAtOnce    = 500
	blocksAtOnce      = 2000 // of stage logs
)

// Store is what the component works on; *store.Store is one.
type Store interface {
	RemoveStageLogs(ctx context.Context, before time.Time, instead string, limit int) (removed int, more bool, err error)
	RemoveDeployments(ctx context.Context, q store.OldDeployments) (removed int, next string, err error)
	RemoveCommands(ctx context.Context, before time.Time, limit int) (removed int, err error)
}

// Observer is told of what was removed.
type Observer interface {
	Removed(deployments int)
}

// Config is what New needs. First, Logger and Now may be left out.
type Config struct {
	Store    Store
	Settings func() config.Retention // those in effect
	Observer Observer
	First    time.Duration // from the start to the first run; default 5 minutes
	Logger   *slog.Logger
	Now      func() time.Time
}

// Remover is the component that removes what is old.
type Remover struct{ Config }

// New makes a Remover.
func New(c Config) *Remover {
	c.First = cmp.Or(c.First, defaultFirst)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Remover{c}
}

// Run removes what is old, soon after the start and then every hour, until ctx ends. What
// fails is tried again in an hour.
func (r *Remover) Run(ctx context.Context) error {
	timer := time.NewTimer(r.First)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if err := r.clean(ctx); err != nil && ctx.Err() == nil {
			r.Logger.Warn("cannot remove what is old; trying again in an hour", "error", err)
		}
		timer.Reset(every)
	}
}

// clean removes all that is old now: logs first, so that a deployment that goes is small.
// When the settings change it ends, and they count from the next run on.
func (r *Remover) clean(ctx context.Context) error {
	keep, began := r.Settings(), r.Now()
	if keep.Disabled {
		return nil
	}
	logs, before := began.Add(-keep.StageLogs), began.Add(-keep.Deployments)
	instead := fmt.Sprintf("The log was removed: logs are kept for %s after the end of their deployment (retention.stageLogs)", inDays(keep.StageLogs))
	old := store.OldDeployments{Before: before, Keep: keep.KeepPerApplication, Limit: deploymentsAtOnce}

	drain := func(batch func() (removed int, more bool, err error)) (total int, err error) {
		return drain(ctx, func() bool { return r.Settings() == keep }, batch)
	}
	lines, err := drain(func() (removed int, more bool, err error) {
		return r.Store.RemoveStageLogs(ctx, logs, instead, blocksAtOnce)
	})
	var deployments, commands int
	if err == nil {
		deployments, err = drain(func() (removed int, more bool, err error) {
			removed, old.Cursor, err = r.Store.RemoveDeployments(ctx, old)
			r.Observer.Removed(removed)
			return removed, old.Cursor != "", err
		})
	}
	if err == nil {
		commands, err = drain(func() (removed int, more bool, err error) {
			removed, err = r.Store.RemoveCommands(ctx, before, commandsAtOnce)
			return removed, removed == commandsAtOnce, err
		})
	}
	if cmp.Or(lines, deployments, commands) > 0 {
		r.Logger.Info("removed what is older than it is kept", "deployments", deployments, "commands", commands, "lines", lines, "took", r.Now().Sub(began))
	}
	return err
}

// drain removes batch after batch as long as it may and until there is no more, and
// returns how much that was.
func drain(ctx context.Context, may func() bool, batch func() (removed int, more bool, err error)) (total int, err error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return total, context.Cause(ctx)
		case <-timer.C:
		}
		if !may() {
			return total, nil
		}
		removed, more, err := batch()
		total += removed
		if err != nil || !more {
			return total, err
		}
		timer.Reset(pause)
	}
}

// inDays writes a duration in days if it is some.
func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "a day"
	case d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}
