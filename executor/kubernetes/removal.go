package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// RemoverConfig contains the dependencies and settings of a Remover.
type RemoverConfig struct {
	Store    *store.Store
	Clusters Clusters
	Tenancy  Tenancy // selects the service accounts for the deletion; nil: the agent's own
	PipedID  string
	Logger   *slog.Logger
	Now      func() time.Time

	// Patience bounds the retries, counted from the command; default 30 minutes.
	Patience time.Duration
	// RetryEvery is the pause before the second attempt. It doubles with each further
	// attempt, up to a minute. Default 5 seconds.
	RetryEvery time.Duration
	// ScanEvery is the interval of reads of all open commands, a fallback for missed changes;
	// default 30 seconds.
	ScanEvery time.Duration
}

// Remover answers commands of type deploy.CommandDeleteApplication: it deletes the objects
// of an application that a user deletes together with its objects. It deletes the objects
// of the inventory, in all clusters, that still belong to the application. It deletes them
// even if the current tenancy rules forbid them, because they were permitted when they were
// applied.
//
// It is a component: call Run once. Removals may be called at any time.
type Remover struct{ RemoverConfig }

// NewRemover returns a Remover that has not started.
func NewRemover(c RemoverConfig) *Remover {
	c.Patience = cmp.Or(c.Patience, 30*time.Minute)
	c.RetryEvery = cmp.Or(c.RetryEvery, 5*time.Second)
	c.ScanEvery = cmp.Or(c.ScanEvery, 30*time.Second)
	return &Remover{c}
}

// maxRetryPause bounds the pause between two attempts.
const maxRetryPause = time.Minute

// Run executes present and future commands concurrently until ctx ends. After the next
// start it resumes unfinished ones.
func (r *Remover) Run(ctx context.Context) error {
	watch := r.Store.Watch(deploy.TopicCommand)
	defer watch.Close()
	scan := time.NewTicker(r.ScanEvery)
	defer scan.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	busy, ended := map[string]bool{}, make(chan string)
	for {
		commands, err := r.Store.OpenCommands(ctx, deploy.CommandDeleteApplication)
		if err != nil && ctx.Err() == nil {
			r.Logger.Error("cannot read which applications are to be removed; trying again", "error", err)
		}
		for _, c := range commands {
			if busy[c.ID] {
				continue
			}
			busy[c.ID] = true
			running.Go(func() {
				r.remove(ctx, c)
				select {
				case ended <- c.ID:
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-scan.C:
		case <-watch.C():
			watch.Take()
		case id := <-ended:
			delete(busy, id)
		}
	}
}

// remove calls attempt with backoff until the command is answered or ctx ends.
func (r *Remover) remove(ctx context.Context, c deploy.Command) {
	log := r.Logger.With("appID", c.ApplicationID, "command", c.ID)
	for next := r.RetryEvery; ; next = min(2*next, maxRetryPause) {
		answered, err := r.attempt(ctx, c, log)
		if answered || ctx.Err() != nil || deploy.IsKind(err, deploy.Conflict) { // a conflict: already answered
			return
		}
		if err != nil {
			log.Error("cannot remove the application now; trying again", "error", err)
		}
		if pause(ctx, next) != nil {
			return
		}
	}
}

// attempt deletes what can be deleted. It answers the command if nothing is left to delete,
// or if Patience is over. Only errors of the store are returned; problems of a cluster are
// recorded in the command.
func (r *Remover) attempt(ctx context.Context, c deploy.Command, log *slog.Logger) (answered bool, err error) {
	last := r.Now().Sub(c.CreatedAt) >= r.Patience
	app, err := r.Store.Application(ctx, c.ApplicationID)
	if err != nil {
		return false, err
	}
	found, err := r.clear(ctx, app, log)
	if err != nil {
		return false, err
	}
	metadata, err := r.progress(ctx, c, found)
	switch {
	case err != nil:
		return false, err
	case len(found.waiting) == 0:
		log.Info("the objects of the application are deleted", "deleted", metadata[deploy.MetaDeleted], "left", metadata[deploy.MetaLeft])
		return true, r.Store.FinishRemoval(ctx, c, deploy.CommandSucceeded, metadata, found.over)
	case last:
		metadata[deploy.MetaReason] = fmt.Sprintf("not deleted within %s: %s; remove what blocks them, and delete the application with its objects again",
			r.Patience, metadata[deploy.MetaWaiting])
		metadata[deploy.MetaWaiting] = ""
		log.Error("objects of the application could not be deleted", "reason", metadata[deploy.MetaReason])
		return true, r.Store.FinishRemoval(ctx, c, deploy.CommandFailed, metadata, found.over)
	}
	log.Warn("the application is not removed yet; trying again", "waiting", metadata[deploy.MetaWaiting])
	return false, r.Store.NoteCommand(ctx, c.ID, metadata)
}

// progress returns the command's metadata after an attempt.
func (r *Remover) progress(ctx context.Context, c deploy.Command, found findings) (map[string]string, error) {
	inventory, err := r.Store.Inventory(ctx, c.ApplicationID)
	if err != nil {
		return nil, err
	}
	applied, err := strconv.Atoi(c.Metadata[deploy.MetaApplied])
	if err != nil {
		return nil, fmt.Errorf("read how many objects command %s is about: %w", c.ID, err)
	}
	return map[string]string{
		deploy.MetaDeleted: strconv.Itoa(max(0, applied-len(inventory))),
		deploy.MetaLeft:    abridged(found.kept),
		deploy.MetaWaiting: abridged(found.waiting),
	}, nil
}

// maxNamed is how many objects a command names before it only counts them.
const maxNamed = 50

// abridged sorts lines and joins them. Of more than maxNamed lines it only counts the rest.
func abridged(lines []string) string {
	slices.Sort(lines)
	if more := len(lines) - maxNamed; more > 0 {
		return strings.Join(lines[:maxNamed], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(lines, "; ")
}

// findings are the results of an attempt.
type findings struct {
	kept    []string               // objects that stay, and why
	over    []deploy.InventoryItem // those in kept that no longer belong to the application
	waiting []string               // objects that are not deleted yet, and why
}

// clear deletes the application's objects in all clusters concurrently, so that an
// unresponsive cluster does not delay the others.
func (r *Remover) clear(ctx context.Context, app deploy.Application, log *slog.Logger) (findings, error) {
	removals, err := r.removals(ctx, app)
	if err != nil {
		return findings{}, err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all findings
	var errs []error
	for _, m := range removals {
		wg.Go(func() {
			found, err := m.run(ctx, lines{log.With("cluster", m.cluster)})
			mu.Lock()
			defer mu.Unlock()
			all.kept = append(all.kept, found.kept...)
			all.over = append(all.over, found.over...)
			all.waiting = append(all.waiting, found.waiting...)
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

// removals returns one removal for each cluster that has objects of the application,
// ordered by the names of the clusters.
func (r *Remover) removals(ctx context.Context, app deploy.Application) (out []removal, err error) {
	items, err := r.Store.Inventory(ctx, app.ID)
	if err != nil {
		return nil, err
	}
	kinds, err := r.kinds(ctx, app)
	clusters := byCluster(items)
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		out = append(out, removal{Remover: r, app: app, cluster: name, items: clusters[name], kinds: kinds})
	}
	return out, err
}

func byCluster(items []deploy.InventoryItem) map[string][]deploy.InventoryItem {
	out := map[string][]deploy.InventoryItem{}
	for _, item := range items {
		out[item.Cluster] = append(out[item.Cluster], item)
	}
	return out
}

// lines implements deploy.StageLog by writing to the agent's log.
type lines struct{ log *slog.Logger }

func (l lines) Infof(format string, args ...any) {
	l.log.Info("removing an application", "what", fmt.Sprintf(format, args...))
}
func (l lines) Successf(format string, args ...any) { l.Infof(format, args...) }
func (l lines) Errorf(format string, args ...any)   { l.Infof(format, args...) }

// Removals returns the objects that deleting an application with its objects would delete
// now, by cluster and in the order of deletion. The error is of kind Unavailable if a
// cluster does not answer within planFor.
func (r *Remover) Removals(ctx context.Context, app deploy.Application) ([]deploy.InventoryItem, error) {
	removals, err := r.removals(ctx, app)
	if err != nil {
		return nil, err
	}
	var out []deploy.InventoryItem
	for _, m := range removals {
		c, release, err := m.open()
		if err != nil {
			return nil, deploy.Errorf(deploy.Unavailable, "%w", err)
		}
		plan, err := m.plan(ctx, c)
		release()
		if err != nil {
			return nil, err
		}
		out = append(out, plan.Deletes()...)
	}
	return out, nil
}
