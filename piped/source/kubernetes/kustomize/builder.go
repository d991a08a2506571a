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

// Remotes reads other repositories and single remote files. An error of kind Unavailable may
// be transient; one of kind Invalid requires a change of the reference.
type Remotes interface {
	// At returns the files of a repository at ref, and the hash of the commit. ref is a
	// branch, a tag, a commit, or "" for the default branch.
	At(ctx context.Context, remote, ref string) (tree fs.FS, commit string, err error)
	// File downloads a file of at most limit bytes from an http or https address.
	File(ctx context.Context, address string, limit int64) ([]byte, error)
}

// Charts renders the charts in kustomizations. The kinds of errors are those of Remotes.
type Charts interface {
	Render(ctx context.Context, req helm.Request) (helm.Result, error)
}

// Limits bound one build.
type Limits struct {
	Kustomizations int           // kustomizations
	Files          int           // reads of files by Kustomize
	Bytes          int64         // bytes of these reads
	Objects        int           // objects in these files, and objects of the result
	Output         int64         // bytes of the result as YAML
	Time           time.Duration // of the second step; only the caller's context limits the first
	Fetched        int           // single remote files
	Charts         int           // charts
}

// DefaultLimits returns limits that normal applications do not reach.
func DefaultLimits() Limits {
	return Limits{
		Kustomizations: 1000, Files: 10_000, Bytes: 32 << 20, Objects: manifest.MaxObjects, Output: 32 << 20, Time: time.Minute,
		Fetched: 100, Charts: 50,
	}
}

// Builder builds kustomizations, one at a time, because Kustomize has the OpenAPI schema of a
// build in global variables. A process must have only one Builder. It is safe for concurrent
// use.
type Builder struct {
	remotes Remotes
	limits  Limits
	slot    chan struct{} // a lock that is held while Kustomize builds
}

// New returns a Builder. If remotes is nil, remote bases are refused.
func New(remotes Remotes, limits Limits) *Builder {
	return &Builder{remotes: remotes, limits: limits, slot: make(chan struct{}, 1)}
}

// Request describes one build: of the kustomization in directory Dir of Tree.
type Request struct {
	Tree    fs.FS
	Dir     string // slash-separated
	Options kubernetes.KustomizeBuild
	// Charts renders charts if Options allow them; nil refuses them.
	Charts Charts
	// Capabilities are the defaults for charts. Options and the charts' entries in the
	// kustomization override them.
	Capabilities helm.Capabilities
	// Offline refuses everything that would be fetched.
	Offline bool
}

// Result is the result of a build. The origin of the objects is the kustomization of the
// request.
type Result struct {
	Objects []manifest.Object
	Bytes   int64 // of the objects as YAML
	// Remote reports that the result or the returned error also depends on other
	// repositories or servers.
	Remote bool
	// Warnings report deprecated fields in the application's own kustomizations. Each is one
	// line that begins with the file.
	Warnings []string
}

// ErrSlow is wrapped by the error of a build that exceeded its time limit. A later build of the
// same kustomization may succeed.
var ErrSlow = errors.New("the build takes too long")

// Build builds a kustomization. An error of kind Invalid requires a change of the commit, also
// if a limit is exceeded. An error is of kind Unavailable if a remote base is unavailable or
// earlier builds did not end in time. Other errors are those of ctx or the tree.
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

// outcome is the outcome of the second step.
type outcome struct {
	result Result
	err    error
}

// build executes the second step. Kustomize cannot be canceled, so a build holds its slot
// until it ends, even if ctx ends first. Reading files then fails, which ends the build soon.
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

// guarded calls run and converts a panic into an error.
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
	if files.schema { // the schema would affect later builds
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

// objects parses the built resources as kubectl parses the output of kustomize build.
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

// firstLine returns at most 600 bytes of the first line of a text. Further lines may quote
// files, which may contain secrets.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	const most = 600
	if len(line) > most {
		line = line[:most] + "..."
	}
	return line
}
