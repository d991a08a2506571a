package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Executor runs one kind of stage. Execute blocks until the stage has ended or
// ctx is cancelled; deploy.Stopped(ctx) then says why. On shutdown the result
// is discarded and the stage is run again, with Resumed set, after the restart:
// whatever Execute does must bear that. It may be called concurrently.
type Executor interface {
	Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult
}

// Changes tells what changed in an application's repository.
type Changes interface {
	// Changed returns the paths, from the repository's root, that differ between
	// two commits. The kind of the error is NotFound when one of the commits is
	// gone, Unavailable when asking again may help.
	Changed(ctx context.Context, git deploy.GitPath, from, to string) ([]string, error)
}

// Config is what a Scheduler needs.
type Config struct {
	Store     *store.Store
	Executors map[string]Executor // by stage name

	// Providers returns the names of the configured platform providers, Limits
	// how much may run. Both are asked whenever a deployment could start, may
	// answer otherwise each time, and are called by several goroutines.
	Providers func() []string
	Limits    func() Limits

	Changes Changes // what a stage's skipOn.paths is judged by

	ScanEvery time.Duration // the safety net behind the change feed; default 30 s
	Logger    *slog.Logger
	Now       func() time.Time
}

// retryAfter is how long a deployment that could not go on rests.
const retryAfter = 2 * time.Second

// Scheduler is a component: call Run once.
type Scheduler struct {
	Config
	logs *logSink

	looks chan struct{} // what Look asks for

	mu      sync.Mutex
	runs    map[string]*run              // by deployment ID: what runs in this process
	waiting map[string]deploy.Deployment // PLANNED and not started: what wants a slot
	turns   turns
}

// New returns a scheduler that has not started.
func New(c Config) *Scheduler {
	if c.ScanEvery == 0 {
		c.ScanEvery = 30 * time.Second
	}
	return &Scheduler{
		Config: c, logs: newLogSink(c.Store, c.Logger), looks: make(chan struct{}, 1),
		runs: map[string]*run{}, waiting: map[string]deploy.Deployment{}, turns: turns{last: map[string]int{}},
	}
}

// Run resumes what was interrupted and schedules until ctx ends. It returns
// once every stage has been told to stop, has stopped, and its log is stored.
func (s *Scheduler) Run(ctx context.Context) error {
	feed := s.Store.Watch(deploy.TopicDeployment, deploy.TopicCommand)
	defer feed.Close()
	var running sync.WaitGroup
	running.Go(func() { s.logs.run(ctx) })
	defer running.Wait()

	scan := time.NewTicker(s.ScanEvery)
	defer scan.Stop()
	freed := make(chan struct{}, 1)
	look := s.scan
	clock := newClockWatch(s.Now)
	for {
		if by := clock.jumped(); by != 0 {
			s.Logger.Warn("the system clock jumped; running deadlines are not affected", "by", by)
		}
		if err := look(ctx); err != nil && ctx.Err() == nil {
			s.Logger.Error("cannot read deployments to schedule; trying again", "error", err)
		}
		for _, r := range s.startable() {
			running.Go(func() {
				s.drive(ctx, r)
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
			look = func(ctx context.Context) error { return s.follow(ctx, feed.Take()) }
		case <-s.looks:
			look = s.scan
		case <-freed:
			look = func(context.Context) error { return nil }
		case <-scan.C:
			look = s.scan
		}
	}
}

// Look makes the scheduler look at everything that is open now: after Limits or
// Providers have changed. It does not block.
func (s *Scheduler) Look() {
	select {
	case s.looks <- struct{}{}:
	default:
	}
}

// scan reads everything that is open: at the start, and as the safety net.
func (s *Scheduler) scan(ctx context.Context) error {
	open, err := s.Store.DeploymentsIn(ctx, deploy.Running, deploy.RollingBack, deploy.Planned)
	if err != nil {
		return err
	}
	for _, d := range open {
		s.consider(d)
	}
	return s.answerCommands(ctx)
}

// follow reads what the change feed names.
func (s *Scheduler) follow(ctx context.Context, changes []deploy.Change) error {
	commands := false
	for _, c := range changes {
		if c.Topic == deploy.TopicCommand {
			commands = true
			continue
		}
		if c.Status == deploy.Pending || s.isRun(c.ID) {
			continue
		}
		if c.Status != "" && c.Status.Completed() {
			s.forget(c.ID)
			continue
		}
		d, err := s.Store.Deployment(ctx, c.ID)
		if deploy.IsKind(err, deploy.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		s.consider(d)
	}
	if commands {
		return s.answerCommands(ctx)
	}
	return nil
}

// isRun reports whether a deployment runs in this process: it wants no slot.
func (s *Scheduler) isRun(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id] != nil
}

// forget takes a deployment that has ended out of those that want to run.
func (s *Scheduler) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

// consider notes whether d wants to run.
func (s *Scheduler) consider(d deploy.Deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.Status.Active() && s.runs[d.ID] == nil {
		s.waiting[d.ID] = d
	} else {
		delete(s.waiting, d.ID)
	}
}

// drive carries one deployment to its end, taking it up again after an error
// of the store.
func (s *Scheduler) drive(ctx context.Context, r *run) {
	defer func() {
		s.mu.Lock()
		delete(s.runs, r.id)
		s.mu.Unlock()
	}()
	for {
		err := r.drive(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		r.log.Error("deployment cannot go on now; it is taken up again", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryAfter):
		}
	}
}
