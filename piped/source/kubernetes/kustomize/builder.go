package kustomize

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
)

// Remotes gives trees of other repositories. Ref is a branch, a tag, a commit or
// "" for the default branch. The error's kind is Unavailable when trying later
// may help, and Invalid when the reference must be changed.
type Remotes interface {
	At(ctx context.Context, remote, ref string) (tree fs.FS, commit string, err error)
	// File gives what stands at an http or https address, at most limit bytes. The
	// kinds of errors are those of At.
	File(ctx context.Context, address string, limit int64) ([]byte, error)
}

// Charts renders the charts that kustomizations name. The kinds of errors are those
// of Remotes.
type Charts interface {
	Render(ctx context.Context, req helm.Request) (helm.Result, error)
}

// Limits bound one build.
type Limits struct {
	Kustomizations int           // that are read
	Files          int           // that Kustomize reads, each time counted
	Bytes          int64         // of these files
	Objects        int           // in these files, and of the result
	Output         int64         // bytes of the result as YAML
	Time           time.Duration // of the second step; the first one fetches, and ends with the caller's context
	Fetched        int           // single remote files
	Charts         int           // that are rendered
}

// DefaultLimits are far beyond what an application consists of.
func DefaultLimits() Limits {
	return Limits{
		Kustomizations: 1000, Files: 10_000, Bytes: 32 << 20, Objects: manifest.MaxObjects, Output: 32 << 20, Time: time.Minute,
		Fetched: 100, Charts: 50,
	}
}

// Builder builds kustomizations, one at a time: Kustomize keeps the OpenAPI
// schema of a build in variables of its packages. A process has one Builder. It
// is safe for concurrent use.
type Builder struct {
	remotes Remotes
	limits  Limits
	slot    chan struct{} // holds a token while Kustomize builds
}

// New returns a Builder. Without remotes (nil) every remote base is refused.
func New(remotes Remotes, limits Limits) *Builder {
	return &Builder{remotes: remotes, limits: limits, slot: make(chan struct{}, 1)}
}

// Request names what to build: the kustomization in the directory Dir of Tree,
// slash-separated.
type Request struct {
	Tree    fs.FS
	Dir     string
	Options kubernetes.KustomizeBuild
	// Charts renders charts, where Options allow them; nil refuses them.
	Charts Charts
	// Capabilities are what charts see of the cluster where neither they nor Options
	// say so.
	Capabilities helm.Capabilities
}

// Result is what was built. The origin of the objects is the kustomization of
// the request.
type Result struct {
	Objects []manifest.Object
	Bytes   int64 // of the objects as YAML
	// Remote reports that the result, or the error next to it, depends on other
	// repositories, too.
	Remote bool
	// Warnings are about fields of the application's own kustomizations that work and
	// are deprecated, each a line that begins with the file.
	Warnings []string
}

// ErrSlow is in the chain of the error of a build that takes too long: the same
// build may be fast enough at another time.
var ErrSlow = errors.New("the build takes too long")

// Build returns what a kustomization declares. The kind of an error is Invalid
// when the commit must be changed, which includes what goes beyond the limits;
// Unavailable when a remote base cannot be read now or an earlier build goes on
// beyond its time; else it is that of ctx or the tree.
func (b *Builder) Build(ctx context.Context, req Request) (Result, error) {
	p := newPlan(ctx, b.remotes, b.limits, req)
	file, err := p.directory(p.mounts[0], path.Clean(req.Dir), "")
	if err != nil {
		return Result{Remote: p.remote}, err
	}
	result, err := b.build(ctx, p.files(), p.mounts[0].named(file), req)
	result.Remote, result.Warnings = p.remote, p.warnings
	return result, err
}

// outcome is how the second step ended.
type outcome struct {
	result Result
	err    error
}

// build is the second step. Kustomize cannot be cancelled: a build whose caller no longer
// waits keeps its slot until it ends, so that no other runs at the same time. It gets no
// more files, which ends it soon.
func (b *Builder) build(ctx context.Context, files *files, file string, req Request) (Result, error) {
	busy := time.NewTimer(b.limits.Time)
	defer busy.Stop()
	select {
	case b.slot <- struct{}{}:
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	case <-busy.C:
		return Result{}, deploy.Errorf(deploy.Unavailable, "%s: other kustomizations are still being built after %s; try again later", file, b.limits.Time)
	}
	ctx, stop := context.WithTimeoutCause(ctx, b.limits.Time, ErrSlow)
	defer stop()
	files.ctx = ctx
	done := make(chan outcome, 1)
	go func() {
		defer func() { <-b.slot }()
		done <- b.guarded(files, file, req)
	}()
	var out outcome
	select {
	case out = <-done:
	case <-ctx.Done():
		out.err = context.Cause(ctx)
	}
	if errors.Is(out.err, ErrSlow) {
		return Result{}, deploy.Errorf(deploy.Invalid, "%s: %w: more than %s; make it smaller, or split the application", file, ErrSlow, b.limits.Time)
	}
	return out.result, out.err
}

// guarded turns a panic on what a commit holds into the error of that build.
func (b *Builder) guarded(files *files, file string, req Request) (out outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			out = outcome{err: deploy.Errorf(deploy.Invalid, "%s: Kustomize cannot build it: internal error: %s", file, firstLine(fmt.Sprint(cause)))}
		}
	}()
	out.result, out.err = b.run(files, file, req)
	return out
}

func (b *Builder) run(files *files, file string, req Request) (Result, error) {
	if files.schema { // it would stay for the builds after this one
		defer openapi.ResetOpenAPI()
	}
	options := krusty.MakeDefaultOptions() // plugins disabled
	options.Reorder = krusty.ReorderOptionUnspecified
	if req.Options.KeepOrder {
		options.Reorder = krusty.ReorderOptionNone
	}
	if req.Options.AnyFile {
		options.LoadRestrictions = types.LoadRestrictionsNone
	}
	built, err := krusty.MakeKustomizer(options).Run(files, virtual(req.Dir))
	switch {
	case files.ctx.Err() != nil:
		return Result{}, context.Cause(files.ctx)
	case files.failure != nil:
		return Result{}, files.failure
	case err != nil:
		return Result{}, deploy.Errorf(deploy.Invalid, "%s: Kustomize cannot build it: %s", file, files.explain(err))
	}
	if err := files.annotate(built, req.Dir); err != nil {
		return Result{}, deploy.Errorf(deploy.Invalid, "%s: %w", file, err)
	}
	return b.objects(built, file)
}

// objects reads what was built as kubectl would read the output of kustomize
// build.
func (b *Builder) objects(built resmap.ResMap, file string) (Result, error) {
	if built.Size() > b.limits.Objects {
		return Result{}, deploy.Errorf(deploy.Invalid, "%s: it declares %d objects; expected at most %d", file, built.Size(), b.limits.Objects)
	}
	var out Result
	for _, resource := range built.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			return Result{}, deploy.Errorf(deploy.Invalid, "%s: %s: %w", file, resource.CurId(), err)
		}
		if out.Bytes += int64(len(text)); out.Bytes > b.limits.Output {
			return Result{}, deploy.Errorf(deploy.Invalid, "%s: its objects have more than %d bytes; split the application", file, b.limits.Output)
		}
		objects, err := manifest.Parse(file+" builds "+resource.CurId().String(), text)
		if err != nil {
			return Result{}, err
		}
		for _, o := range objects {
			o.Origin = manifest.Origin{File: file}
			out.Objects = append(out.Objects, o)
		}
	}
	return out, nil
}

// firstLine returns the beginning of a text: what follows may quote files, which
// may hold secrets.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	const most = 600
	if len(line) > most {
		line = line[:most] + "..."
	}
	return line
}
