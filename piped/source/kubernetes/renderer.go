// Package kubernetes renders Kubernetes applications: it returns the objects of an
// application's manifests, chart or kustomization. Package helm renders charts, and package
// kustomize builds kustomizations.
//
// The package needs no cluster. It does not add namespaces that the manifests omit.
package kubernetes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/source/kubernetes/kustomize"
	"github.com/c785c783/piped/piped/source/render"
)

// Charts renders Helm charts. *helm.Renderer implements it.
type Charts interface {
	Render(ctx context.Context, req helm.Request) (helm.Result, error)
	// Fingerprint identifies the settings. While it stays the same, the same request has the
	// same result, except for responses of servers.
	Fingerprint() string
}

// Config is what a Renderer needs.
type Config struct {
	Charts Charts // nil refuses charts
	// Capabilities returns the capabilities of an application's cluster for charts. The
	// application's configuration may override them. If nil, charts get Helm's defaults.
	Capabilities func(ctx context.Context, at deploy.GitPath, app *config.Application) helm.Capabilities
	// Remotes reads remote bases and files of kustomizations; nil refuses them.
	Remotes kustomize.Remotes
}

// Renderer implements render.Renderer.
type Renderer struct {
	Config
	builder func() *kustomize.Builder
}

// New returns a renderer.
func New(c Config) *Renderer {
	r := &Renderer{Config: c}
	r.builder = sync.OnceValue(func() *kustomize.Builder { return kustomize.New(r.Remotes, kustomize.DefaultLimits()) })
	return r
}

// Fingerprint implements render.Renderer.
func (r *Renderer) Fingerprint() string {
	if r.Charts == nil {
		return ""
	}
	return r.Charts.Fingerprint()
}

// Context implements render.Renderer. Charts depend on the application's name and the
// capabilities of its cluster.
func (r *Renderer) Context(ctx context.Context, req render.Request) string {
	return fingerprint(req.Name(), r.capabilities(ctx, req))
}

// Render implements render.Renderer. As PipeCD does, it uses Helm if a chart is configured,
// Kustomize if the directory has a kustomization and no manifests are configured, and plain
// manifests otherwise.
func (r *Renderer) Render(ctx context.Context, req render.Request) (out render.Result, err error) {
	in := kubernetes.SpecOf(req.Config.Platform).Input
	switch {
	case in.HelmChart != nil:
		out, err = r.chart(ctx, req, in)
	case len(in.Manifests) == 0 && hasKustomization(req.Files, req.At.Dir):
		out, err = r.kustomize(ctx, req, in)
	default:
		out.Objects, out.Bytes, err = plain(ctx, req.Files, req.At, in.Manifests)
	}
	out.Varies = out.Varies || errors.Is(err, kustomize.ErrSlow) || errors.Is(err, helm.ErrSlow)
	return out, err
}

// chart renders the application's chart.
func (r *Renderer) chart(ctx context.Context, req render.Request, in kubernetes.Input) (render.Result, error) {
	at := req.At
	if r.Charts == nil {
		return render.Result{Context: r.Context(ctx, req)}, deploy.Errorf(deploy.Invalid, "%s: input.helmChart: charts are not rendered here", at.ConfigPath())
	}
	chart := helm.Request{
		Tree: req.Files, Dir: at.Dir, Chart: *in.HelmChart, ReleaseName: req.Name(), Namespace: in.Namespace, Capabilities: r.capabilities(ctx, req), Offline: req.Offline,
	}
	if in.HelmOptions != nil {
		chart.Options = *in.HelmOptions
	}
	out, err := r.Charts.Render(ctx, chart)
	if err != nil {
		err = fmt.Errorf("%s: %w", at.ConfigPath(), err)
	}
	if err == nil && len(out.Objects) == 0 {
		err = deploy.Errorf(deploy.Invalid, "%s: the chart renders no objects with these values", at.ConfigPath())
	}
	return render.Result{Objects: out.Objects, Bytes: out.Bytes, Varies: out.Remote, Context: fingerprint(chart.ReleaseName, chart.Capabilities)}, err
}

// capabilities returns the capabilities of the application's cluster; zero if Config has none.
func (r *Renderer) capabilities(ctx context.Context, req render.Request) helm.Capabilities {
	if r.Capabilities == nil {
		return helm.Capabilities{}
	}
	return r.Capabilities(ctx, req.At, req.Config)
}

func fingerprint(name string, c helm.Capabilities) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q\n%s\n%q", name, c.KubeVersion, c.APIVersions))
	return hex.EncodeToString(sum[:])
}

func (r *Renderer) kustomize(ctx context.Context, req render.Request, in kubernetes.Input) (render.Result, error) {
	build := kustomize.Request{Tree: req.Files, Dir: req.At.Dir, Options: in.KustomizeBuild(), Offline: req.Offline}
	seen := ""
	if build.Options.Helm && r.Charts != nil {
		build.Charts, build.Capabilities = r.Charts, r.capabilities(ctx, req)
		seen = fingerprint(req.Name(), build.Capabilities)
	}
	out, err := r.builder().Build(ctx, build)
	if err == nil && len(out.Objects) == 0 {
		err = deploy.Errorf(deploy.Invalid, "%s: the kustomization declares no objects; expected resources or generators", req.At.ConfigPath())
	}
	return render.Result{Objects: out.Objects, Bytes: out.Bytes, Varies: out.Remote, Context: seen, Warnings: out.Warnings}, err
}

// hasKustomization reports whether a directory has a kustomization file.
func hasKustomization(files fs.FS, dir string) bool {
	entries, err := fs.ReadDir(files, path.Clean(dir))
	if err != nil {
		return false // plain reports the error
	}
	for _, e := range entries {
		if kustomize.IsKustomization(e.Name()) {
			return true
		}
	}
	return false
}
