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
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/store"
)

const (
	// maxAge is the age at which an open event expires, as in PipeCD.
	maxAge = time.Hour
	// defaultInterval is the poll interval: a rule may be added after its event.
	defaultInterval = 30 * time.Second
	// firstPause is the initial backoff of a repository that cannot be pushed to; it
	// doubles up to maxPause.
	firstPause = 2 * time.Second
	maxPause   = time.Minute
)

// Store is the part of *store.Store that the watcher uses.
type Store interface {
	Watch(topics ...deploy.Topic) *store.Watch
	Agent(ctx context.Context) (deploy.AgentRecord, error)
	ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error)
	// OpenEvents returns the open events, the oldest first.
	OpenEvents(ctx context.Context) ([]deploy.RegisteredEvent, error)
	RegisteredEvent(ctx context.Context, id string) (deploy.RegisteredEvent, error)
	SaveEventHandling(ctx context.Context, id string, h deploy.EventHandling) error
	FinishEvent(ctx context.Context, id string, status deploy.EventStatus, description string) error
}

// Git is the mirror of a repository; *git.Repo implements it.
type Git interface {
	Remote() string // for messages
	Head() (deploy.Commit, bool)
	Sync(ctx context.Context) (head deploy.Commit, moved bool, err error)
	At(commit string) (fs.FS, error)
	Since(ctx context.Context, base, head string) (steps []git.Step, ok bool, err error)
	WithTrailer(ctx context.Context, head, key, value string) (deploy.Commit, bool, error)
	Push(ctx context.Context, branch string, c git.Change) (commit string, err error)
}

// PullRequests opens a pull request and returns the URL of its page. It is idempotent.
// An error of kind deploy.Invalid is permanent.
type PullRequests interface {
	Open(ctx context.Context, head, base, title, body string) (page string, err error)
}

// Tenancy returns the tenancy rules of applications.
type Tenancy interface {
	Tenant(at deploy.GitPath) config.Tenant
	// Signer returns the signer of commit. The error is of kind deploy.Invalid if the
	// rules of the application at the path reject the commit.
	Signer(ctx context.Context, at deploy.GitPath, commit string) (signer string, err error)
}

// Repository is a repository with a tracked branch.
type Repository struct {
	ID     string
	Branch string
	Git    Git
	Files  config.EventWatcherRepository // selects the rule files below .pipe/
	// PullRequests is nil if no API of the repository's host is configured.
	PullRequests PullRequests
}

// Settings are the reloadable settings.
type Settings struct {
	Repositories  []Repository
	Author, Email string // of the commits
}

// Config holds the dependencies of New.
type Config struct {
	Store    Store
	Rights   ownership.Rights // of this replica, by repository ID; nil: all
	Settings func() Settings
	Tenancy  Tenancy
	Kinds    config.Kinds // kinds of application whose rules are read
	// Poll makes the agent fetch a repository after a push.
	Poll   func(repoID string)
	Logger *slog.Logger
	Now    func() time.Time
	// Interval is the poll interval; default 30 s.
	Interval time.Duration
}

// Watcher is the event watcher. Call Run once.
type Watcher struct {
	Config
	shared bool // other replicas handle events, too

	ended chan string // IDs of repositories whose pass ended
	busy  map[string]bool
	again map[string]bool // whether an event arrived while the repository was busy

	mu     sync.Mutex
	pauses map[string]pause           // by repository ID, or pullsOf it
	done   map[string]map[string]bool // by event ID: repositories that have handled it
	logged map[string]string          // by file: the last logged error
}

// pause is the backoff of a repository, or of its pull requests.
type pause struct {
	length time.Duration
	until  time.Time
}

// New returns a stopped watcher of registered events.
func New(c Config) *Watcher {
	if c.Interval == 0 {
		c.Interval = defaultInterval
	}
	if c.Rights == nil {
		c.Rights = ownership.All{}
	}
	_, alone := c.Rights.(ownership.All)
	return &Watcher{
		Config: c, shared: !alone, ended: make(chan string), busy: map[string]bool{}, again: map[string]bool{},
		pauses: map[string]pause{}, done: map[string]map[string]bool{}, logged: map[string]string{},
	}
}

// Run handles events until ctx ends. A slow repository does not delay others.
func (w *Watcher) Run(ctx context.Context) error {
	feed := w.Store.Watch(deploy.TopicRegistered, deploy.TopicRegistration)
	defer feed.Close()
	var passes sync.WaitGroup
	defer passes.Wait()
	gained := w.Rights.Gained()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-gained:
			gained = w.Rights.Gained()
			w.begin(ctx, &passes)
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
		timer.Reset(w.nextPoll())
	}
}

// begin starts a pass over every repository of this replica if there is an open event; a busy
// repository gets its pass afterwards.
func (w *Watcher) begin(ctx context.Context, passes *sync.WaitGroup) {
	events, err := w.current(ctx)
	if err != nil {
		if !ownership.Over(ctx, err) {
			w.Logger.Error("cannot handle events; retrying", "error", err)
		}
		return
	}
	if len(events) == 0 {
		return
	}
	settings := w.Settings()
	for _, repo := range settings.Repositories {
		w.again[repo.ID] = w.busy[repo.ID]
		if w.busy[repo.ID] || w.inBackoff(repo.ID) {
			continue
		}
		right, ok := w.Rights.Own(ctx, repo.ID)
		if !ok {
			continue
		}
		w.busy[repo.ID] = true
		passes.Go(func() {
			w.pass(right.Context, settings, repo, events)
			right.Done()
			select {
			case w.ended <- repo.ID:
			case <-ctx.Done():
			}
		})
	}
}

// current returns the open events, none while the agent is disabled. It finishes superseded
// and expired events.
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
			err = w.conclude(ctx, e, deploy.EventOutdated, "superseded by a newer event of the same name and labels: "+e.Newer)
		case w.Now().Sub(e.CreatedAt) > maxAge:
			status, why := expired(e)
			err = w.conclude(ctx, e, status, why)
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

// forget drops the state of all events except the given ones.
func (w *Watcher) forget(but []deploy.RegisteredEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.done, func(id string, _ map[string]bool) bool {
		return !slices.ContainsFunc(but, func(e deploy.RegisteredEvent) bool { return e.ID == id })
	})
}

// inBackoff reports whether a repository is in backoff.
func (w *Watcher) inBackoff(repoID string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Now().Before(w.pauses[repoID].until)
}

// backOff starts or doubles the backoff of a repository.
func (w *Watcher) backOff(repoID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	length := min(max(firstPause, 2*w.pauses[repoID].length), maxPause)
	w.pauses[repoID] = pause{length, w.Now().Add(length)}
}

// recovered removes the backoff of a repository.
func (w *Watcher) recovered(repoID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pauses, repoID)
}

// nextPoll returns the time until the next poll or the end of a backoff, whichever is first.
func (w *Watcher) nextPoll() time.Duration {
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
