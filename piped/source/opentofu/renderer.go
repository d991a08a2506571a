// Package opentofu reads the files of OpenTofu and Terraform applications. The objects of such an
// application are its files, and those of the modules that it uses from its repository, so that
// they can be compared between commits. What they declare is known only to the program.
package opentofu

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/render"
)

const (
	// Group and Kind are those of the objects. The namespace of one is its directory.
	Group = "files.opentofu.piped"
	Kind  = "File"

	fieldText = "text"

	maxFile    = 4 << 20
	maxModules = 200
)

// Renderer implements render.Renderer. Its zero value is ready to use.
type Renderer struct{}

// Fingerprint implements render.Renderer.
func (Renderer) Fingerprint() string { return "" }

// Context implements render.Renderer.
func (Renderer) Context(context.Context, render.Request) string { return "" }

// Render implements render.Renderer.
func (Renderer) Render(ctx context.Context, req render.Request) (render.Result, error) {
	r := reader{ctx: ctx, files: req.Files, seen: map[string]bool{}}
	root := path.Clean(req.At.Dir)
	if err := r.module(root); err != nil {
		return r.out, err
	}
	if len(r.out.Objects) == 0 {
		return r.out, deploy.Errorf(deploy.Invalid, "%s: there is no file *.tf or *.tofu in the directory", req.At.ConfigPath())
	}
	for _, file := range opentofu.SpecOf(req.Config.Platform).Input.VarFiles {
		if err := r.file(path.Join(root, file)); err != nil {
			return r.out, fmt.Errorf("%s: spec.input.varFiles: %w", req.At.ConfigPath(), err)
		}
	}
	return r.out, nil
}

// reader reads modules.
type reader struct {
	ctx   context.Context
	files fs.FS
	seen  map[string]bool // directories and files
	dirs  int
	out   render.Result
}

// module reads the files of a directory, and the modules that they call.
func (r *reader) module(dir string) error {
	if r.seen[dir] {
		return nil
	}
	r.seen[dir] = true
	if r.dirs++; r.dirs > maxModules {
		return deploy.Errorf(deploy.Invalid, "%s: expected at most %d modules in the repository", dir, maxModules)
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	entries, err := fs.ReadDir(r.files, dir)
	if err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: the module cannot be read: %w", dir, err)
	}
	from := len(r.out.Objects)
	for _, e := range entries {
		if !e.IsDir() && isConfiguration(e.Name()) {
			if err := r.file(path.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for _, o := range slices.Clone(r.out.Objects[from:]) {
		described, err := describe(o)
		if err != nil {
			return err
		}
		for _, m := range described.Modules {
			if !m.IsLocal() {
				continue
			}
			below := path.Join(dir, m.Source)
			if below == ".." || strings.HasPrefix(below, "../") {
				return deploy.Errorf(deploy.Invalid, "%s: module %s is not in the repository: %s", path.Join(dir, o.GetName()), m.Name, m.Source)
			}
			if err := r.module(below); err != nil {
				return err
			}
		}
	}
	return nil
}

// isConfiguration reports whether the program reads files of that name by itself.
func isConfiguration(name string) bool {
	for _, suffix := range []string{".tf", ".tf.json", ".tofu", ".tofu.json", ".auto.tfvars", ".auto.tfvars.json"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return slices.Contains([]string{"terraform.tfvars", "terraform.tfvars.json", ".terraform.lock.hcl"}, name)
}

// file adds a file.
func (r *reader) file(name string) error {
	if !fs.ValidPath(name) {
		return deploy.Errorf(deploy.Invalid, "%s is not in the repository", name)
	}
	if r.seen[name] {
		return nil
	}
	r.seen[name] = true
	data, err := render.ReadFile(r.files, name, maxFile)
	switch {
	case deploy.IsKind(err, deploy.NotFound):
		return deploy.Errorf(deploy.Invalid, "%w", err)
	case err != nil:
		return err
	case len(data) > maxFile:
		return deploy.Errorf(deploy.Invalid, "%s: expected at most %d MiB", name, maxFile>>20)
	}
	r.out.Bytes += int64(len(data))
	r.out.Objects = append(r.out.Objects, manifest.Object{Origin: manifest.Origin{File: name}, Unstructured: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Group + "/v1", "kind": Kind, "metadata": map[string]any{"namespace": path.Dir(name), "name": path.Base(name)}, fieldText: string(data),
	}}})
	return nil
}
