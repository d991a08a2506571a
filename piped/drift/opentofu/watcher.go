// Package opentofu compares the resources of OpenTofu and Terraform applications with their states
// in the background, for the drift detector: it runs the program at an interval, and answers the
// questions of the detector from the last result.
package opentofu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

const (
	// scanEvery is the interval in which applications that are due are looked for.
	scanEvery = 15 * time.Second
	// atOnce is the number of comparisons that run at the same time.
	atOnce = 2
	// compareTimeout bounds one comparison, and retryAfter is when one that failed is repeated.
	compareTimeout = 15 * time.Minute
	retryAfter     = 5 * time.Minute
	// firstWithin bounds the time from the start to the first comparison of an application.
	firstWithin = 30 * time.Second
)

// Difference is a resource that differs from the state.
type Difference struct {
	Object  deploy.ObjectRef
	Missing bool                // it does not exist any more
	Fields  []deploy.FieldDrift // Git is the value in the state
}

// Config contains the dependencies and settings of a Watcher.
type Config struct {
	Store *store.Store
	Kind  string // of the applications
	// Interval returns the time between two comparisons of the applications of a platform provider;
	// false if they are not compared.
	Interval func(provider string) (time.Duration, bool)
	// Refresh compares the resources of an application with its state.
	Refresh func(ctx context.Context, app deploy.Application) ([]Difference, error)
	// Wake requests that the drift detector evaluates an application.
	Wake    func(applicationID string)
	Mark    string // of a resource in the inventory that nothing has changed
	PipedID string
	Logger  *slog.Logger
	Now     func() time.Time
}

// Watcher is a component: call Run once. Its other methods may be called at any time.
type Watcher struct {
	Config
	started time.Time
	slots   chan struct{}

	mu     sync.Mutex
	apps   map[string]*observed // by application ID
	owners map[string]string    // application IDs by provider and object
}

// observed is the last result for an application.
type observed struct {
	deployment string    // the last successful one, of which the result is
	applied    int       // how many applies were heard of: a comparison that began before one is outdated
	at         time.Time // zero before the first
	due        time.Time
	busy       bool
	err        error     // of the last attempt
	since      time.Time // of the first of the consecutive failures
	diffs      map[string]Difference
}

// New returns a Watcher that has not started.
func New(c Config) *Watcher {
	return &Watcher{Config: c, started: c.Now(), slots: make(chan struct{}, atOnce), apps: map[string]*observed{}, owners: map[string]string{}}
}

// Run compares applications until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	scan := time.NewTicker(scanEvery)
	defer scan.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, app := range w.due(ctx) {
			running.Go(func() { w.compare(ctx, app) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-scan.C:
		}
	}
}

// due returns the applications that are to be compared now.
func (w *Watcher) due(ctx context.Context) (out []deploy.Application) {
	apps, _, err := w.Store.ListApplications(ctx, store.ApplicationQuery{Kind: w.Kind})
	if err != nil {
		if ctx.Err() == nil {
			w.Logger.Error("cannot read the applications to compare; trying again", "error", err)
		}
		return nil
	}
	now := w.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{}
	for _, app := range apps {
		interval, enabled := w.Interval(app.Provider)
		if app.LastSuccessful == nil || !enabled {
			continue
		}
		seen[app.ID] = true
		o := w.apps[app.ID]
		if o == nil {
			o = &observed{due: now.Add(rand.N(min(firstWithin, interval)))}
			w.apps[app.ID] = o
		}
		if id := app.LastSuccessful.DeploymentID; o.deployment != id {
			if o.deployment != "" { // another replica may have applied
				o.renew(now)
				o.due = now.Add(jittered(interval))
			}
			o.deployment = id
		}
		if !o.busy && !app.Deploying && !now.Before(o.due) {
			o.busy, o.due = true, now.Add(jittered(interval))
			out = append(out, app)
		}
	}
	for id := range w.apps {
		if !seen[id] {
			delete(w.apps, id)
		}
	}
	return out
}

// jittered returns an interval that is up to a tenth longer, so that not all are due together.
func jittered(interval time.Duration) time.Duration { return interval + rand.N(interval/10+1) }

// compare compares one application and tells the detector.
func (w *Watcher) compare(ctx context.Context, app deploy.Application) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	began := w.generation(app.ID)
	limited, stop := context.WithTimeout(ctx, compareTimeout)
	diffs, err := w.Refresh(limited, app)
	stop()
	<-w.slots
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.Logger.Warn("cannot compare the resources of an application with its state", "app", app.Name, "error", err)
	}
	w.put(app.ID, began, diffs, err)
	w.Wake(app.ID)
}

// generation returns what changes when an application is applied.
func (w *Watcher) generation(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.apps[id]; o != nil {
		return o.applied
	}
	return 0
}

// renew makes the result that of a state that was just applied.
func (o *observed) renew(now time.Time) {
	o.applied++
	o.at, o.err, o.since, o.diffs = now, nil, time.Time{}, nil
}

// RefreshNow compares an application now, unless it is not compared, or is being compared.
func (w *Watcher) RefreshNow(ctx context.Context, app deploy.Application) {
	if _, enabled := w.Interval(app.Provider); !enabled || app.LastSuccessful == nil {
		return
	}
	w.mu.Lock()
	o := w.apps[app.ID]
	if o == nil {
		o = &observed{due: w.Now()}
		w.apps[app.ID] = o
	}
	busy, began := o.busy, o.applied
	o.busy = true
	w.mu.Unlock()
	if busy {
		return
	}
	diffs, err := w.Refresh(ctx, app)
	if ctx.Err() != nil { // the caller has gone
		w.mu.Lock()
		o.busy = false
		w.mu.Unlock()
		return
	}
	w.put(app.ID, began, diffs, err)
}

// put stores the result of a comparison, unless the application was applied since it began.
func (w *Watcher) put(id string, began int, diffs []Difference, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.apps[id]
	if o == nil {
		return
	}
	o.busy = false
	if o.applied != began {
		return
	}
	if err != nil {
		if o.err == nil {
			o.since = w.Now()
		}
		o.err = err
		if next := w.Now().Add(retryAfter); next.Before(o.due) {
			o.due = next
		}
		return
	}
	o.at, o.err, o.since, o.diffs = w.Now(), nil, time.Time{}, map[string]Difference{}
	for _, d := range diffs {
		o.diffs[d.Object.Key()] = d
	}
}

// Applied tells that an application was applied: its resources are as the state says.
func (w *Watcher) Applied(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.apps[id]
	if o == nil {
		o = &observed{due: w.Now()}
		w.apps[id] = o
	}
	o.renew(w.Now())
	clear(w.owners) // the inventory may have changed
}

// owner returns the application that a resource belongs to, "" for none.
func (w *Watcher) owner(provider string, ref deploy.ObjectRef) string {
	key := provider + " " + ref.Key()
	w.mu.Lock()
	id, known := w.owners[key]
	w.mu.Unlock()
	if known {
		return id
	}
	ids, err := w.Store.InventoryOwner(context.Background(), provider, ref)
	if err != nil || len(ids) == 0 {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owners[key] = ids[0]
	return ids[0]
}

// find returns the last result for the application of a resource. enabled is false if it is not
// compared.
func (w *Watcher) find(provider string, ref deploy.ObjectRef) (id string, o observed, enabled bool) {
	id = w.owner(provider, ref)
	_, enabled = w.Interval(provider)
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.apps[id]; known != nil {
		o = *known
	}
	return id, o, enabled && id != ""
}

// mark returns what changes with the difference of a resource.
func (d Difference) mark() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%+v", d))
	return hex.EncodeToString(sum[:8])
}
