package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/source/kubernetes/kustomize"
)

// rendered is what an application's files say.
type rendered struct {
	objects []manifest.Object
	bytes   int64 // of their text
	// remote reports that they, or the error beside them, depend on more than the
	// commit.
	remote bool
	// capabilities identify what a chart saw of the cluster.
	capabilities string
	// warnings are about files, each with its name.
	warnings []string
}

// defaultTime bounds one rendering. What is fetched has bounds of its own, but those of
// a file each add up.
const defaultTime = 5 * time.Minute

// renderInTime is render within the loader's time.
func (l *Loader) renderInTime(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) (rendered, error) {
	limit := cmp.Or(l.Time, defaultTime)
	limited, stop := context.WithTimeoutCause(ctx, limit, deploy.Errorf(deploy.Unavailable,
		"%s: rendering it takes longer than %s, with the charts, bases and files that it fetches; try again, or split the application", at.ConfigPath(), limit))
	defer stop()
	r, err := l.render(limited, files, at, cfg)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = context.Cause(limited)
	}
	return r, err
}

// render makes the objects out of an application's files, in PipeCD's way to
// choose: with Helm where a chart is configured; with Kustomize where a
// kustomization stands in the directory and no manifests are named; as they are
// otherwise.
func (l *Loader) render(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) (rendered, error) {
	in := cfg.Kubernetes.Input
	if in.HelmChart != nil {
		return l.chart(ctx, files, at, cfg)
	}
	if len(in.Manifests) == 0 && hasKustomization(files, at.Dir) {
		return l.kustomize(ctx, files, at, cfg)
	}
	objects, size, err := plain(ctx, files, at, in.Manifests)
	return rendered{objects: objects, bytes: size}, err
}

// chart renders the application's chart.
func (l *Loader) chart(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) (rendered, error) {
	if l.Charts == nil {
		return rendered{capabilities: l.seen(ctx, at, cfg)}, deploy.Errorf(deploy.Invalid, "%s: input.helmChart: charts are not rendered here", at.ConfigPath())
	}
	in := cfg.Kubernetes.Input
	req := helm.Request{
		Tree: files, Dir: at.Dir, Chart: *in.HelmChart, ReleaseName: l.name(ctx, at, cfg), Namespace: in.Namespace, Capabilities: l.capabilities(ctx, at, cfg),
	}
	if in.HelmOptions != nil {
		req.Options = *in.HelmOptions
	}
	r, err := l.Charts.Render(ctx, req)
	if err != nil {
		err = fmt.Errorf("%s: %w", at.ConfigPath(), err)
	}
	if err == nil && len(r.Objects) == 0 {
		err = deploy.Errorf(deploy.Invalid, "%s: the chart renders no objects with these values", at.ConfigPath())
	}
	return rendered{objects: r.Objects, bytes: r.Bytes, remote: r.Remote, capabilities: fingerprint(req.ReleaseName, req.Capabilities)}, err
}

// capabilities are what the application's chart sees of its cluster.
func (l *Loader) capabilities(ctx context.Context, at deploy.GitPath, cfg *config.Application) helm.Capabilities {
	if l.Capabilities == nil {
		return helm.Capabilities{}
	}
	return l.Capabilities(ctx, at, cfg)
}

// name is what the application is called.
func (l *Loader) name(ctx context.Context, at deploy.GitPath, cfg *config.Application) string {
	if cfg.Name == "" && l.Name != nil {
		return l.Name(ctx, at)
	}
	return deploy.NameOf(cfg.Name, deploy.Registration{}, at)
}

// seen identifies what the chart of an application would see of its cluster and its
// name now; "" for an application without one (nil).
func (l *Loader) seen(ctx context.Context, at deploy.GitPath, chart *config.Application) string {
	if chart == nil {
		return ""
	}
	return fingerprint(l.name(ctx, at, chart), l.capabilities(ctx, at, chart))
}

func fingerprint(name string, c helm.Capabilities) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q\n%s\n%q", name, c.KubeVersion, c.APIVersions))
	return hex.EncodeToString(sum[:])
}

func (l *Loader) kustomize(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) (rendered, error) {
	l.once.Do(func() { l.builder = kustomize.New(l.Remotes, kustomize.DefaultLimits()) })
	req := kustomize.Request{Tree: files, Dir: at.Dir, Options: cfg.Kubernetes.Input.KustomizeBuild()}
	seen := ""
	if req.Options.Helm && l.Charts != nil {
		req.Charts, req.Capabilities = l.Charts, l.capabilities(ctx, at, cfg)
		seen = fingerprint(l.name(ctx, at, cfg), req.Capabilities)
	}
	r, err := l.builder.Build(ctx, req)
	if err == nil && len(r.Objects) == 0 {
		err = deploy.Errorf(deploy.Invalid, "%s: the kustomization declares no objects; expected resources or generators", at.ConfigPath())
	}
	return rendered{objects: r.Objects, bytes: r.Bytes, remote: r.Remote, capabilities: seen, warnings: r.Warnings}, err
}

// hasKustomization reports whether a kustomization stands in a directory.
func hasKustomization(files fs.FS, dir string) bool {
	entries, err := fs.ReadDir(files, path.Clean(dir))
	if err != nil {
		return false // who reads the manifests says why
	}
	for _, e := range entries {
		if kustomize.IsKustomization(e.Name()) {
			return true
		}
	}
	return false
}
