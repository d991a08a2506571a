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

// kustomizeVersion is the release of Kustomize that the library belongs to, as the
// label of buildMetadata names it.
const kustomizeVersion = "v5.8.2"

// made is a file that the plan has put into the virtual file system.
type made struct {
	data   []byte
	origin resource.Origin // as buildMetadata names it, without a path
}

// make adds a file to the directory of the kustomization, and returns the entry that names
// it. No commit contains a file of that name.
func (r *rewriter) make(data []byte, origin resource.Origin) (entry string) {
	entry = fmt.Sprintf("./.git/%d.yaml", len(r.plan.made))
	r.plan.made[path.Join(r.mount.path(r.dir), entry)] = made{append([]byte{}, data...), origin}
	return entry
}

// remoteFile is an entry that is the address of a file.
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

// withoutQuery returns the address of a file without what may be a credential in it.
func withoutQuery(address string) string {
	address, _, _ = strings.Cut(redacted(address), "?")
	return address
}

// fetchFile returns what stands at an address, at most limit bytes.
func (p *plan) fetchFile(address string, limit int64) ([]byte, error) {
	if p.ctx.Err() != nil {
		return nil, context.Cause(p.ctx)
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

// annotate completes what buildMetadata asks for: the label, and origins as the user
// knows them in place of those in the virtual file system. Dir is that of the
// request.
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

// locateOrigin replaces the paths of an origin that no tree of the user has.
func (f *files) locateOrigin(o *resource.Origin, dir string) {
	if file, ok := f.made[path.Join(virtual(dir), o.Path)]; ok && o.Path != "" {
		ref := o.Path
		*o = file.origin
		if o.ConfiguredIn != "" { // relative to the file that was made
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
