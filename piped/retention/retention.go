package retention

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Timing.
const (
	defaultFirst = 5 * time.Minute // leaves the start of the agent to more urgent work
	interval     = time.Hour
	pause        = 200 * time.Millisecond // between two batches
)

// keepSessions is how long sessions are stored after their end.
const keepSessions = 30 * 24 * time.Hour

// Batch sizes: rows that one transaction deletes.
const (
	deploymentBatch = 50
	logBlockBatch   = 2000 // of stage logs
	rowBatch        = 500  // of rollouts, commands, sessions and audit records
)

// Store deletes old data; *store.Store implements it.
type Store interface {
	RemoveStageLogs(ctx context.Context, before time.Time, instead string, limit int) (removed int, more bool, err error)
	RemoveDeployments(ctx context.Context, q store.OldDeployments) (removed int, next string, err error)
	RemoveForeignRollouts(ctx context.Context, before time.Time, limit int) (removed int, err error)
	RemoveCommands(ctx context.Context, before time.Time, limit int) (removed int, err error)
	RemoveSessions(ctx context.Context, before time.Time, limit int) (removed int, err error)
	RemoveAudit(ctx context.Context, before time.Time, limit int) (removed int, err error)
	RemovePullRequestCommits(ctx context.Context, before time.Time, limit int) (removed int, err error)
	ForgetClusters(ctx context.Context, except []string) error
}

// key is the key of the right to delete old data.
const key = "retention"

// Config holds the dependencies of New. Rights, First, Logger and Now are optional.
type Config struct {
	Store    Store
	Rights   ownership.Rights        // of this replica; default all
	Settings func() config.Retention // the current settings
	Clusters func() []string         // the names of the configured clusters
	Metrics  Metrics
	First    time.Duration // delay of the first run after the right was gained; default 5 minutes
	Logger   *slog.Logger
	Now      func() time.Time
}

// Remover deletes old data periodically.
type Remover struct{ Config }

// New returns a Remover.
func New(c Config) *Remover {
	c.First = cmp.Or(c.First, defaultFirst)
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Remover{c}
}

// Run deletes old data until ctx ends, while this replica has the right to.
func (r *Remover) Run(ctx context.Context) error {
	return ownership.Hold(ctx, r.Rights, key, r.run)
}

// run deletes old data soon after the start and then every hour, until ctx ends or another
// replica is to continue. After an error it waits for the next run.
func (r *Remover) run(ctx context.Context, moving <-chan struct{}) error {
	timer := time.NewTimer(r.First)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-moving:
			return nil
		case <-timer.C:
		}
		if err := r.clean(ctx, moving); err != nil && !ownership.Over(ctx, err) {
			r.Logger.Warn("cannot remove old data; retrying in an hour", "error", err)
		}
		timer.Reset(interval)
	}
}

// clean deletes everything that is old now. It deletes logs first, so that a deployment
// is small when it is deleted. It ends early when the settings change, because the next run uses
// the new ones, and when another replica is to continue.
func (r *Remover) clean(ctx context.Context, moving <-chan struct{}) error {
	keep, began := r.Settings(), r.Now()
	if keep.Disabled {
		return nil
	}
	logs, before := began.Add(-keep.StageLogs), began.Add(-keep.Deployments)
	instead := fmt.Sprintf("The log was removed: logs are retained for %s after the end of their deployment (retention.stageLogs)", formatDays(keep.StageLogs))
	old := store.OldDeployments{Before: before, Keep: keep.KeepPerApplication, Limit: deploymentBatch}

	drain := func(batch func() (removed int, more bool, err error)) (total int, err error) {
		return drain(ctx, func() bool { return r.Settings() == keep && !closed(moving) }, batch)
	}
	lines, err := drain(func() (removed int, more bool, err error) {
		return r.Store.RemoveStageLogs(ctx, logs, instead, logBlockBatch)
	})
	var deployments, rollouts, commands, sessions, records, pulls int
	if err == nil {
		deployments, err = drain(func() (removed int, more bool, err error) {
			removed, old.Cursor, err = r.Store.RemoveDeployments(ctx, old)
			r.Metrics.Removed(removed)
			return removed, old.Cursor != "", err
		})
	}
	if err == nil { // the rollouts of workloads of other clusters are those of deleted ones
		err = r.Store.ForgetClusters(ctx, r.Clusters())
	}
	for _, rest := range []struct {
		remove func(ctx context.Context, before time.Time, limit int) (removed int, err error)
		before time.Time
		total  *int
	}{
		{r.Store.RemoveForeignRollouts, before, &rollouts},
		{r.Store.RemoveCommands, before, &commands},
		{r.Store.RemoveSessions, began.Add(-keepSessions), &sessions},
		{r.Store.RemoveAudit, began.Add(-keep.Audit), &records},
		{r.Store.RemovePullRequestCommits, before, &pulls},
	} {
		if err != nil {
			break
		}
		*rest.total, err = drain(func() (removed int, more bool, err error) {
			removed, err = rest.remove(ctx, rest.before, rowBatch)
			return removed, removed == rowBatch, err
		})
	}
	if cmp.Or(lines, deployments, rollouts, commands, sessions, records, pulls) > 0 {
		r.Logger.Info("removed old data", "deployments", deployments, "rollouts", rollouts, "commands", commands, "lines", lines,
			"sessions", sessions, "auditRecords", records, "pullRequests", pulls, "took", r.Now().Sub(began))
	}
	return err
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// drain deletes batches, with pauses, until none is left or may returns false. It returns
// the number of deleted rows.
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

// formatDays formats d, in days if it is a whole number of them.
func formatDays(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "a day"
	case d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}
