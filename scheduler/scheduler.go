package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

// Executor runs one kind of stage. Execute blocks until the stage has ended or ctx is
// cancelled; deploy.Stopped(ctx) returns the cause. On shutdown the result is
// discarded, and the stage is run again with Resumed set after the restart: Execute
// must be idempotent. It may be called concurrently.
type Executor interface {
	Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult
}

// Changes lists the changes in an application's repository.
type Changes interface {
	// Changed returns the paths, relative to the repository's root, that differ between
	// two commits. The error is NotFound when a commit is missing, Unavailable when a
	// retry may succeed.
	Changed(ctx context.Context, git deploy.GitPath, from, to string) ([]string, error)
}

// Config contains the dependencies and settings of a Scheduler.
type Config struct {
	Store     *store.Store
	Executors map[string]Executor // by stage name

	// Providers returns the names of the configured platform providers, Limits the
	// concurrency limits. Both are called before each start and concurrently; their
	// results may change.
	Providers func() []string
	Limits    func() Limits

	Changes Changes // input of skipOn.paths

	// Managed returns nil if this agent manages the cluster of a provider, otherwise an
	// error that names the agent that does. Optional.
	Managed func(provider string) error

	// Rights are this replica's rights to work on deployments, by application ID; nil means to
	// all of them. Limits are those of all replicas together.
	Rights ownership.Rights

	ScanEvery time.Duration // fallback for missed changes; default 30 s
	Logger    *slog.Logger
	Now       func() time.Time
}

// retryAfter is the delay before a failed run is resumed.
const retryAfter = 2 * time.Second

// Scheduler starts and runs planned deployments. Call Run once.
type Scheduler struct {
	Config
	logs   *logSink
	shared bool // other replicas work, too

	rescans chan struct{} // requests of Rescan

	mu      sync.Mutex
	runs    map[string]*run              // running in this process, by deployment ID
	waiting map[string]deploy.Deployment // waiting for a slot, by deployment ID
	turns   turns
}

// New returns a stopped scheduler.
func New(c Config) *Scheduler {
	if c.ScanEvery == 0 {
		c.ScanEvery = 30 * time.Second
	}
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
	_, alone := c.Rights.(ownership.All)
	return &Scheduler{
		Config: c, shared: !alone, logs: newLogSink(c.Store, c.Logger), rescans: make(chan struct{}, 1),
		runs: map[string]*run{}, waiting: map[string]deploy.Deployment{}, turns: turns{last: map[string]int{}},
	}
}

// Run resumes interrupted deployments and schedules until ctx ends. It returns after
// every stage has stopped and its log is stored.
func (s *Scheduler) Run(ctx context.Context) error {
	feed := s.Store.Watch(deploy.TopicDeployment, deploy.TopicCommand)
	defer feed.Close()
	var running sync.WaitGroup
	running.Go(func() { s.logs.run(ctx) })
	defer running.Wait()

	scan := time.NewTicker(s.ScanEvery)
	defer scan.Stop()
	freed := make(chan struct{}, 1)
	next := s.scan
	clock := newClockWatch(s.Now)
	for {
		if by := clock.jumped(); by != 0 {
			s.Logger.Warn("the system clock jumped; running deadlines are not affected", "by", by)
		}
		if err := next(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Error("cannot read deployments to schedule; trying again", "error", err)
		}
		for _, r := range s.startable(ctx) {
			running.Go(func() {
				s.drive(r)
				select {
				case freed <- struct{}{}:
				default:
				}
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-feed.C():
			next = func(ctx context.Context) error { return s.handleChanges(ctx, feed.Take()) }
		case <-s.rescans:
			next = s.scan
		case <-freed:
			next = func(context.Context) error { return nil }
		case <-scan.C:
			next = s.scan
		}
	}
}

// Rescan re-evaluates everything that is open, after Limits, Providers or Rights have changed.
// It does not block.
func (s *Scheduler) Rescan() {
	select {
	case s.rescans <- struct{}{}:
	default:
	}
}

// scan reads everything that is open: at the start, and as a fallback for missed
// changes.
func (s *Scheduler) scan(ctx context.Context) error {
	open, err := s.Store.DeploymentsIn(ctx, deploy.Running, deploy.RollingBack, deploy.Planned)
	if err != nil {
		return err
	}
	s.setWaiting(open)
	return s.processCommands(ctx)
}

// handleChanges reads the rows named by the change feed.
func (s *Scheduler) handleChanges(ctx context.Context, changes []deploy.Change) error {
	commands := false
	for _, c := range changes {
		if c.Topic == deploy.TopicCommand {
			commands = true
			continue
		}
		if c.Status == deploy.Pending || s.isRunning(c.ID) {
			continue
		}
		if c.Status != "" && c.Status.Completed() {
			s.dropWaiting(c.ID)
			continue
		}
		d, err := s.Store.Deployment(ctx, c.ID)
		if deploy.IsKind(err, deploy.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s.updateWaiting(d)
	}
	if commands {
		return s.processCommands(ctx)
	}
	return nil
}

// isRunning reports whether a deployment runs in this process.
func (s *Scheduler) isRunning(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id] != nil
}

// dropWaiting removes a completed deployment from the waiting ones.
func (s *Scheduler) dropWaiting(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

// setWaiting replaces the waiting deployments by those of open that do not run in this process. Others
// may have ended in another replica.
func (s *Scheduler) setWaiting(open []deploy.Deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.waiting)
	for _, d := range open {
		if s.runs[d.ID] == nil {
			s.waiting[d.ID] = d
		}
	}
}

// updateWaiting adds d to the waiting deployments, or removes it.
func (s *Scheduler) updateWaiting(d deploy.Deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Status.Active() && s.runs[d.ID] == nil {
		s.waiting[d.ID] = d
	} else {
		delete(s.waiting, d.ID)
	}
}

// drive runs one deployment to its end, or to the end of the right to it, and resumes it after errors
// of the store.
func (s *Scheduler) drive(r *run) {
	ctx, stop := context.WithCancelCause(r.work.Context)
	r.stopRun = stop
	defer s.release(r)
	var yielding sync.WaitGroup
	defer yielding.Wait()
	defer stop(nil)
	if r.work.Moving != nil {
		yielding.Go(func() { r.yield(ctx) })
	}
	for {
		err := r.drive(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		again := !errors.Is(err, errNoSlot) && !deploy.IsKind(err, deploy.Fenced)
		if again {
			r.log.Error("cannot continue the deployment; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
		if !again {
			return
		}
	}
}

// release gives up the right to a deployment. One that has not ended is evaluated again: this replica
// may get the right back.
func (s *Scheduler) release(r *run) {
	s.mu.Lock()
	delete(s.runs, r.id)
	s.mu.Unlock()
	r.work.Done()
	if s.shared && !r.d.Status.Completed() {
		s.Rescan()
	}
}
