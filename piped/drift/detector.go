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
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// Defaults of Config.
const (
	defaultWorkers    = 16
	defaultPatience   = 10 * time.Second // both
	defaultSweepEvery = 6 * time.Hour
)

const (
	// debounce is how long changes of an application are gathered.
	debounce = 30 * time.Millisecond
	// scanInterval is between two looks at all applications, in case that a hint led
	// to nothing.
	scanInterval = 30 * time.Second
	// firstRetry is how long a judgement that came to nothing waits for the next one;
	// it doubles up to lastRetry.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Members tells what the watches of one cluster know of applications' objects; it
// asks nobody. *kubernetes.Members does.
type Members interface {
	// Follow has objects of the kinds of these watched from now on.
	Follow(objects []deploy.ObjectRef)
	Get(ref deploy.ObjectRef) (kubernetes.Member, bool)
	Of(applicationID string) []kubernetes.Member
	// Ready returns nil while what is known of an object is what the cluster holds,
	// and otherwise since when it is not, and why; of kind deploy.NotFound if the
	// cluster does not serve its kind.
	Ready(object deploy.ObjectRef) (since time.Time, err error)
}

// Comparer reads objects and has the API server say what applying them would change;
// *kubernetes.Cluster does.
type Comparer interface {
	Compare(ctx context.Context, req kubernetes.CompareRequest) ([]kubernetes.Compared, error)
	// DescribeExtra says of the objects in Only, in their order, whether they are
	// still there as the application's.
	DescribeExtra(ctx context.Context, req kubernetes.CompareRequest) ([]kubernetes.Compared, error)
}

// Clusters finds the clusters of the platform providers; which there are may change.
type Clusters interface {
	// Members returns what is watched in a provider's cluster. The error says why
	// there is nothing, and since when, zero if that is not known.
	Members(provider string) (m Members, since time.Time, err error)
	// Hold returns the cluster as the account of the application sees it, which works
	// until release is called.
	Hold(provider string, app deploy.Application) (c Comparer, release func(), err error)
}

// Git tells what of Git is not deployed.
type Git interface {
	// Undeployed reports whether the application declares something else at head than
	// at the commit that is deployed, and which commits between them touch it, the
	// newest first. The kind of an error is deploy.Invalid when asking again does not
	// help.
	Undeployed(ctx context.Context, app deploy.Application, deployed, head string) (commits []string, differs bool, err error)
}

// Expected is what a cluster should hold of an application.
type Expected struct {
	Commit                   string
	Objects                  []manifest.Object // the complete set: resolved, not stamped
	VariantKey, VariantValue string            // the variant annotation
	Ignore                   config.DriftDetection
	Conceal                  kubernetes.Concealer // takes the secrets in it out of a text
}

// Config is what a Detector needs.
type Config struct {
	Store    *store.Store
	Clusters Clusters
	Git      Git
	// Expected reads what a deployment that succeeded has left, d, from its applied
	// set; inventory is what is recorded of it in its cluster.
	Expected func(set deploy.AppliedSet, d deploy.Deployment, inventory []deploy.InventoryItem) (Expected, error)
	PipedID  string
	Logger   *slog.Logger
	Now      func() time.Time
	NewID    func() string
	Observer Observer // default nobody

	// Workers is how many applications are judged at once; default 16. No more than a
	// quarter of them wait for the same cluster.
	Workers int
	// Patience is how long objects that cannot be judged leave an application in the
	// state that it has; default 10 s. Then it is UNKNOWN.
	Patience time.Duration
	// GitPatience is how long a judgement waits for what Git declares to be rendered;
	// default 10 s. Then it concludes without, and another one follows when that has ended.
	GitPatience time.Duration
	// SweepEvery is how often every object is compared although nothing was heard of
	// it; default 6 h.
	SweepEvery time.Duration
}

// Detector is a component: call Run once. Wake and Report may be called at any time.
type Detector struct {
	Config

	mu       sync.Mutex
	queue    workqueue.TypedDelayingInterface[string] // IDs of applications to be judged; nil before Run
	subjects map[string]*subject                      // by application ID
	listed   time.Time                                // when all applications were read last; zero before the first time

	marks     marks
	lanes     *lanes
	questions *background.Jobs[gitKey, missed]
}

// New returns a Detector that has not started.
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
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	d := &Detector{Config: c, subjects: map[string]*subject{}}
	d.questions = background.New[gitKey, missed](background.Config{Patience: c.GitPatience, AtOnce: c.Workers})
	d.lanes = newLanes(max(1, c.Workers/4), func(id string) { d.later(id, 0) })
	return d
}

// Run judges applications until ctx ends, and then returns nil: what was learned is
// stored, and no judgement is under way.
func (d *Detector) Run(ctx context.Context) error {
	feed := d.Store.Watch(deploy.TopicApplication, deploy.TopicDeployment, deploy.TopicEvaluated)
	defer feed.Close()
	queue := workqueue.NewTypedDelayingQueue[string]()
	d.mu.Lock()
	d.queue = queue
	d.mu.Unlock()
	var working sync.WaitGroup
	defer d.saveMarks(context.WithoutCancel(ctx))
	defer d.questions.Close()
	defer working.Wait()
	defer queue.ShutDown()
	for range d.Workers {
		working.Go(func() { d.work(ctx, queue) })
	}
	working.Go(func() { d.tend(ctx) })

	d.scan(ctx)
	again := time.NewTimer(d.nextScan())
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-feed.C():
			d.react(ctx, feed.Take())
		case <-again.C:
			d.scan(ctx)
			again.Reset(d.nextScan())
		}
	}
}

// tend does what the time of day asks for: it sweeps, and stores what was learned.
func (d *Detector) tend(ctx context.Context) {
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

// work judges what is in the queue until it is shut down.
func (d *Detector) work(ctx context.Context, queue workqueue.TypedDelayingInterface[string]) {
	for {
		id, closed := queue.Get()
		if closed || ctx.Err() != nil {
			return
		}
		if s := d.subject(id); s != nil {
			_, err := d.judge(ctx, s, request{})
			d.settle(ctx, s, err)
		}
		queue.Done(id)
	}
}

// Wake has an application judged soon: something of it was written. "" is all of
// them. An application that is not known is none of this agent's.
func (d *Detector) Wake(applicationID string) {
	if applicationID != "" {
		d.hint(applicationID, func(h *hints) { h.hear(d.Now()) })
		d.later(applicationID, debounce)
		return
	}
	d.mu.Lock()
	ids := slices.Collect(maps.Keys(d.subjects))
	d.mu.Unlock()
	for _, id := range ids {
		d.later(id, debounce)
	}
}

// later has an application that is known judged after a while, or sooner if that was
// asked for before.
func (d *Detector) later(id string, after time.Duration) {
	d.mu.Lock()
	queue := d.queue
	known := d.subjects[id] != nil
	d.mu.Unlock()
	if queue != nil && known {
		queue.AddAfter(id, after)
	}
}

// Report judges an application now and returns what it finds, which is stored as
// well. Objects that differ, or did, are read again; with diff, each that differs has
// its Diff. While a deployment is under way it returns the report that lasts from
// before, and says so. NotFound if there is no such application.
func (d *Detector) Report(ctx context.Context, applicationID string, diff bool) (deploy.DriftReport, error) {
	app, err := d.Store.Application(ctx, applicationID)
	if err != nil {
		return deploy.DriftReport{}, err
	}
	if app.Deleted {
		return deploy.DriftReport{}, deploy.Errorf(deploy.NotFound, "application %s is deleted", app.Name)
	}
	s := d.subject(app.ID)
	if s == nil {
		s = d.know(app)
	} else { // it may have changed since it was read
		d.hint(app.ID, func(h *hints) { h.row = true })
	}
	report, err := d.judge(ctx, s, request{asked: true, diff: diff})
	if err != nil && ctx.Err() == nil {
		d.later(app.ID, firstRetry)
	}
	return report, err
}

// settle has a judgement repeated that came to nothing, less and less soon.
func (d *Detector) settle(ctx context.Context, s *subject, err error) {
	if ctx.Err() != nil {
		return
	}
	if errors.Is(err, errNoLane) {
		return // it is judged again when there is one
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !deploy.IsKind(err, deploy.Conflict) {
		if text := err.Error(); text != s.lastErr {
			d.Logger.Warn("cannot tell whether an application is as in Git; trying again", "app", s.app.Name, "error", err)
			s.lastErr = text
		}
		s.unsettled = true
	} else if err == nil {
		s.lastErr = ""
	} else {
		s.unsettled = true // it was deployed meanwhile
	}
	if !s.unsettled {
		s.retry = 0
		return
	}
	s.retry = min(max(2*s.retry, firstRetry), lastRetry)
	after := s.retry
	if left := d.Patience - d.Now().Sub(s.blindFrom); !s.blindFrom.IsZero() && left > 0 {
		after = min(after, left)
	}
	d.later(s.id, after)
}
