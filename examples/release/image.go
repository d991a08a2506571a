package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/c785c783/piped/examples/release/build"
	"github.com/c785c783/piped/examples/release/image"
)

// layoutDir is the folder of the OCI layout.
const layoutDir = "image"

// makeImage writes the agent's image, and pushes it if that is asked for, with the
// credentials of `docker login` or `podman login`.
func makeImage(ctx context.Context, source build.Source, o options, stdout io.Writer) error {
	if source.Dirty {
		if o.push != "" {
			return errors.New("the work tree differs from its commit: commit or remove the changes before you push, since the image states what it was made from")
		}
		source.Version = marked(source.Version)
	}
	var platforms []image.Platform
	for _, target := range servers {
		fmt.Fprintf(stdout, "compile for %s\n", target)
		programs, err := buildPrograms(ctx, source, o.bin, target, agent, client)
		if err != nil {
			return err
		}
		platforms = append(platforms, image.Platform{Target: target, Programs: programs})
	}
	made, err := image.Make(ctx, source, platforms)
	if err != nil {
		return err
	}
	if err := writeImage(made, source, o.dist, stdout); err != nil || o.push == "" {
		return err
	}
	pushed, err := made.Push(ctx, o.push, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err == nil {
		fmt.Fprintf(stdout, "pushed %s\n", pushed)
	}
	return err
}

// marked returns the version of a work tree that differs from its commit, as git describe writes it.
func marked(version string) string { return strings.TrimSuffix(version, dirty) + dirty }

const dirty = "-dirty"

// writeImage writes the layout and a tarball for each platform.
func writeImage(made *image.Image, source build.Source, dist string, stdout io.Writer) error {
	if err := os.MkdirAll(dist, 0o755); err != nil {
		return fmt.Errorf("make the folder %s: %w", dist, err)
	}
	dir := filepath.Join(dist, layoutDir)
	if err := made.WriteLayout(dir); err != nil {
		return err
	}
	digest, err := made.Index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s  %s\n", dir, digest)
	for _, target := range servers {
		file := filepath.Join(dist, releaseName(agent, source, target)+"_image.tar")
		if err := made.WriteTarball(target, file); err != nil {
			return err
		}
		fmt.Fprintln(stdout, file)
	}
	return nil
}

// releaseName begins the names of a target's files.
func releaseName(program string, source build.Source, target build.Target) string {
	return program + "_" + source.Version + "_" + target.OS + "_" + target.Arch
}
