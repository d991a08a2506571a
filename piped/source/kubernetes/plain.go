package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/render"
)

// maxSize is the maximum size of the manifests of one application in bytes.
const maxSize = 32 << 20

// plain returns the objects in plain manifest files and the total size of the files. names are
// the files; if it is empty, plain reads every manifest directly in the application's
// directory. The error joins the errors of all files.
func plain(ctx context.Context, fsys fs.FS, at deploy.GitPath, names []string) ([]manifest.Object, int64, error) {
	if len(names) == 0 {
		var err error
		if names, err = manifestNames(fsys, at); err != nil {
			return nil, 0, err
		}
	}
	var objects []manifest.Object
	var size int64
	var problems []error
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		more, n, err := plainFile(fsys, at, name)
		switch {
		case deploy.IsKind(err, deploy.Invalid):
			problems = append(problems, err)
		case err != nil:
			return nil, 0, err
		}
		objects = append(objects, more...)
		if size += n; size > maxSize {
			return nil, 0, deploy.Errorf(deploy.Invalid, "%s: the manifests have more than %d bytes; split the application", at.ConfigPath(), maxSize)
		}
	}
	if len(problems) > 0 {
		return nil, 0, errors.Join(problems...)
	}
	if len(objects) == 0 {
		return nil, 0, deploy.Errorf(deploy.Invalid, "%s: the application declares no objects; expected .yaml, .yml or .json manifests next to it", at.ConfigPath())
	}
	return objects, size, nil
}

// plainFile returns the objects in one manifest file, and its size in bytes.
func plainFile(fsys fs.FS, at deploy.GitPath, name string) ([]manifest.Object, int64, error) {
	if !filepath.IsLocal(name) {
		return nil, 0, deploy.Errorf(deploy.Invalid, "%s: input.manifests: %q is not inside the application's directory", at.ConfigPath(), name)
	}
	file := path.Join(at.Dir, name)
	data, err := render.ReadFile(fsys, file, manifest.MaxFileSize)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil, 0, deploy.Errorf(deploy.Invalid, "%s: input.manifests: %w", at.ConfigPath(), err)
	}
	if err != nil {
		return nil, 0, err
	}
	objects, err := manifest.Parse(file, data)
	return objects, int64(len(data)), err
}

// manifestNames returns the names of the manifests directly in the application's
// directory, sorted.
func manifestNames(fsys fs.FS, at deploy.GitPath) ([]string, error) {
	entries, err := fs.ReadDir(fsys, path.Clean(at.Dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, deploy.Errorf(deploy.Invalid, "%s: there is no such directory in the commit", at.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", at.Dir, err)
	}
	var names []string
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir():
		case isManifest(name):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// isManifest reports whether a file is a manifest, by its name. Configuration files of piped
// and of SOPS are not.
func isManifest(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !config.IsApplicationConfig(name) && name != ".sops.yaml" // the configuration of the sops program
	}
	return false
}
