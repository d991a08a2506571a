package image

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/c785c783/piped/examples/release/build"
	"github.com/c785c783/piped/examples/release/tree"
)

// website is where the project is.
const website = "https://github.com/c785c783/piped"

// Platform is one of the image's platforms: the programs that it runs, the first of
// which the container starts.
type Platform struct {
	build.Target
	Programs []string // their files
}

// Image is the agent's image for all platforms, with what is attached to it.
type Image struct {
	Index     v1.ImageIndex
	Platforms map[build.Target]v1.Image
	Attached  []v1.Image // artifacts whose subject is the index, or one of the images

	version string
	order   []build.Target
}

// Make makes the image of a source from the programs that were built of it.
func Make(ctx context.Context, source build.Source, platforms []Platform) (*Image, error) {
	m, err := newMaterials(ctx, source)
	if err != nil {
		return nil, err
	}
	base, err := m.systemLayer()
	if err != nil {
		return nil, err
	}
	made := &Image{Platforms: map[build.Target]v1.Image{}, version: source.Version}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := m.platform(p, base)
		if err != nil {
			return nil, err
		}
		made.Platforms[p.Target] = image
		made.order = append(made.order, p.Target)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Arch}},
		})
	}
	made.Index = mutate.Annotations(index, m.labels()).(v1.ImageIndex)
	return made, m.attach(made, platforms)
}

// materials are the contents of an image other than the programs.
type materials struct {
	source build.Source
	goroot string
	roots  string // the version of the module with the certificates
	goVer  string
}

func newMaterials(ctx context.Context, source build.Source) (m materials, err error) {
	m.source = source
	if m.goroot, err = source.Go(ctx, nil, "env", "GOROOT"); err != nil {
		return m, err
	}
	if m.goVer, err = source.Go(ctx, nil, "env", "GOVERSION"); err != nil {
		return m, err
	}
	m.roots, err = source.Go(ctx, nil, "list", "-m", "-f", "{{.Version}}", rootsModule)
	return m, err
}

// labels describe the image; https://specs.opencontainers.org/image-spec/annotations.
func (m materials) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{
		prefix + "title":         "piped",
		prefix + "description":   "A GitOps agent for progressive delivery on Kubernetes",
		prefix + "version":       m.source.Version,
		prefix + "revision":      m.source.Commit,
		prefix + "created":       m.source.Time.Format(time.RFC3339),
		prefix + "source":        website,
		prefix + "url":           website,
		prefix + "documentation": website + "/blob/" + m.source.Commit + "/README.md",
		prefix + "licenses":      "Apache-2.0",
	}
	if m.source.Dirty {
		delete(labels, prefix+"revision")
	}
	return labels
}

// systemLayer is the layer below the programs. Its files are of the time 0: it stays the
// same from version to version, and is stored and pulled once.
func (m materials) systemLayer() (v1.Layer, error) {
	files, err := system(m.goroot)
	if err != nil {
		return nil, err
	}
	return newLayer(files, time.Unix(0, 0))
}

// platform makes the image of one platform.
func (m materials) platform(p Platform, base v1.Layer) (v1.Image, error) {
	var files []tree.File
	for _, source := range p.Programs {
		files = append(files, tree.Executable("usr/local/bin/"+filepath.Base(source), source))
	}
	programs, err := newLayer(tree.WithParents(files), m.source.Time)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: m.source.Time}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.OS, Architecture: p.Arch, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:         fmt.Sprintf("%d:%d", userID, userID),
			Entrypoint:   []string{"/usr/local/bin/" + filepath.Base(p.Programs[0])},
			Cmd:          []string{"run", "--config", "/etc/piped/piped.yaml"},
			Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dataDir},
			WorkingDir:   dataDir,
			ExposedPorts: map[string]struct{}{"9083/tcp": {}, "9085/tcp": {}},
			Labels:       m.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "examples/release", Comment: "users, certificate authorities, time zones"}},
		mutate.Addendum{Layer: programs, History: v1.History{Created: created, CreatedBy: "examples/release", Comment: "programs"}})
}

// newLayer makes a layer, compressed once and held in memory.
func newLayer(files []tree.File, modified time.Time) (v1.Layer, error) {
	open := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(tree.Write(w, files, modified)) }()
		return r, nil
	}
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}

// describe returns the descriptor by which another manifest refers to something.
func describe(of partial.Describable) (v1.Descriptor, error) {
	d, err := partial.Descriptor(of)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}, nil
}
