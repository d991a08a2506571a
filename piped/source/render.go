package source

import (
	"context"
	"io/fs"
	"path"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kustomize"
)

// rendered is what an application's files say.
type rendered struct {
	objects []manifest.Object
	bytes   int64 // of their text
	// remote reports that they, or the error beside them, depend on more than the
	// commit.
	remote bool
}

// render makes the objects out of an application's files, in PipeCD's way to
// choose: with Kustomize where a kustomization stands in the directory and no
// manifests are named; as they are otherwise.
func (l *Loader) render(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) (rendered, error) {
	in := cfg.Kubernetes.Input
	if len(in.Manifests) == 0 && hasKustomization(files, at.Dir) {
		return l.kustomize(ctx, files, at, cfg)
	}
	objects, size, err := plain(ctx, files, at, in.Manifests)
	return rendered{objects: objects, bytes: size}, err
}

func (l *Loader) kustomize(ctx context.Context, files fs.FS, at deploy.GitPath, cfg *config.Application) (rendered, error) {
	l.once.Do(func() { l.builder = kustomize.New(l.Remotes, kustomize.DefaultLimits()) })
	r, err := l.builder.Build(ctx, kustomize.Request{Tree: files, Dir: at.Dir, Options: cfg.Kubernetes.Input.KustomizeBuild()})
	if err == nil && len(r.Objects) == 0 {
		err = deploy.Errorf(deploy.Invalid, "%s: the kustomization declares no objects; expected resources or generators", at.ConfigPath())
	}
	return rendered{objects: r.Objects, bytes: r.Bytes, remote: r.Remote}, err
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
