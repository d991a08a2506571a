package helm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Request describes one rendering.
type Request struct {
	Tree fs.FS  // the files of the application's repository at the commit
	Dir  string // the application's directory in Tree, slash-separated

	Chart   kubernetes.HelmChart
	Options kubernetes.HelmOptions

	// ReleaseName is used if the options set none.
	ReleaseName string
	// Namespace is .Release.Namespace; "" is "default".
	Namespace string
	// Capabilities are used unless the options override them.
	Capabilities Capabilities

	// Values, unless nil, replaces all values of the options. It gets the chart's
	// values.yaml, which may be empty, and returns the contents of values files; later ones
	// take precedence.
	Values func(own []byte) ([][]byte, error)
	// Offline refuses everything that would be fetched.
	Offline bool

	// Template, unless nil, renders the output of helm template.
	Template *Template
}

// Template holds the options of helm template. Hooks are rendered as normal objects, once
// each.
type Template struct {
	CRDs             bool // include the objects in crds/
	NoHooks, NoTests bool // exclude hooks, or tests
	// Name is a template for the release name. It takes precedence over all other names.
	Name string
}

// Result is the result of a rendering.
type Result struct {
	// Objects are owned by the caller. The objects in crds/ come first, then the other
	// objects in Helm's order of installation, by kind and name, then hooks by phase and
	// weight. Hooks have Object.Hook set and occur once per phase. Origin is the path of the
	// template, beginning with the chart's name as in Helm, without a line.
	Objects []manifest.Object
	// Bytes is the size of the rendered text.
	Bytes int64
	// Version is the version of the chart.
	Version string
	// Remote reports that the result or the returned error also depends on a server or
	// another repository, not only on the request.
	Remote bool
}

// Trees reads other Git repositories.
type Trees interface {
	// At returns the files of a remote repository at a branch, tag or commit, and the hash
	// of the commit.
	At(ctx context.Context, remote, ref string) (files fs.FS, commit string, err error)
}

// Config is the configuration of a Renderer. With its zero value, a Renderer renders charts in
// the application's repository and charts that need no credentials.
type Config struct {
	Repositories []config.ChartRepository // those of type GIT are ignored; see Git
	Registries   []config.ChartRegistry
	// AllowedHosts may have private addresses even if only charts refer to them.
	AllowedHosts []string
	// Git reads charts in other Git repositories; nil refuses them.
	Git Trees
	// Dir is the cache directory of downloaded charts; "" disables the cache.
	Dir string
	// Limits of one rendering; zero fields have the defaults.
	Limits Limits
	// Transport sends all requests to servers; nil is the network, with retries of
	// transient failures.
	Transport http.RoundTripper
}

// Limits bound the resources of a rendering, so that no commit and no server can exhaust the
// agent's memory, disk or time.
type Limits struct {
	// Time limits the execution of the templates; default 30 s. Download limits the
	// download of one file with its retries; default 2 min.
	Time, Download time.Duration
	// Output is the maximum size of the rendered objects in bytes; default 16 MiB. All
	// intermediate results of templates may have 16 times that size.
	Output int64
	// Files and Bytes limit the unpacked files of a chart with its dependencies; default
	// 10,000 and 64 MiB.
	Files int
	Bytes int64
	// Archive is the maximum size of a packed chart in bytes, default 16 MiB; Index that of
	// a chart repository's index, default 32 MiB.
	Archive, Index int64
	// Cache is the maximum size of Config.Dir in bytes; default 256 MiB.
	Cache int64
	// Concurrent is the maximum number of concurrent renderings; default 4. Others wait.
	Concurrent int
}

func (l Limits) withDefaults() Limits {
	or := func(v *int64, n int64) {
		if *v == 0 {
			*v = n
		}
	}
	or((*int64)(&l.Time), int64(30*time.Second))
	or((*int64)(&l.Download), int64(2*time.Minute))
	or(&l.Output, 16<<20)
	or(&l.Bytes, 64<<20)
	or(&l.Archive, 16<<20)
	or(&l.Index, 32<<20)
	or(&l.Cache, 256<<20)
	if l.Files == 0 {
		l.Files = 10_000
	}
	if l.Concurrent == 0 {
		l.Concurrent = 4
	}
	return l
}

// Renderer renders charts. It is safe for concurrent use.
type Renderer struct {
	git     Trees
	limits  Limits
	network http.RoundTripper // Config.Transport
	slots   chan struct{}     // a semaphore for renderings
	remotes atomic.Pointer[remotes]
	cache   *cache
}

// New returns a Renderer. It sends no request.
func New(cfg Config) (*Renderer, error) {
	limits := cfg.Limits.withDefaults()
	store, err := newCache(cfg.Dir, limits.Cache)
	if err != nil {
		return nil, err
	}
	r := &Renderer{git: cfg.Git, limits: limits, network: cfg.Transport, slots: make(chan struct{}, limits.Concurrent), cache: store}
	r.Use(cfg.Repositories, cfg.Registries, cfg.AllowedHosts)
	return r, nil
}

// Use replaces the chart repositories, registries and allowed hosts for later renderings.
// Running renderings are not affected.
func (r *Renderer) Use(repositories []config.ChartRepository, registries []config.ChartRegistry, allowedHosts []string) {
	r.remotes.Store(newRemotes(repositories, registries, newClient(r.limits, r.network, namedHosts(repositories, registries, allowedHosts))))
}

// Fingerprint returns a hash of the configuration that affects the result of a request: the
// names and addresses of chart repositories, but not credentials.
func (r *Renderer) Fingerprint() string {
	sum := sha256.New()
	m := r.remotes.Load()
	for _, repo := range m.repositories {
		fmt.Fprintf(sum, "%q %q\n", repo.Name, repo.Address)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Render renders a chart. The result is deterministic, except for random functions, version
// constraints and branches.
//
// An error of kind deploy.Invalid names the file, usually the line, and what to change. An
// error of kind deploy.Unavailable names the unavailable server. Errors contain no
// credentials.
func (r *Renderer) Render(ctx context.Context, req Request) (_ Result, err error) {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	defer func() { <-r.slots }()
	defer func() {
		if cause := recover(); cause != nil {
			err = deploy.Errorf(deploy.Invalid, "render the Helm chart of %s: internal error: %v", req.Dir, cause)
		}
	}()
	return (&rendering{Renderer: r, Request: req, remotes: r.remotes.Load(), left: budget{files: r.limits.Files, bytes: r.limits.Bytes}}).run(ctx)
}
