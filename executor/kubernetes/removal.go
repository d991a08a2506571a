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

// RemoverConfig is what a Remover needs.
type RemoverConfig struct {
	Store    *store.Store
	Clusters Clusters
	Tenancy  Tenancy // whose service accounts the objects are deleted as; nil: as the agent
	PipedID  string
	Logger   *slog.Logger
	Now      func() time.Time

	// Patience is how long, from the command on, what cannot be deleted is tried
	// again; default 30 minutes.
	Patience time.Duration
	// RetryEvery is the pause before the second attempt; each further one is twice as
	// long, up to a minute. Default 5 seconds.
	RetryEvery time.Duration
	// ScanEvery is between two readings of the open commands, in case that a hint of
	// the store led to nothing; default 30 seconds.
	ScanEvery time.Duration
}

// Remover deletes the objects of applications that were deleted with them: it
// answers the commands of type deploy.CommandDeleteApplication. What it deletes is
// what the inventory holds, in all clusters, and is the application's still; the
// tenancy rules of today do not keep it, for it was permitted when it was applied.
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

// Run carries out the commands there are and those that come, each at its own pace,
// until ctx ends. What has not ended then is gone on with after the next start.
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

// remove tries until the command is answered or ctx ends.
func (r *Remover) remove(ctx context.Context, c deploy.Command) {
	log := r.Logger.With("appID", c.ApplicationID, "command", c.ID)
	for pause := r.RetryEvery; ; pause = min(2*pause, maxRetryPause) {
		answered, err := r.attempt(ctx, c, log)
		if answered || ctx.Err() != nil || deploy.IsKind(err, deploy.Conflict) { // a conflict: answered by somebody else
			return
		}
		if err != nil {
			log.Error("cannot remove the application now; trying again", "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// attempt deletes what can be deleted and answers the command if that is all, or if
// the time is over. The error is one of the store.
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
		metadata[deploy.MetaReason] = fmt.Sprintf("not deleted within %s: %s; see to what keeps them, and delete the application with its objects once more",
			r.Patience, metadata[deploy.MetaWaiting])
		metadata[deploy.MetaWaiting] = ""
		log.Error("objects of the application could not be deleted", "reason", metadata[deploy.MetaReason])
		return true, r.Store.FinishRemoval(ctx, c, deploy.CommandFailed, metadata, found.over)
	}
	log.Warn("the application is not removed yet; trying again", "waiting", metadata[deploy.MetaWaiting])
	return false, r.Store.NoteCommand(ctx, c.ID, metadata)
}

// progress is what the command says of how far it has come.
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

func abridged(lines []string) string {
	slices.Sort(lines)
	if more := len(lines) - maxNamed; more > 0 {
		return strings.Join(lines[:maxNamed], "; ") + fmt.Sprintf("; and %d more", more)
	}
	return strings.Join(lines, "; ")
}

// findings are how an attempt went.
type findings struct {
	kept    []string               // what stays and why
	over    []deploy.InventoryItem // of that, what is not the application's any more
	waiting []string               // what is to be deleted and is not yet, and why
}

// clear deletes the application's objects in all its clusters at the same time: one
// that does not answer keeps no other waiting.
func (r *Remover) clear(ctx context.Context, app deploy.Application, log *slog.Logger) (findings, error) {
	clusters, err := r.clustersOf(ctx, app)
	if err != nil {
		return findings{}, err
	}
	kinds, err := r.kinds(ctx, app)
	if err != nil {
		return findings{}, err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all findings
	var errs []error
	for name, items := range clusters {
		wg.Go(func() {
			found, err := removal{Remover: r, app: app, cluster: name, kinds: kinds, log: lines{log.With("cluster", name)}}.run(ctx, items)
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

// clustersOf returns the application's inventory by cluster.
func (r *Remover) clustersOf(ctx context.Context, app deploy.Application) (map[string][]deploy.InventoryItem, error) {
	items, err := r.Store.Inventory(ctx, app.ID)
	out := map[string][]deploy.InventoryItem{}
	for _, item := range items {
		out[item.Cluster] = append(out[item.Cluster], item)
	}
	return out, err
}

// lines writes a stage log's lines to the agent's log.
type lines struct{ log *slog.Logger }

func (l lines) Infof(format string, args ...any) {
	l.log.Info("removing an application", "what", fmt.Sprintf(format, args...))
}
func (l lines) Successf(format string, args ...any) { l.Infof(format, args...) }
func (l lines) Errorf(format string, args ...any)   { l.Infof(format, args...) }

// Removals returns the objects of an application that deleting it would delete now,
// by cluster and there in the order of deletion. Unavailable when a cluster does not
// answer within a few seconds.
func (r *Remover) Removals(ctx context.Context, app deploy.Application) ([]deploy.InventoryItem, error) {
	clusters, err := r.clustersOf(ctx, app)
	if err != nil {
		return nil, err
	}
	kinds, err := r.kinds(ctx, app)
	if err != nil {
		return nil, err
	}
	var out []deploy.InventoryItem
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		m := removal{Remover: r, app: app, cluster: name, kinds: kinds}
		c, release, err := m.open()
		if err != nil {
			return nil, deploy.Errorf(deploy.Unavailable, "%w", err)
		}
		plan, err := m.plan(ctx, c, clusters[name])
		release()
		if err != nil {
			return nil, err
		}
		out = append(out, plan.Deletes()...)
	}
	return out, nil
}
