package kustomize

import (
	"context"
	"fmt"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// kustomizeVersion is the release of Kustomize that contains the library, as in the label of
// buildMetadata.
const kustomizeVersion = "v5.8.2"

// made is a file that the plan added to the virtual file system.
type made struct {
	data   []byte
	origin resource.Origin // for buildMetadata, without a path
}

// make adds a file below the directory of the kustomization, and returns the entry that refers
// to it. No commit can contain a file of that name.
func (r *rewriter) make(data []byte, origin resource.Origin) (entry string) {
	entry = fmt.Sprintf("./.git/%d.yaml", len(r.plan.made))
	r.plan.made[path.Join(r.mount.path(r.dir), entry)] = made{append([]byte{}, data...), origin}
	return entry
}

// remoteFile downloads the file whose address is the entry, and replaces the entry.
func (r *rewriter) remoteFile(field string, entry *string) {
	data, err := r.plan.fetchFile(*entry, r.plan.left.Bytes)
	if err == nil {
		if err = checkAliases(data); err != nil {
			err = deploy.Errorf(deploy.Invalid, "%w", err)
		}
	}
	if err != nil {
		r.fail(field, fmt.Errorf("remote file %s: %w", withoutQuery(*entry), err))
		return
	}
	*entry = r.make(data, resource.Origin{Repo: withoutQuery(*entry)})
}

// withoutQuery returns the address of a file without user info and query, which may contain
// credentials.
func withoutQuery(address string) string {
	address, _, _ = strings.Cut(redacted(address), "?")
	return address
}

// fetchFile downloads a file of at most limit bytes from an address.
func (p *plan) fetchFile(address string, limit int64) ([]byte, error) {
	if p.ctx.Err() != nil {
		return nil, context.Cause(p.ctx)
	}
	if p.request.Offline {
		return nil, deploy.Errorf(deploy.Invalid, "remote files are not fetched for the pull request of a fork; commit the file")
	}
	p.remote = true
	if p.remotes == nil {
		return nil, deploy.Errorf(deploy.Invalid, "remote files are not available here; commit the file")
	}
	if p.left.Fetched--; p.left.Fetched < 0 {
		return nil, deploy.Errorf(deploy.Invalid, "the build names more than %d remote files; commit them", p.limits.Fetched)
	}
	resume := background.Wait(p.ctx, "file "+withoutQuery(address))
	data, err := p.remotes.File(p.ctx, address, min(limit, p.left.Bytes))
	resume()
	p.left.Bytes -= int64(len(data))
	return data, err
}

// annotate completes the metadata that buildMetadata requests: it sets the managed-by label,
// and replaces paths of the virtual file system in origins by those of the repositories. dir is
// the directory of the request.
func (f *files) annotate(built resmap.ResMap, dir string) error {
	for _, r := range built.Resources() {
		if f.managed {
			labels := r.GetLabels()
			labels[konfig.ManagedbyLabelKey] = "kustomize-" + kustomizeVersion
			if err := r.SetLabels(labels); err != nil {
				return err
			}
		}
		origin, err := r.GetOrigin()
		if err == nil && origin != nil {
			f.locateOrigin(origin, dir)
			err = r.SetOrigin(origin)
		}
		if err != nil {
			return err
		}
		if err := f.annotateTransformations(r, dir); err != nil {
			return err
		}
	}
	return nil
}

func (f *files) annotateTransformations(r *resource.Resource, dir string) error {
	transformations, err := r.GetTransformations()
	if err != nil || len(transformations) == 0 {
		return err
	}
	if err := r.ClearTransformations(); err != nil {
		return err
	}
	for _, origin := range transformations {
		f.locateOrigin(origin, dir)
		if err := r.AddTransformation(origin); err != nil {
			return err
		}
	}
	return nil
}

// locateOrigin replaces the paths of generated files and remote bases in an origin.
func (f *files) locateOrigin(o *resource.Origin, dir string) {
	if file, ok := f.made[path.Join(virtual(dir), o.Path)]; ok && o.Path != "" {
		ref := o.Path
		*o = file.origin
		if o.ConfiguredIn != "" { // relative to the generated file
			o.ConfiguredIn = path.Join(path.Dir(path.Dir(ref)), o.ConfiguredIn)
		}
	}
	for _, at := range []*string{&o.Path, &o.ConfiguredIn} {
		m, name := f.locate(path.Join(virtual(dir), *at))
		if *at != "" && m.depth > 0 {
			*at, o.Repo, o.Ref = strings.TrimPrefix(name, "./"), redacted(m.from.remote), m.from.ref
		}
	}
}
