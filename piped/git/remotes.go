package git

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// RemotesConfig configures Remotes.
type RemotesConfig struct {
	Dir string // for the mirrors only; created if missing

	// MaxBytes and MaxMirrors bound the mirrors on disk, except those in use. Zero
	// means 1 GiB and 200.
	MaxBytes   int64
	MaxMirrors int

	// MaxFileSize, Timeout, Logger, Now and Metrics are as those of Config.
	MaxFileSize int64
	Timeout     time.Duration
	Logger      *slog.Logger
	Now         func() time.Time
	Metrics     Metrics

	// Public and Known are Control functions of net.Dialer that reject addresses of HTTP
	// connections. Known applies to hosts of Allow and to proxies, Public to all other hosts.
	Public, Known Control
}

// Control is the type of net.Dialer's Control.
type Control func(network, address string, c syscall.RawConn) error

// Remotes reads commits of repositories that are not watched, but that applications refer to:
// bases of kustomizations, charts. It maintains a bare mirror of each with the requested
// commits, without their history if the server supports that. Its methods are safe for
// concurrent use.
type Remotes struct {
	cfg RemotesConfig

	mu      sync.Mutex
	hosts   []string
	auth    func(remote string) (Auth, error)
	mirrors map[string]*remoteMirror // by directory name
}

const (
	// freshFor is how long the commit of a branch is cached.
	freshFor = 10 * time.Second
	// usedFor is how long the result of At may be read.
	usedFor = 10 * time.Minute

	defaultRemotesBytes   = 1 << 30
	defaultRemotesMirrors = 200
)

// OpenRemotes returns the Remotes of a directory. No host is allowed before the first call of
// Allow. The caller closes it.
func OpenRemotes(c RemotesConfig) (*Remotes, error) {
	base := Config{MaxFileSize: c.MaxFileSize, Timeout: c.Timeout, Logger: c.Logger, Now: c.Now, Metrics: c.Metrics}.withDefaults()
	c.MaxFileSize, c.Timeout, c.Logger, c.Now, c.Metrics = base.MaxFileSize, base.Timeout, base.Logger, base.Now, base.Metrics
	c.MaxBytes, c.MaxMirrors = cmp.Or(c.MaxBytes, defaultRemotesBytes), cmp.Or(c.MaxMirrors, defaultRemotesMirrors)
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, deploy.Errorf(deploy.Internal, "create the directory of remote repositories: %w", err)
	}
	return &Remotes{cfg: c, mirrors: map[string]*remoteMirror{}}, nil
}

// Allow replaces the allowed hosts and their credentials. A host is a name, or name:port for
// that port only. The prefix http:// allows unencrypted HTTP, which is otherwise allowed only
// to loopback addresses.
func (r *Remotes) Allow(hosts []string, auth func(remote string) (Auth, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts, r.auth = slices.Clone(hosts), auth
}

// At returns the files of a repository at ref, and the commit's hash. ref is a branch, a tag
// or a full commit hash; "" is the default branch. The files are as those of Repo.At and may
// be read for ten minutes.
//
// A commit or tag in the mirror needs no network and does not wait for a concurrent fetch,
// because tags are assumed not to move. The commit of a branch is cached for ten seconds. The
// error is of kind Invalid if the host is not allowed or the remote has no such ref; other
// errors are as those of Repo.Sync.
func (r *Remotes) At(ctx context.Context, remote, ref string) (files fs.FS, commit string, err error) {
	a, err := parseAddress(remote)
	if err != nil {
		return nil, "", deploy.Errorf(deploy.Invalid, "%w", err)
	}
	auth, err := r.allowed(a, remote)
	if err != nil {
		return nil, "", err
	}
	m := r.mirror(a)
	h, known := m.known(ref)
	if !known {
		if m, err = r.enter(ctx, a); err != nil {
			return nil, "", err
		}
		defer m.leave()
		if h, err = m.find(ctx, ref, auth); err != nil {
			return nil, "", err
		}
	}
	_ = os.Chtimes(m.dir, time.Time{}, r.cfg.Now()) // for the sweep after a restart
	c, err := m.objects.commit(h)
	if err != nil {
		return nil, "", deploy.Errorf(deploy.Internal, "read commit %s of %s: %w", h, a.text, err)
	}
	return &treeFS{objects: m.objects, root: c.TreeHash, maxSize: r.cfg.MaxFileSize, at: c.Committer.When.UTC()}, h.String(), nil
}

// allowed returns the credentials for a remote, or an error if its host is not allowed.
func (r *Remotes) allowed(a address, remote string) (Auth, error) {
	if err := r.hostAllowed(a); err != nil {
		return Auth{}, err
	}
	r.mu.Lock()
	auth := r.auth
	r.mu.Unlock()
	return auth(remote)
}

// hostAllowed returns an error if the remote's host or scheme is not allowed.
func (r *Remotes) hostAllowed(a address) error {
	ep := a.endpoint
	if ep.Protocol == "file" {
		return deploy.Errorf(deploy.Invalid, "%s is a path of the agent's machine; expected https, ssh or user@host:path", a.text)
	}
	r.mu.Lock()
	hosts := r.hosts
	r.mu.Unlock()
	host := strings.ToLower(strings.Trim(ep.Host, "[]"))
	names := []string{host, net.JoinHostPort(host, fmt.Sprint(ep.Port))}
	known, plain := false, false
	for _, allowed := range hosts {
		name, http := strings.CutPrefix(strings.ToLower(allowed), "http://")
		if slices.Contains(names, name) {
			known, plain = true, plain || http
		}
	}
	switch {
	case !known:
		return deploy.Errorf(deploy.Invalid, "the host %s is not allowed; add it to git.remoteHosts of the agent, or copy what is needed into this repository", host)
	case ep.Protocol == "http" && !plain && !loopback(host):
		return deploy.Errorf(deploy.Invalid, "%s is reached without encryption; use https or ssh, or allow http://%s in git.remoteHosts of the agent", a.text, host)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// mirror returns the mirror of a remote and marks it as used, so that sweep retains it.
func (r *Remotes) mirror(a address) *remoteMirror {
	sum := sha256.Sum256([]byte(a.text))
	name := hex.EncodeToString(sum[:16])
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.mirrors[name]
	if m == nil {
		m = &remoteMirror{remotes: r, address: a, dir: filepath.Join(r.cfg.Dir, name+".git"), turn: make(chan struct{}, 1), seen: map[string]sighting{}}
		r.mirrors[name] = m
	}
	m.used = r.cfg.Now()
	return m
}

// enter returns the mirror of a remote for exclusive use. The caller calls leave.
func (r *Remotes) enter(ctx context.Context, a address) (*remoteMirror, error) {
	for {
		m := r.mirror(a)
		select {
		case m.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if m.removed {
			m.leave()
			continue
		}
		if err := m.open(); err != nil {
			m.leave()
			return nil, deploy.Errorf(deploy.Internal, "open the mirror of %s: %w", a.text, err)
		}
		return m, nil
	}
}

// Close releases all mirrors. Results of At must not be read after it.
func (r *Remotes) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for name, m := range r.mirrors {
		m.turn <- struct{}{}
		m.removed = true
		if m.objects != nil {
			errs = append(errs, m.objects.close())
		}
		delete(r.mirrors, name)
		m.leave()
	}
	return errors.Join(errs...)
}

// remoteMirror is the mirror of one remote.
type remoteMirror struct {
	remotes *Remotes
	address address
	dir     string
	used    time.Time // under Remotes.mu

	turn    chan struct{} // a semaphore for exclusive use
	removed bool

	mu      sync.Mutex // guards the fields below; changes of objects also need the turn
	objects *objects   // nil until opened
	seen    map[string]sighting
}

// sighting is the commit of a branch when it was last read.
type sighting struct {
	commit plumbing.Hash
	at     time.Time
}

func (m *remoteMirror) leave() { <-m.turn }

// open opens the mirror. It replaces an unreadable one by an empty one.
func (m *remoteMirror) open() error {
	if m.objects != nil {
		return nil
	}
	o, err := openMirror(m.dir, m.address.text, "none")
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.remotes.cfg.Logger.Warn("the mirror of a remote repository cannot be used; fetched again", "remote", m.address.text, "error", err)
		}
		if err := os.RemoveAll(m.dir); err != nil {
			return err
		}
		if o, err = createMirror(m.dir, m.address.text); err != nil {
			return err
		}
	}
	m.mu.Lock()
	m.objects = o
	m.mu.Unlock()
	return nil
}

// tagRefs store the commits of tags.
const tagRefs = "refs/piped/tags/"

// find fetches ref into the mirror and returns its commit.
func (m *remoteMirror) find(ctx context.Context, ref string, auth Auth) (plumbing.Hash, error) {
	if h, ok := m.known(ref); ok {
		return h, nil
	}
	d, err := newDialer(m.address, auth)
	if err != nil {
		return plumbing.ZeroHash, deploy.Errorf(deploy.Invalid, "reach %s: %w", m.address.text, err)
	}
	defer d.close()
	if h, ok := d.(*httpDialer); ok {
		h.transport.DialContext = m.remotes.connect
	}
	w := watch(ctx, m.remotes.cfg.Timeout)
	defer w.stop()
	refs, err := m.list(w, d)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	h, name, ok := refs.resolve(ref)
	if !ok {
		return plumbing.ZeroHash, deploy.Errorf(deploy.Invalid, "remote %s has no branch, tag or commit %q; correct the reference, or push it", m.address.text, ref)
	}
	if !m.objects.has(h) {
		if err := m.fetch(w, d, refs, h, ref); err != nil {
			return plumbing.ZeroHash, err
		}
		m.remotes.sweep(m)
	}
	return h, m.remember(ref, name, h)
}

// known returns the cached commit of a ref.
func (m *remoteMirror) known(ref string) (plumbing.Hash, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		return plumbing.ZeroHash, false
	}
	if plumbing.IsHash(ref) {
		h := plumbing.NewHash(ref)
		return h, m.objects.has(h)
	}
	if h, err := m.objects.ref(tagRef(ref)); err == nil && m.objects.has(h) {
		return h, true
	}
	s, ok := m.seen[ref]
	return s.commit, ok && m.remotes.cfg.Now().Sub(s.at) < freshFor
}

func tagRef(tag string) plumbing.ReferenceName {
	return plumbing.ReferenceName(tagRefs + strings.TrimPrefix(tag, "refs/tags/"))
}

// remember caches the commit of ref.
func (m *remoteMirror) remember(ref string, name plumbing.ReferenceName, h plumbing.Hash) error {
	if !name.IsTag() {
		m.mu.Lock()
		m.seen[ref] = sighting{h, m.remotes.cfg.Now()}
		m.mu.Unlock()
		return nil
	}
	if err := m.objects.setRef(tagRef(name.String()), h); err != nil {
		return deploy.Errorf(deploy.Internal, "record tag %s of %s: %w", ref, m.address.text, err)
	}
	return nil
}
