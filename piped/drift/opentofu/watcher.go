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
	"github.com/c785c783/piped/piped/ownership"
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
	// keepAnswer is how long the answer of a request is kept where another replica compares.
	keepAnswer = time.Minute
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
	// Enabled reports whether the applications of any platform provider are compared.
	Enabled func() bool
	// Interval returns the time between two comparisons of the applications of a platform provider;
	// false if they are not compared.
	Interval func(provider string) (time.Duration, bool)
	// Refresh compares the resources of an application with its state.
	Refresh func(ctx context.Context, app deploy.Application) ([]Difference, error)
	// Rights are this replica's rights to compare applications without a request, by ID; nil: all.
	Rights ownership.Rights
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
	deployment *deploy.DeploymentRef // the last successful one, of which the result is
	applied    int                   // how many applies were heard of: a comparison that began before one is outdated
	at         time.Time             // zero before the first
	due        time.Time
	running    chan struct{} // closed when the comparison in progress ends; nil without one
	err        error         // of the last attempt
	since      time.Time     // of the first of the consecutive failures
	diffs      map[string]Difference
}

// New returns a Watcher that has not started.
func New(c Config) *Watcher {
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
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
	var apps []deploy.Application
	var err error
	if w.Enabled() { // else there is nothing to read
		apps, _, err = w.Store.ListApplications(ctx, store.ApplicationQuery{Kind: w.Kind})
	}
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
		if app.LastSuccessful == nil || !enabled || !w.owns(ctx, app.ID) {
			continue
		}
		seen[app.ID] = true
		o := w.observe(app, interval)
		if o.running == nil && !app.Deploying && !now.Before(o.due) {
			o.due = now.Add(jittered(interval))
			out = append(out, app)
		}
	}
	for id, o := range w.apps {
		if !seen[id] && now.Sub(o.at) > keepAnswer {
			delete(w.apps, id)
		}
	}
	return out
}

// owns reports whether this replica compares an application without a request.
func (w *Watcher) owns(ctx context.Context, id string) bool {
	right, ok := w.Rights.Own(ctx, id)
	if ok {
		right.Done()
	}
	return ok
}

// observe returns what is known of an application, and notes the deployment that it is of. The
// caller holds mu.
func (w *Watcher) observe(app deploy.Application, interval time.Duration) *observed {
	now := w.Now()
	o := w.apps[app.ID]
	if o == nil {
		o = &observed{due: now.Add(rand.N(min(firstWithin, interval)))}
		w.apps[app.ID] = o
	}
	known := o.deployment
	if known != nil && app.LastSuccessful.CompletedAt.Before(known.CompletedAt) {
		return o // the row was read before a newer one
	}
	if known != nil && known.DeploymentID != app.LastSuccessful.DeploymentID { // another replica may have applied
		o.renew(now)
		o.due = now.Add(jittered(interval))
	}
	o.deployment = app.LastSuccessful
	return o
}

// jittered returns an interval that is up to a tenth longer, so that not all are due together.
func jittered(interval time.Duration) time.Duration { return interval + rand.N(interval/10+1) }

// comparison is one run of Refresh for an application.
type comparison struct {
	of    *observed
	began int // observed.applied when it started
}

// compare makes the comparison of an application that was due and tells the detector. Another replica
// makes those of others.
func (w *Watcher) compare(ctx context.Context, app deploy.Application) {
	right, ok := w.Rights.Own(ctx, app.ID)
	if !ok {
		return
	}
	defer right.Done()
	ctx = right.Context
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return
	}
	c, running := w.start(app)
	if running != nil { // a request started one meanwhile
		return
	}
	defer w.end(c)
	limited, stop := context.WithTimeout(ctx, compareTimeout)
	defer stop()
	diffs, err := w.Refresh(limited, app)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		w.Logger.Warn("cannot compare the resources of an application with its state", "app", app.Name, "error", err)
	}
	w.put(c, diffs, err)
	w.Wake(app.ID)
}

// start notes that a comparison of an application runs, or returns what is closed when the one that
// runs already ends.
func (w *Watcher) start(app deploy.Application) (c comparison, running <-chan struct{}) {
	interval, _ := w.Interval(app.Provider)
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.observe(app, interval)
	if o.running != nil {
		return comparison{}, o.running
	}
	o.running = make(chan struct{})
	return comparison{o, o.applied}, nil
}

// end wakes those that wait for a comparison.
func (w *Watcher) end(c comparison) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(c.of.running)
	c.of.running = nil
}

// renew makes the result that of a state that was just applied.
func (o *observed) renew(now time.Time) {
	o.applied++
	o.at, o.err, o.since, o.diffs = now, nil, time.Time{}, nil
}

// RefreshNow compares an application, unless its provider is not compared. What it finds is not
// older than the call: a comparison that runs already is awaited, and another one follows.
func (w *Watcher) RefreshNow(ctx context.Context, app deploy.Application) {
	if _, enabled := w.Interval(app.Provider); !enabled || app.LastSuccessful == nil {
		return
	}
	c, running := w.start(app)
	for running != nil {
		select {
		case <-running:
		case <-ctx.Done():
			return
		}
		c, running = w.start(app)
	}
	defer w.end(c)
	diffs, err := w.Refresh(ctx, app)
	if ctx.Err() == nil { // else the caller has gone
		w.put(c, diffs, err)
	}
}

// put stores the result of a comparison, unless the application was applied since it began.
func (w *Watcher) put(c comparison, diffs []Difference, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := c.of
	if o.applied != c.began {
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
