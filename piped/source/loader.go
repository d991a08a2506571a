package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/piped/source/secret"
)

// Tree returns a repository's files at a commit. The files are immutable.
type Tree func(repoID, commit string) (fs.FS, error)

// Source is the configuration and the objects of an application at a commit.
type Source struct {
	Commit string
	// Config is shared between callers and must not be changed.
	Config *config.Application
	// Objects are owned by the caller. They are ordered by the annotation pipecd.dev/order,
	// then as rendered (plain manifests: by file and position), and have no duplicates.
	Objects []manifest.Object
	// Digest is the SHA-256 of the objects in their order, in hex.
	Digest string
	// Redactor redacts the secrets that were decrypted for the objects; nil without secrets.
	Redactor *secret.Redactor
	// Warnings report valid parts that are probably mistakes. Each is one line that begins
	// with a file name. The slice is shared between callers.
	Warnings []string
	// Tree is what LoadFrom was given; nil for a commit of the repository.
	Tree fs.FS
	// Shared are the changes of a pull request that its preview does not have, each with the reason. The
	// slice is shared between callers.
	Shared []string
	// ByHeader is that requests with the header of a preview get it. Hostnames are those of such requests;
	// nil: every host. The slice is shared between callers.
	ByHeader  bool
	Hostnames []string
	// OwnHost is that no other application may have the host of the preview.
	OwnHost bool
}

// Loader loads sources, with an LRU cache. It is safe for concurrent use. Set its fields before
// the first use and do not copy it afterwards.
type Loader struct {
	Tree Tree
	// Secrets decrypts secrets and attaches files. If it is nil or has no keys, applications
	// with encrypted secrets are an error.
	Secrets *secret.Renderer
	// Kinds are the supported kinds of application.
	Kinds config.Kinds
	// Renderers render applications, by the name of their kind.
	Renderers map[string]render.Renderer
	// Name returns the name of an application whose configuration has none. If nil, the name
	// is that of the directory.
	Name func(ctx context.Context, at deploy.GitPath) string
	// Previews are the limits of previews of pull requests; nil: there are none.
	Previews *config.Previews
	// Base returns the commit of the branch that a preview's commit merges a pull request into.
	Base func(repoID, commit string) (string, error)
	// RoutePreview returns the objects of a preview with mode route, given those of the branch and of the
	// merge. Base and RoutePreview are required for such previews.
	RoutePreview func(p RoutePreview, branch, merged []manifest.Object) (Routed, error)
	// Fork reports whether the pull request of a preview is of a fork. Rendering it fetches nothing.
	// Optional.
	Fork func(ctx context.Context, at deploy.GitPath) (bool, error)
	// CacheBytes is the approximate memory limit of the cache; 0 disables the cache.
	CacheBytes int64
	// Time limits one rendering, including all downloads; default 5 min.
	Time time.Duration

	cache   cache
	flights flights[key, outcome]
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
	return l.config(fsys, at)
}

// config reads the configuration of an application, or of its preview.
func (l *Loader) config(files fs.FS, at deploy.GitPath) (*config.Application, error) {
	cfg, err := readConfig(files, at.ConfigPath(), l.Kinds)
	if err == nil && at.PullRequest != 0 {
		cfg, err = l.previewConfig(cfg, at)
	}
	return cfg, err
}

// Load returns the application's configuration and objects at a commit. An error of kind
// deploy.NotFound means that the commit has no such configuration file. An error of kind
// deploy.Invalid names the file, usually the line, and what to change in Git. Both are
// permanent, unless they concern another repository or the time of the rendering. Any other
// error comes from the tree, from an unavailable server, or from ctx.
//
// Concurrent calls for the same source share the work. Canceling one does not affect the
// others.
func (l *Loader) Load(ctx context.Context, at deploy.GitPath, commit string) (*Source, error) {
	key := l.key(at, commit)
	o, ok := l.cache.get(key)
	if !ok || o.context != l.contextOf(ctx, at, o.config) {
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

// LoadFrom is Load for files that are not a commit of the repository. commit becomes
// Source.Commit. LoadFrom uses no cache and shares no work with other calls.
func (l *Loader) LoadFrom(ctx context.Context, files fs.FS, at deploy.GitPath, commit string) (*Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := l.loadFrom(ctx, files, at, commit)
	if o.source != nil {
		o.source.Tree = files
	}
	return o.source, o.err
}

// load loads a commit's source without the cache.
func (l *Loader) load(ctx context.Context, at deploy.GitPath, commit string) outcome {
	files, err := l.tree(ctx, at, commit)
	if err != nil {
		return outcome{err: err}
	}
	return l.loadFrom(ctx, files, at, commit)
}

// loadFrom decrypts, renders and validates the source in files.
func (l *Loader) loadFrom(ctx context.Context, files fs.FS, at deploy.GitPath, commit string) (o outcome) {
	secrets := l.Secrets
	if at.PullRequest != 0 {
		secrets = nil // nothing of a pull request is decrypted: it could reveal the secret
	}
	decrypted := secrets.Decrypted(files)
	files = decrypted
	redactor := func() *secret.Redactor { return decrypted.Redactor(files) }
	defer func() { o.err = redactor().Error(o.err) }()
	defer guard(at, &o)
	cfg, err := l.config(files, at)
	if err != nil {
		return failed(err, true)
	}
	tree, err := secrets.Tree(ctx, files, at.Dir, cfg.Encryption, cfg.Attachment)
	if err != nil {
		return failed(err, false)
	}
	files = tree
	r, err := l.renderInTime(ctx, files, at, cfg)
	if err == nil {
		err = check(r.Objects, at)
	}
	var routed Routed
	if err == nil && at.PullRequest != 0 {
		if routed, err = l.previewed(ctx, at, commit, cfg, r.Objects); err == nil {
			r.Objects = routed.Objects
		}
	}
	if err != nil {
		o = failed(err, !r.Varies)
	} else {
		sortByOrder(r.Objects)
		s := &Source{Commit: commit, Config: cfg, Objects: r.Objects, Digest: digest(r.Objects), Redactor: redactor(), Warnings: warnings(r, redactor()),
			Shared: routed.Shared, ByHeader: routed.ByHeader, Hostnames: routed.Hostnames, OwnHost: routed.OwnHost}
		o = outcome{source: s, size: r.Bytes, fixed: true}
	}
	if r.Context != "" {
		o.config, o.context = cfg, r.Context
	}
	return o
}

// defaultTime is the default of Loader.Time. Each download has its own limit, but the times of
// several downloads add up.
const defaultTime = 5 * time.Minute

// renderInTime renders an application within Loader.Time.
func (l *Loader) renderInTime(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) (render.Result, error) {
	renderer := l.Renderers[cfg.Kind]
	if renderer == nil {
		return render.Result{}, deploy.Errorf(deploy.Invalid, "%s: applications of kind %s are not rendered here", at.ConfigPath(), cfg.Kind)
	}
	limit := cmp.Or(l.Time, defaultTime)
	limited, stop := context.WithTimeoutCause(ctx, limit, deploy.Errorf(deploy.Unavailable,
		"%s: rendering it takes longer than %s, with the charts, bases and files that it fetches; try again, or split the application", at.ConfigPath(), limit))
	defer stop()
	req := l.request(ctx, files, at, cfg)
	if at.PullRequest != 0 && l.Fork != nil {
		var err error
		if req.Offline, err = l.Fork(ctx, at); err != nil {
			return render.Result{}, err
		}
	}
	r, err := renderer.Render(limited, req)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = context.Cause(limited)
	}
	return r, err
}

func (l *Loader) request(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) render.Request {
	return render.Request{Files: files, At: at, Config: cfg, Name: func() string {
		if cfg.Name == "" && l.Name != nil {
			return l.Name(ctx, at)
		}
		return deploy.NameOf(cfg.Name, deploy.Registration{}, at)
	}}
}

// contextOf returns the current context of the renderer for an application; "" if cfg is nil.
func (l *Loader) contextOf(ctx context.Context, at deploy.GitPath, cfg *config.Application) string {
	if cfg == nil {
		return ""
	}
	return l.Renderers[cfg.Kind].Context(ctx, l.request(ctx, nil, at, cfg))
}

// failed returns the outcome of an error. fixed means that an error of kind Invalid is
// permanent.
func failed(err error, fixed bool) outcome {
	return outcome{err: err, size: int64(len(err.Error())), fixed: fixed && deploy.IsKind(err, deploy.Invalid)}
}

// guard converts a panic on the content of a commit into an error of its application.
func guard(at deploy.GitPath, o *outcome) {
	if cause := recover(); cause != nil {
		*o = failed(deploy.Errorf(deploy.Invalid, "%s: internal error while rendering it: %v; please report it with the files", at.ConfigPath(), cause), true)
	}
}

// check returns an error if there are too many objects or duplicates.
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

// sortByOrder sorts objects by their annotation pipecd.dev/order, which is 0 if it is missing
// or not an integer. The sort is stable.
func sortByOrder(objects []manifest.Object) {
	slices.SortStableFunc(objects, func(a, b manifest.Object) int { return manifest.Order(a.Unstructured) - manifest.Order(b.Unstructured) })
}

// warnings returns the warnings of the rendering and of its objects' order annotations. It
// redacts the latter.
func warnings(r render.Result, redactor *secret.Redactor) []string {
	out := r.Warnings
	for _, o := range r.Objects {
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
	k := key{repoID: at.RepoID, commit: commit, config: path.Clean(at.ConfigPath()), pullRequest: at.PullRequest, secrets: l.Secrets.Fingerprint()}
	for _, kind := range slices.Sorted(maps.Keys(l.Renderers)) {
		k.renderers += kind + " " + l.Renderers[kind].Fingerprint() + "\n"
	}
	return k
}

// Files are the files of a repository at a commit, with the decrypted secrets and the attachments
// of an application, for programs that need a real directory.
type Files struct {
	fs.FS
	Config   *config.Application // shared; it must not be changed
	redactor func() *secret.Redactor
}

// Redactor redacts the secrets that were decrypted so far.
func (f Files) Redactor() *secret.Redactor { return f.redactor() }

// Files returns the files of a repository at a commit for an application. The errors are those
// of Load.
func (l *Loader) Files(ctx context.Context, at deploy.GitPath, commit string) (Files, error) {
	files, err := l.tree(ctx, at, commit)
	if err != nil {
		return Files{}, err
	}
	return l.FilesFrom(ctx, files, at)
}

// FilesFrom is Files for files that are not a commit of the repository.
func (l *Loader) FilesFrom(ctx context.Context, files fs.FS, at deploy.GitPath) (Files, error) {
	secrets := l.Secrets
	if at.PullRequest != 0 {
		secrets = nil // as in loadFrom
	}
	decrypted := secrets.Decrypted(files)
	out := Files{FS: decrypted, redactor: func() *secret.Redactor { return decrypted.Redactor(decrypted) }}
	var err error
	if out.Config, err = l.config(decrypted, at); err != nil {
		return Files{}, out.Redactor().Error(err)
	}
	tree, err := secrets.Tree(ctx, decrypted, at.Dir, out.Config.Encryption, out.Config.Attachment)
	if err != nil {
		return Files{}, out.Redactor().Error(err)
	}
	out.FS, out.redactor = tree, func() *secret.Redactor { return decrypted.Redactor(tree) }
	return out, nil
}
