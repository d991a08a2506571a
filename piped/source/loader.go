package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/source/kubernetes/kustomize"
	"github.com/c785c783/piped/piped/source/secret"
)

// Tree returns a repository's files at a commit. The files never change.
type Tree func(repoID, commit string) (fs.FS, error)

// Source is what an application declares at a commit.
type Source struct {
	Commit string
	// Config is shared between callers and must not be changed.
	Config *config.Application
	// Objects belong to the caller. They are ordered by the annotation
	// pipecd.dev/order, then by file and position, and none stands twice.
	Objects []manifest.Object
	// Digest is the SHA-256 of what the objects declare, in their order.
	Digest string
	// Redactor takes the secrets that were decrypted for the objects out of messages
	// about them; nil without any.
	Redactor *secret.Redactor
	// Warnings are about what works and is not what its author will have meant, each a
	// line that begins with a file. They are shared between callers.
	Warnings []string
}

// Charts renders charts. The fingerprint is that of its configuration: what a
// request renders to stays the same as long as it does, but for what servers
// answer.
type Charts interface {
	Render(ctx context.Context, req helm.Request) (helm.Result, error)
	Fingerprint() string
}

// Loader loads sources and remembers the latest. It is safe for concurrent use;
// its fields are set before the first use, and a copy must not be made after it.
type Loader struct {
	Tree Tree
	// Secrets fills in the application's encryption and attachments. Without keys,
	// or nil, an application with encrypted secrets is refused.
	Secrets *secret.Renderer
	// Charts renders charts; nil refuses them.
	Charts Charts
	// Capabilities are what charts see of an application's cluster where the
	// application does not say so itself; nil is Helm's own.
	Capabilities func(ctx context.Context, at deploy.GitPath, app *config.Application) helm.Capabilities
	// Name returns the name of an application whose configuration says none; nil is that
	// of its directory.
	Name func(ctx context.Context, at deploy.GitPath) string
	// Remotes gives the trees of remote bases of kustomizations; nil refuses them.
	Remotes kustomize.Remotes
	// CacheBytes bounds the memory of remembered sources, roughly; 0 remembers
	// none.
	CacheBytes int64
	// Time bounds one rendering with all that it fetches; default 5 min.
	Time time.Duration

	cache   cache
	flights flights[key, outcome]
	once    sync.Once
	builder *kustomize.Builder // after once
}

// Config returns the application's configuration at a commit. It is shared and
// must not be changed. See Load for the errors.
func (l *Loader) Config(ctx context.Context, at deploy.GitPath, commit string) (*config.Application, error) {
	if o, ok := l.cache.get(l.key(at, commit)); ok && o.source != nil {
		return o.source.Config, nil
	}
	fsys, err := l.tree(ctx, at, commit)
	if err != nil {
		return nil, err
	}
	return readConfig(fsys, at.ConfigPath())
}

// Load returns the application's configuration and objects at a commit. An
// error of kind deploy.NotFound means the commit has no such configuration
// file; one of kind deploy.Invalid names the file, mostly the line, and what
// must be changed in Git. Both are the same at each call, unless they are about
// another repository or the time that rendering takes. Any other comes from the
// tree, from a server that cannot be reached, or from ctx.
//
// Concurrent calls for the same source share the work; one that is cancelled
// spoils it for no other.
func (l *Loader) Load(ctx context.Context, at deploy.GitPath, commit string) (*Source, error) {
	key := l.key(at, commit)
	o, ok := l.cache.get(key)
	if !ok || o.capabilities != l.seen(ctx, at, o.chart) {
		var err error
		o, err = l.flights.do(ctx, key, func() (outcome, error) {
			o := l.load(ctx, at, commit)
			if o.fixed {
				l.cache.put(key, o, l.CacheBytes)
			}
			return o, o.err
		})
		if err != nil {
			return nil, err
		}
	}
	if o.err != nil {
		return nil, o.err
	}
	return o.source.clone(), nil
}

// LoadFrom is Load for files that are no commit of the repository; commit names them
// in the Source. Nothing is remembered, and nothing shared with other calls.
func (l *Loader) LoadFrom(ctx context.Context, files fs.FS, at deploy.GitPath, commit string) (*Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := l.loadFrom(ctx, files, at, commit)
	return o.source, o.err
}

// load is the way from a commit to a source.
func (l *Loader) load(ctx context.Context, at deploy.GitPath, commit string) outcome {
	files, err := l.tree(ctx, at, commit)
	if err != nil {
		return outcome{err: err}
	}
	return l.loadFrom(ctx, files, at, commit)
}

// loadFrom is the way from files to a source.
func (l *Loader) loadFrom(ctx context.Context, files fs.FS, at deploy.GitPath, commit string) (o outcome) {
	decrypted := l.Secrets.Decrypted(files)
	files = decrypted
	redactor := func() *secret.Redactor { return decrypted.Redactor(files) }
	defer func() { o.err = redactor().Error(o.err) }()
	defer guard(at, &o)
	cfg, err := readConfig(files, at.ConfigPath())
	if err != nil {
		return failed(err, true)
	}
	tree, err := l.Secrets.Tree(ctx, files, at.Dir, cfg.Encryption, cfg.Attachment)
	if err != nil {
		return failed(err, false)
	}
	files = tree
	r, err := l.renderInTime(ctx, files, at, cfg)
	if err == nil {
		err = check(r.objects, at)
	}
	if err != nil {
		o = failed(err, !r.remote && !errors.Is(err, kustomize.ErrSlow) && !errors.Is(err, helm.ErrSlow))
	} else {
		sortByOrder(r.objects)
		s := &Source{Commit: commit, Config: cfg, Objects: r.objects, Digest: digest(r.objects), Redactor: redactor(), Warnings: warnings(r, redactor())}
		o = outcome{source: s, size: r.bytes, fixed: true}
	}
	if r.capabilities != "" {
		o.chart, o.capabilities = cfg, r.capabilities
	}
	return o
}

// failed is the outcome of an error; fixed says that what is wrong with the
// commit is wrong whenever one looks.
func failed(err error, fixed bool) outcome {
	return outcome{err: err, size: int64(len(err.Error())), fixed: fixed && deploy.IsKind(err, deploy.Invalid)}
}

// guard makes a panic on what a commit holds the error of its application alone.
func guard(at deploy.GitPath, o *outcome) {
	if cause := recover(); cause != nil {
		*o = failed(deploy.Errorf(deploy.Invalid, "%s: internal error while rendering it: %v; please report it with the files", at.ConfigPath(), cause), true)
	}
}

// check holds objects against what one application may declare.
func check(objects []manifest.Object, at deploy.GitPath) error {
	if len(objects) > manifest.MaxObjects {
		return deploy.Errorf(deploy.Invalid, "%s: the application declares %d objects; expected at most %d", at.ConfigPath(), len(objects), manifest.MaxObjects)
	}
	return manifest.CheckUnique(objects)
}

func (l *Loader) tree(ctx context.Context, at deploy.GitPath, commit string) (fs.FS, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	fsys, err := l.Tree(at.RepoID, commit)
	if err != nil {
		return nil, fmt.Errorf("open repository %s at commit %s: %w", at.RepoID, deploy.ShortHash(commit), err)
	}
	return fsys, nil
}

func (s *Source) clone() *Source {
	c := *s
	c.Objects = manifest.Clone(s.Objects)
	return &c
}

// sortByOrder orders objects by their annotation pipecd.dev/order; absent or no
// integer, it counts as 0. Equal ones keep their order.
func sortByOrder(objects []manifest.Object) {
	slices.SortStableFunc(objects, func(a, b manifest.Object) int { return manifest.Order(a.Unstructured) - manifest.Order(b.Unstructured) })
}

// warnings are those of the rendering and about its objects, without secrets.
func warnings(r rendered, redactor *secret.Redactor) []string {
	out := r.warnings
	for _, o := range r.objects {
		if w := manifest.OrderWarning(o); w != "" {
			out = append(out, redactor.Text(w))
		}
	}
	return out
}

func digest(objects []manifest.Object) string {
	sum := sha256.New()
	for _, o := range objects {
		fmt.Fprintln(sum, manifest.Digest(o.Unstructured))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func (l *Loader) key(at deploy.GitPath, commit string) key {
	k := key{repoID: at.RepoID, commit: commit, config: path.Clean(at.ConfigPath()), secrets: l.Secrets.Fingerprint()}
	if l.Charts != nil {
		k.charts = l.Charts.Fingerprint()
	}
	return k
}
