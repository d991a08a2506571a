package event

import (
	"context"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/store"
)

const (
	// countsFor is how long an event is worth writing, as in PipeCD.
	countsFor = time.Hour
	// defaultInterval is how often the watcher looks although nothing was announced:
	// a rule may have come for an event that had none.
	defaultInterval = 30 * time.Second
	// firstPause is how long a repository that cannot be pushed to is left alone; it
	// doubles up to maxPause.
	firstPause = 2 * time.Second
	maxPause   = time.Minute
)

// Store is what the watcher reads and writes; *store.Store is one.
type Store interface {
	Watch(topics ...deploy.Topic) *store.Watch
	Agent(ctx context.Context) (deploy.AgentRecord, error)
	ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error)
	// OpenEvents returns what is not handled yet, the oldest first.
	OpenEvents(ctx context.Context) ([]deploy.RegisteredEvent, error)
	RegisteredEvent(ctx context.Context, id string) (deploy.RegisteredEvent, error)
	SaveEventHandling(ctx context.Context, id string, h deploy.EventHandling) error
	FinishEvent(ctx context.Context, id string, status deploy.EventStatus, description string) error
}

// Git is the mirror of a repository; *git.Repo is one.
type Git interface {
	Remote() string // to be shown
	Head() (deploy.Commit, bool)
	Sync(ctx context.Context) (head deploy.Commit, moved bool, err error)
	At(commit string) (fs.FS, error)
	Since(ctx context.Context, base, head string) (steps []git.Step, ok bool, err error)
	WithTrailer(ctx context.Context, head, key, value string) (deploy.Commit, bool, error)
	Push(ctx context.Context, branch string, c git.Change) (commit string, err error)
}

// PullRequests opens a pull request from one branch to another and returns the
// address of its page; asked again, of the same one. The kind of an error is
// deploy.Invalid when asking again does not help.
type PullRequests interface {
	Open(ctx context.Context, head, base, title, body string) (page string, err error)
}

// Tenancy tells what the rules of tenancy say of an application.
type Tenancy interface {
	Tenant(at deploy.GitPath) config.Tenant
	// Signer fails with kind deploy.Invalid when a commit does not count for it.
	Signer(ctx context.Context, at deploy.GitPath, commit string) (signer string, err error)
}

// Repository is one whose branch is watched.
type Repository struct {
	ID     string
	Branch string
	Git    Git
	Files  config.EventWatcherRepository // which files below .pipe/ hold rules
	// PullRequests is nil when no API of the repository's host is configured.
	PullRequests PullRequests
}

// Settings are what a configuration says; they may change while the watcher runs.
type Settings struct {
	Repositories  []Repository
	Author, Email string // of the commits
}

// Config is what New needs.
type Config struct {
	Store    Store
	Settings func() Settings
	Tenancy  Tenancy
	// Look makes the agent look at a repository that was pushed to.
	Look   func(repoID string)
	Logger *slog.Logger
	Now    func() time.Time
	// Interval is how often to look although nothing was announced; default 30 s.
	Interval time.Duration
}

// Watcher is the event watcher. Run it once.
type Watcher struct {
	Config

	ended chan string // the ID of a repository whose pass ended; see pass
	busy  map[string]bool
	again map[string]bool // something came while it was busy

	mu     sync.Mutex
	pauses map[string]pause           // of repositories that cannot be pushed to, and of pullsOf those
	done   map[string]map[string]bool // by event, repositories that have nothing left to do for it
	said   map[string]string          // what was logged last of a broken file
}

// pause is how long a repository, or its pull requests, are left alone.
type pause struct {
	length time.Duration
	until  time.Time
}

// New returns a watcher.
func New(c Config) *Watcher {
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	return &Watcher{
		Config: c, ended: make(chan string), busy: map[string]bool{}, again: map[string]bool{},
		pauses: map[string]pause{}, done: map[string]map[string]bool{}, said: map[string]string{},
	}
}

// Run works off events until ctx ends. A slow repository delays no other one.
func (w *Watcher) Run(ctx context.Context) error {
	feed := w.Store.Watch(deploy.TopicRegistered, deploy.TopicRegistration)
	defer feed.Close()
	var passes sync.WaitGroup
	defer passes.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			w.begin(ctx, &passes)
		case <-feed.C():
			feed.Take()
			w.begin(ctx, &passes)
		case id := <-w.ended:
			delete(w.busy, id)
			if w.again[id] {
				w.begin(ctx, &passes)
			}
		}
		timer.Reset(w.nextLook())
	}
}

// begin starts a pass over every repository, if there is an open event; over one
// that is busy as soon as it no longer is.
func (w *Watcher) begin(ctx context.Context, passes *sync.WaitGroup) {
	events, err := w.current(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.Logger.Error("cannot work off events; trying again", "error", err)
		}
		return
	}
	if len(events) == 0 {
		return
	}
	settings := w.Settings()
	for _, repo := range settings.Repositories {
		w.again[repo.ID] = w.busy[repo.ID]
		if w.busy[repo.ID] || w.pausing(repo.ID) {
			continue
		}
		w.busy[repo.ID] = true
		passes.Go(func() {
			w.pass(ctx, settings, repo, events)
			select {
			case w.ended <- repo.ID:
			case <-ctx.Done():
			}
		})
	}
}

// current returns the open events that count, none while the agent is disabled.
// Those that count no more are finished.
func (w *Watcher) current(ctx context.Context) ([]deploy.RegisteredEvent, error) {
	events, err := w.Store.OpenEvents(ctx)
	if err != nil || len(events) == 0 {
		w.forget(nil)
		return nil, err
	}
	agent, err := w.Store.Agent(ctx)
	if err != nil {
		return nil, err
	}
	var count []deploy.RegisteredEvent
	for _, e := range events {
		switch {
		case e.Newer != "":
			err = w.finish(ctx, e, deploy.EventOutdated, "a newer event of this name and these labels was registered: "+e.Newer)
		case w.Now().Sub(e.CreatedAt) > countsFor:
			status, why := tooLate(e)
			err = w.finish(ctx, e, status, why)
		default:
			count = append(count, e)
		}
		if err != nil {
			return nil, err
		}
	}
	w.forget(count)
	if agent.Disabled {
		return nil, nil
	}
	return count, nil
}

// forget drops what is remembered of other events than these.
func (w *Watcher) forget(but []deploy.RegisteredEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.done, func(id string, _ map[string]bool) bool {
		return !slices.ContainsFunc(but, func(e deploy.RegisteredEvent) bool { return e.ID == id })
	})
}

// pausing tells whether a repository is left alone now.
func (w *Watcher) pausing(repoID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Now().Before(w.pauses[repoID].until)
}

// rest leaves a repository alone for a while, ever longer.
func (w *Watcher) rest(repoID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	length := min(max(firstPause, 2*w.pauses[repoID].length), maxPause)
	w.pauses[repoID] = pause{length, w.Now().Add(length)}
}

// recovered notes that a repository does what it is asked.
func (w *Watcher) recovered(repoID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pauses, repoID)
}

// nextLook returns when to look although nothing was announced.
func (w *Watcher) nextLook() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := w.Interval
	for _, p := range w.pauses {
		if left := p.until.Sub(w.Now()); left > 0 {
			next = min(next, left)
		}
	}
	return next
}
