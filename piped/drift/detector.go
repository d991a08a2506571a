package drift

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Defaults of Config.
const (
	defaultWorkers    = 16
	defaultPatience   = 10 * time.Second // of objects and of Git
	defaultSweepEvery = 6 * time.Hour
)

const (
	// debounce is how long changes of an application are batched.
	debounce = 30 * time.Millisecond
	// scanInterval is the interval of scans of all applications, a fallback for missed
	// changes.
	scanInterval = 30 * time.Second
	// firstRetry is the delay before an incomplete evaluation is retried. It doubles up
	// to lastRetry.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Members returns the watched objects of one cluster without calling its API server.
// *live.Members implements it.
type Members interface {
	// Follow starts watches for the kinds of these objects.
	Follow(objects []deploy.ObjectRef)
	// Get returns the watched metadata of an object, false if the object does not exist.
	Get(ref deploy.ObjectRef) (live.Member, bool)
	// Of returns the watched objects of an application.
	Of(applicationID string) []live.Member
	// Ready returns nil if the watch of an object's kind is current. Otherwise it
	// returns since when it is not, and why; NotFound if the cluster does not serve the
	// kind.
	Ready(object deploy.ObjectRef) (since time.Time, err error)
}

// Comparer compares objects by reads and server-side dry runs. *cluster.Cluster
// implements it.
type Comparer interface {
	// Compare compares the objects in req.Only with their expected state.
	Compare(ctx context.Context, req apply.CompareRequest) ([]apply.Compared, error)
	// DescribeExtra returns for each object in Only, in order, whether it still exists
	// as the application's object.
	DescribeExtra(ctx context.Context, req apply.CompareRequest) ([]apply.Compared, error)
}

// Clusters returns the clusters of the platform providers, which may change.
type Clusters interface {
	// Members returns the watched objects of a provider's cluster. The error says why
	// there are none; since is the begin of the outage, zero if unknown.
	Members(provider string) (m Members, since time.Time, err error)
	// Hold returns the cluster with the application's account. It is usable until
	// release is called.
	Hold(provider string, app deploy.Application) (c Comparer, release func(), err error)
}

// Refresher is implemented by Clusters with objects that are not watched. Refresh reads those of
// an application again; what it finds, and why it could not, is what Members then says.
type Refresher interface {
	Refresh(ctx context.Context, app deploy.Application)
}

// Git returns undeployed changes.
type Git interface {
	// Undeployed reports whether the application's manifests differ between the
	// deployed commit and head, and returns the commits between them that change it,
	// the newest first. Errors of kind deploy.Invalid are permanent.
	Undeployed(ctx context.Context, app deploy.Application, deployed, head string) (commits []string, differs bool, err error)
}

// Expected are the expected objects of an application in a cluster.
type Expected struct {
	Commit                   string
	Objects                  []manifest.Object // the complete set: resolved, without commit annotations
	VariantKey, VariantValue string            // the variant annotation
	Ignore                   config.DriftDetection
	Conceal                  apply.Concealer // redacts the secrets of the objects
}

// Config is what a Detector needs.
type Config struct {
	Store    *store.Store
	Clusters Clusters
	Git      Git
	// Expected decodes the applied set of the successful deployment d; inventory are
	// its recorded objects in its cluster.
	Expected func(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (Expected, error)
	PipedID  string
	Logger   *slog.Logger
	Now      func() time.Time
	NewID    func() string
	Metrics  Metrics // default: discards

	// Rights are this replica's rights to store states and reports, by application ID; default all.
	Rights ownership.Rights

	// Workers is the number of concurrent evaluations; default 16. At most a quarter of
	// them compare objects in the same cluster.
	Workers int
	// Patience is how long an application with unknown objects retains its sync state
	// before it becomes UNKNOWN; default 10 s.
	Patience time.Duration
	// GitPatience is how long an evaluation waits for the rendering of manifests; default
	// 10 s. Then it completes without them, and another one follows the rendering.
	GitPatience time.Duration
	// SweepEvery is the interval in which every object is compared even without a
	// change; default 6 h.
	SweepEvery time.Duration
}

// Detector compares the live objects of all applications with their expected state, and
// stores sync states and drift reports. Call Run once. Wake and Report may be called at any
// time.
type Detector struct {
	Config

	mu     sync.Mutex
	queue  workqueue.TypedDelayingInterface[string] // application IDs to evaluate; nil before Run
	apps   map[string]*appState                     // by application ID
	listed time.Time                                // time of the last scan; zero before the first

	marks      marks
	slots      *slots
	renderings *background.Jobs[gitKey, missed]
}

// New returns a stopped Detector.
func New(c Config) *Detector {
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	if c.GitPatience == 0 {
		c.GitPatience = defaultPatience
	}
	if c.SweepEvery == 0 {
		c.SweepEvery = defaultSweepEvery
	}
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	d := &Detector{Config: c, apps: map[string]*appState{}}
	d.renderings = background.New[gitKey, missed](background.Config{Patience: c.GitPatience, AtOnce: c.Workers})
	d.slots = newSlots(max(1, c.Workers/4), func(id string) { d.enqueueAfter(id, 0) })
	return d
}

// Run evaluates applications until ctx ends. It returns nil after all evaluations have
// ended and the marks are stored.
func (d *Detector) Run(ctx context.Context) error {
	feed := d.Store.Watch(deploy.TopicApplication, deploy.TopicDeployment, deploy.TopicEvaluated)
	defer feed.Close()
	queue := workqueue.NewTypedDelayingQueue[string]()
	d.mu.Lock()
	d.queue = queue
	d.mu.Unlock()
	var working sync.WaitGroup
	defer d.saveMarks(context.WithoutCancel(ctx))
	defer d.renderings.Close()
	defer working.Wait()
	defer queue.ShutDown()
	for range d.Workers {
		working.Go(func() { d.work(ctx, queue) })
	}
	working.Go(func() { d.runPeriodic(ctx) })

	gained := d.Rights.Gained()
	d.scan(ctx)
	next := time.NewTimer(d.nextScan())
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-feed.C():
			d.handleChanges(ctx, feed.Take())
		case <-gained:
			gained = d.Rights.Gained()
			d.scan(ctx)
			d.Wake("")
		case <-next.C:
			d.scan(ctx)
			next.Reset(d.nextScan())
		}
	}
}

// runPeriodic enqueues the objects due for a periodic comparison (sweep) and stores the
// marks of objects found unchanged after a write (saveMarks), each at its interval,
// until ctx ends.
func (d *Detector) runPeriodic(ctx context.Context) {
	sweep, save := time.NewTicker(sweepInterval), time.NewTicker(saveInterval)
	defer sweep.Stop()
	defer save.Stop()
	last := d.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			now := d.Now()
			d.sweep(last, now)
			last = now
		case <-save.C:
			d.saveMarks(ctx)
		}
	}
}

// work evaluates queued applications until the queue is shut down.
func (d *Detector) work(ctx context.Context, queue workqueue.TypedDelayingInterface[string]) {
	for {
		id, closed := queue.Get()
		if closed || ctx.Err() != nil {
			return
		}
		if s := d.appState(id); s != nil {
			d.evaluateOwned(ctx, s)
		}
		queue.Done(id)
	}
}

// evaluateOwned evaluates an application, unless another replica does.
func (d *Detector) evaluateOwned(ctx context.Context, s *appState) {
	right, ok := d.Rights.Own(ctx, s.id)
	if !ok {
		s.disown()
		return
	}
	defer right.Done()
	_, err := d.evaluate(right.Context, s, request{})
	if !ownership.Over(right.Context, err) {
		d.scheduleRetry(ctx, s, err)
	}
}

// Wake requests an evaluation after a live object of the application changed; "" means
// all applications. Unknown applications are ignored.
func (d *Detector) Wake(applicationID string) {
	if applicationID != "" {
		d.hint(applicationID, func(h *hints) { h.observed(d.Now()) })
		d.enqueueAfter(applicationID, debounce)
		return
	}
	d.mu.Lock()
	ids := slices.Collect(maps.Keys(d.apps))
	d.mu.Unlock()
	for _, id := range ids {
		d.enqueueAfter(id, debounce)
	}
}

// enqueueAfter schedules the evaluation of a known application. An earlier schedule
// takes precedence.
func (d *Detector) enqueueAfter(id string, after time.Duration) {
	d.mu.Lock()
	queue := d.queue
	known := d.apps[id] != nil
	d.mu.Unlock()
	if queue != nil && known {
		queue.AddAfter(id, after)
	}
}

// Report evaluates an application now, and returns and stores the result. Objects with
// current or earlier drift are read again; with diff, differing objects have a Diff.
// During a deployment it returns the report from before, with a note. The error is
// NotFound if the application does not exist.
//
// Where another replica stores the reports of the application, the result is not stored, and a
// report of a period that is not stored has no ID.
func (d *Detector) Report(ctx context.Context, applicationID string, diff bool) (deploy.DriftReport, error) {
	app, err := d.Store.Application(ctx, applicationID)
	if err != nil {
		return deploy.DriftReport{}, err
	}
	if app.Deleted {
		return deploy.DriftReport{}, deploy.Errorf(deploy.NotFound, "application %s is deleted", app.Name)
	}
	if r, ok := d.Clusters.(Refresher); ok && !app.Deploying {
		r.Refresh(ctx, app)
	}
	s := d.appState(app.ID)
	if s == nil {
		s = d.remember(app)
	} else { // its row may have changed
		d.hint(app.ID, func(h *hints) { h.row = true })
	}
	right, owned := d.Rights.Own(ctx, app.ID)
	if owned {
		defer right.Done()
		ctx = right.Context
	}
	report, err := d.evaluate(ctx, s, request{interactive: true, diff: diff, unstored: !owned})
	if err != nil && ctx.Err() == nil {
		d.enqueueAfter(app.ID, firstRetry)
	}
	return report, err
}

// scheduleRetry retries an incomplete evaluation with backoff.
func (d *Detector) scheduleRetry(ctx context.Context, s *appState, err error) {
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errNoSlot) {
		return // slots.release enqueues it again
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !deploy.IsKind(err, deploy.Conflict) {
		if text := err.Error(); text != s.lastErr {
			d.Logger.Warn("cannot compare an application with Git; trying again", "app", s.app.Name, "error", err)
			s.lastErr = text
		}
		s.retryNeeded = true
	} else if err == nil {
		s.lastErr = ""
	} else {
		s.retryNeeded = true // it was deployed concurrently
	}
	if !s.retryNeeded {
		s.retry = 0
		return
	}
	s.retry = min(max(2*s.retry, firstRetry), lastRetry)
	after := s.retry
	if left := d.Patience - d.Now().Sub(s.outageSince); !s.outageSince.IsZero() && left > 0 {
		after = min(after, left)
	}
	d.enqueueAfter(s.id, after)
}
