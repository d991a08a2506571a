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

// Request is one rendering.
type Request struct {
	Tree fs.FS  // the repository of the application, at the commit
	Dir  string // of the application in Tree, slash-separated

	Chart   kubernetes.HelmChart
	Options kubernetes.HelmOptions

	// ReleaseName is used where the options name none.
	ReleaseName string
	// Namespace is .Release.Namespace; "" is "default".
	Namespace string
	// Capabilities are used where the options set none.
	Capabilities Capabilities

	// Values, unless nil, returns files of values in place of those of the options,
	// the one that counts last. It gets the values.yaml of the chart, which may be
	// empty.
	Values func(own []byte) ([][]byte, error)
	// Template, unless nil, asks for what helm template prints.
	Template *Template
}

// Template is how helm template prints a chart: hooks are objects as any other,
// once each.
type Template struct {
	CRDs             bool // those of crds/, too
	NoHooks, NoTests bool
	// Name is a template of the release's name, in place of Request.ReleaseName.
	Name string
}

// Result is what a chart rendered to.
type Result struct {
	// Objects belong to the caller: those of crds/ first, then the rest in Helm's
	// order of installation, by kind and name, then hooks, by phase and weight.
	// Hooks have Object.Hook set, and stand once for each phase. Origin is the template, named as Helm does: from
	// the chart's directory on. It has no line.
	Objects []manifest.Object
	// Bytes is the size of the rendered text.
	Bytes int64
	// Version is that of the chart, which a constraint may have chosen.
	Version string
	// Remote reports that the result, or the error next to it, depends on more than
	// the request: on a server or another repository.
	Remote bool
}

// Trees reads other Git repositories.
type Trees interface {
	// At returns the files of a remote repository at a branch, tag or commit, and
	// that commit.
	At(ctx context.Context, remote, ref string) (files fs.FS, commit string, err error)
}

// Config is what a Renderer needs. With its zero value it renders charts of the
// application's repository and those that need no credentials.
type Config struct {
	Repositories []config.ChartRepository // those of type GIT are the business of Git
	Registries   []config.ChartRegistry
	// AllowedHosts may have private addresses although only charts name them.
	AllowedHosts []string
	// Git reads charts of other Git repositories; nil refuses them.
	Git Trees
	// Dir keeps downloaded charts; "" keeps none.
	Dir string
	// Limits of one rendering; zero fields are the defaults.
	Limits Limits
	// Transport carries every request to a server; nil is the network, with
	// attempts anew after failures that pass.
	Transport http.RoundTripper
}

// Limits bound what one chart may cost, so that no commit and no server can take
// the agent's memory, disk or time.
type Limits struct {
	// Time is for the execution of the templates; default 30 s. Downloads have
	// their own, Download, default 2 min for one file with its retries.
	Time, Download time.Duration
	// Output is how many bytes the objects may have as text, default 16 MiB; the
	// templates may write 16 times that on the way.
	Output int64
	// Files and Bytes are those of a chart, unpacked, with its dependencies;
	// default 10,000 and 64 MiB.
	Files int
	Bytes int64
	// Archive is the size of one download of a chart or of values, default 16 MiB;
	// Index that of a repository's index, default 32 MiB.
	Archive, Index int64
	// Cache is how many bytes Config.Dir keeps; default 256 MiB.
	Cache int64
	// Concurrent is how many charts are rendered at once, others wait; default 4.
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
	network http.RoundTripper // nil is the network itself
	slots   chan struct{}     // holds a token for each rendering under way
	remotes atomic.Pointer[remotes]
	cache   *cache
}

// New returns a Renderer. It contacts nothing.
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

// Use makes later renderings use other chart repositories, registries and allowed
// hosts. Those under way keep theirs.
func (r *Renderer) Use(repositories []config.ChartRepository, registries []config.ChartRegistry, allowedHosts []string) {
	r.remotes.Store(newRemotes(repositories, registries, newClient(r.limits, r.network, namedHosts(repositories, registries, allowedHosts))))
}

// Fingerprint identifies all of the configuration that decides what a request
// renders to: which repositories there are and where. Credentials do not.
func (r *Renderer) Fingerprint() string {
	sum := sha256.New()
	m := r.remotes.Load()
	for _, repo := range m.repositories {
		fmt.Fprintf(sum, "%q %q\n", repo.Name, repo.Address)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Render renders a chart. The same request gives the same objects, but for
// functions that are random and for what a version constraint or a branch names.
//
// An error of kind deploy.Invalid names the file, mostly the line, and what must
// be changed; one of kind deploy.Unavailable says what could not be reached.
// Neither holds a credential.
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
