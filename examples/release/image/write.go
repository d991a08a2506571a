package image

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/c785c783/piped/examples/release/build"
)

// WriteLayout writes the image with what is attached to it as an OCI layout, in place of
// the directory dir.
func (i *Image) WriteLayout(dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return fmt.Errorf("make the directory of the image: %w", err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": i.version})
	if err := path.AppendIndex(i.Index, named); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	for _, a := range i.Attached {
		if err := path.AppendImage(a); err != nil {
			return fmt.Errorf("write what is attached to the image: %w", err)
		}
	}
	return nil
}

// WriteTarball writes the image of one platform to a file that `docker load`,
// `podman load` and `ctr images import` read, with the name piped and the version as its
// tag.
func (i *Image) WriteTarball(target build.Target, file string) (err error) {
	tag, err := name.NewTag("piped:" + i.version)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write the tarball: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := tarball.Write(tag, i.Platforms[target], f); err != nil {
		return fmt.Errorf("write the tarball %s: %w", file, err)
	}
	return nil
}

// Push pushes the image, and then what is attached to it, as ref.
func (i *Image) Push(ctx context.Context, ref string, options ...remote.Option) (pushed string, err error) {
	to, err := name.ParseReference(ref, name.WithDefaultTag(i.version))
	if err != nil {
		return "", fmt.Errorf("read the name to push to: %w", err)
	}
	options = append(options, remote.WithContext(ctx))
	if err := remote.WriteIndex(to, i.Index, options...); err != nil {
		return "", fmt.Errorf("push the image to %s: %w", to.Name(), err)
	}
	for _, a := range i.Attached {
		if err := pushAttached(to.Context(), a, options); err != nil {
			return "", fmt.Errorf("push what is attached to %s: %w", to.Name(), err)
		}
	}
	digest, err := i.Index.Digest()
	return to.Context().Digest(digest.String()).String(), err
}

// pushAttached pushes an artifact, which has no tag: a registry finds it by its subject.
func pushAttached(to name.Repository, a v1.Image, options []remote.Option) error {
	digest, err := a.Digest()
	if err != nil {
		return err
	}
	return remote.Write(to.Digest(digest.String()), a, options...)
}
