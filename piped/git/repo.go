package git

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// Config describes one repository to mirror.
type Config struct {
	ID     string // names the mirror inside Dir
	Remote string // a path, file://, http(s)://, ssh:// or user@host:path
	Branch string // the branch to track
	Dir    string // the directory of the mirrors; created if missing
	Auth   Auth

	// MaxFileSize is the size of the largest file At opens. Zero means 32 MiB.
	MaxFileSize int64

	// Timeout bounds the listing of the remote's branches, and any time without received data
	// during a fetch. Zero means one minute.
	Timeout time.Duration

	// Permit is called immediately before a push is sent, which its error prevents; optional.
	Permit func(context.Context) error

	Logger  *slog.Logger     // optional
	Now     func() time.Time // nil is time.Now
	Metrics Metrics          // optional

	bounds *bounds // nil: those of defaultBounds
}

// Repo is a mirror of one branch of one remote. Its methods are safe for
// concurrent use.
type Repo struct {
	cfg     Config // except the fields of target
	objects *objects
	flights flights

	mu     sync.Mutex
	target target
	head   plumbing.Hash // zero until the first Sync
	stats  Stats
	state  State // except the fields of target and head
	// refused is the last refused head.
	refused refusedHead
}

// target is the branch that a Repo tracks, and the access to it.
type target struct {
	address address
	branch  string
	dial    dialer
}

// Stats counts the requests of a Repo to its remote since Open.
type Stats struct {
	LsRemotes   int64     // times the remote's branches were listed
	Fetches     int64     // times objects were fetched
	LastContact time.Time // when the remote last answered
}

const (
	defaultTimeout     = time.Minute
	defaultMaxFileSize = 32 << 20
)

// Open opens or creates the mirror of c without network access. A mirror of another remote is
// redirected to this remote and keeps its objects. An unreadable mirror is renamed and
// replaced by an empty one. Both are logged. The caller closes the Repo.
func Open(c Config) (*Repo, error) {
	c = c.withDefaults()
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	o, err := ensureMirror(c, t.address.text)
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "open git repository %q: create its mirror: %w", c.ID, errors.Join(err, t.dial.close()))
	}
	if err := removeMerges(mirrorDir(c.Dir, c.ID)); err != nil {
		c.Logger.Warn("what merges of an earlier process left behind cannot be removed", "repo", c.ID, "error", err)
	}
	if c.bounds != nil {
		o.limits = *c.bounds
	}
	r := &Repo{cfg: c, target: t, objects: o, flights: newFlights()}
	if h, err := o.ref(headRef(c.Branch)); err == nil {
		r.head = h
	}
	return r, nil
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.MaxFileSize <= 0 {
		c.MaxFileSize = defaultMaxFileSize
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Metrics == nil {
		c.Metrics = noMetrics{}
	}
	return c
}

// Check returns the error, of kind Invalid, with which Open would reject c before it changes
// anything; nil if there is none.
func (c Config) Check() error {
	t, err := c.target()
	if err != nil {
		return err
	}
	return t.dial.close()
}

// target checks the required fields of c and returns what the repository is fetched from: the
// parsed address, the branch and a dialer with the credentials. Errors are of kind Invalid.
func (c Config) target() (target, error) {
	if c.ID == "" || c.Remote == "" || c.Branch == "" || c.Dir == "" {
		return target{}, deploy.Errorf(deploy.Invalid, "open git repository %q: id, remote, branch and directory are required", c.ID)
	}
	a, err := parseAddress(c.Remote)
	if err != nil {
		return target{}, deploy.Errorf(deploy.Invalid, "open git repository %q: %w", c.ID, err)
	}
	if err := headRef(c.Branch).Validate(); err != nil {
		return target{}, deploy.Errorf(deploy.Invalid, "open git repository %q: %q is not a branch name", c.ID, c.Branch)
	}
	dial, err := newDialer(a, c.Auth)
	if err != nil {
		return target{}, deploy.Errorf(deploy.Invalid, "open git repository %q: %w", c.ID, err)
	}
	return target{a, c.Branch, dial}, nil
}

// follows returns the current target.
func (r *Repo) follows() target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.target
}

// Close releases connections and files. The Repo and results of At must not be used after it.
func (r *Repo) Close() error {
	return errors.Join(r.follows().dial.close(), r.objects.close())
}

// Remote returns the remote without credentials, for messages.
func (r *Repo) Remote() string { return r.follows().address.text }

// Stats returns the counters since Open.
func (r *Repo) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}
