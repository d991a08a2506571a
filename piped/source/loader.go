package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
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
}

// Loader loads sources and remembers the latest. It is safe for concurrent use;
// a copy must not be made after the first use.
type Loader struct {
	Tree Tree
	// Secrets fills in the application's encryption and attachments. Without keys,
	// or nil, an application with encrypted secrets is refused.
	Secrets *secret.Renderer
	// CacheBytes bounds the memory of remembered sources, roughly; 0 remembers
	// none. It must not be changed after the first use.
	CacheBytes int64

	cache cache
}

// Config returns the application's configuration at a commit. It is shared and
// must not be changed. See Load for the errors.
func (l *Loader) Config(ctx context.Context, at deploy.GitPath, commit string) (*config.Application, error) {
	if s, ok := l.cache.get(l.key(at, commit)); ok {
		return s.Config, nil
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
// must be changed in Git. Both are the same at each call. Any other comes from
// the tree or from ctx.
func (l *Loader) Load(ctx context.Context, at deploy.GitPath, commit string) (*Source, error) {
	key := l.key(at, commit)
	if s, ok := l.cache.get(key); ok {
		return s.clone(), nil
	}
	fsys, err := l.tree(ctx, at, commit)
	if err != nil {
		return nil, err
	}
	cfg, err := readConfig(fsys, at.ConfigPath())
	if err != nil {
		return nil, err
	}
	if fsys, err = l.Secrets.Tree(ctx, fsys, at.Dir, cfg.Encryption, cfg.Attachment); err != nil {
		return nil, err
	}
	objects, size, err := plain(ctx, fsys, at, cfg.Kubernetes.Input.Manifests)
	if err != nil {
		return nil, err
	}
	if err := manifest.CheckUnique(objects); err != nil {
		return nil, err
	}
	sortByOrder(objects)
	s := &Source{Commit: commit, Config: cfg, Objects: objects, Digest: digest(objects)}
	l.cache.put(key, s.clone(), size, l.CacheBytes)
	return s, nil
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
	slices.SortStableFunc(objects, func(a, b manifest.Object) int { return order(a) - order(b) })
}

func order(o manifest.Object) int {
	n, err := strconv.ParseInt(o.GetAnnotations()[manifest.AnnotationOrder], 10, 32)
	if err != nil {
		return 0
	}
	return int(n)
}

func digest(objects []manifest.Object) string {
	sum := sha256.New()
	for _, o := range objects {
		fmt.Fprintln(sum, manifest.Digest(o.Unstructured))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// key identifies a source for the cache.
type key struct{ repoID, commit, config, secrets string }

func (l *Loader) key(at deploy.GitPath, commit string) key {
	return key{repoID: at.RepoID, commit: commit, config: path.Clean(at.ConfigPath()), secrets: l.Secrets.Fingerprint()}
}
