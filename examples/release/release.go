package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/c785c783/piped/examples/release/build"
	"github.com/c785c783/piped/examples/release/image"
	"github.com/c785c783/piped/examples/release/sbom"
	"github.com/c785c783/piped/examples/release/tree"
)

// desktops get the client only.
var desktops = []build.Target{{OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}}

// chartDir is the folder of the Helm chart.
const chartDir = "examples/install/chart"

// release is a release in the making.
type release struct {
	source build.Source
	dir    string // where everything is written to
	stdout io.Writer
	// compile compiles programs for a target and returns their files.
	compile func(ctx context.Context, target build.Target, programs ...string) ([]string, error)
	// runnable are programs that this machine can run: they print their manuals.
	runnable func(platforms []image.Platform) ([]string, error)
}

// makeRelease makes everything of a version, in a folder of dist with its name.
func makeRelease(ctx context.Context, source build.Source, o options, stdout io.Writer) error {
	if o.push != "" {
		return errors.New("a release pushes nothing: push the image with the command image")
	}
	if err := checkVersion(source.Version); err != nil {
		return err
	}
	if err := checkCheckout(ctx, source); err != nil {
		return err
	}
	r := release{source: source, dir: filepath.Join(o.dist, source.Version), stdout: stdout, runnable: ofThisMachine}
	r.compile = func(ctx context.Context, target build.Target, programs ...string) ([]string, error) {
		fmt.Fprintf(stdout, "compile for %s\n", target)
		return buildPrograms(ctx, source, o.bin, target, programs...)
	}
	return r.make(ctx)
}

// ofThisMachine returns the programs of the platform that this machine is.
func ofThisMachine(platforms []image.Platform) ([]string, error) {
	for _, p := range platforms {
		if p.OS == runtime.GOOS && p.Arch == runtime.GOARCH {
			return p.Programs, nil
		}
	}
	return nil, fmt.Errorf("a release is made on a machine that runs its programs, which print their manuals; this is %s/%s", runtime.GOOS, runtime.GOARCH)
}

// make makes the release in place of what the folder holds.
func (r release) make(ctx context.Context) error {
	if err := errors.Join(os.RemoveAll(r.dir), os.MkdirAll(r.dir, 0o755)); err != nil {
		return fmt.Errorf("make the folder of the release: %w", err)
	}
	var platforms []image.Platform
	for _, target := range servers {
		programs, err := r.compile(ctx, target, agent, client)
		if err != nil {
			return err
		}
		platforms = append(platforms, image.Platform{Target: target, Programs: programs})
	}
	if err := r.archives(ctx, platforms); err != nil {
		return err
	}
	made, err := image.Make(ctx, r.source, platforms)
	if err != nil {
		return err
	}
	if err := writeImage(made, r.source, r.dir, r.stdout); err != nil {
		return err
	}
	if err := r.chart(); err != nil {
		return err
	}
	notes, err := releaseNotes(ctx, r.source)
	if err != nil {
		return err
	}
	if err := r.write("release-notes.md", notes); err != nil {
		return err
	}
	return r.checksums()
}

// archives writes an archive for each target, with the list of its components.
func (r release) archives(ctx context.Context, platforms []image.Platform) error {
	programs, err := r.runnable(platforms)
	if err != nil {
		return err
	}
	extras, err := r.extras(ctx, programs)
	if err != nil {
		return err
	}
	for _, p := range platforms {
		if err := r.archive(agent, p, append(extras.of(agent), extras.of(client)...)); err != nil {
			return err
		}
	}
	for _, target := range desktops {
		programs, err := r.compile(ctx, target, client)
		if err != nil {
			return err
		}
		if err := r.archive(client, image.Platform{Target: target, Programs: programs}, extras.of(client)); err != nil {
			return err
		}
	}
	return nil
}

// archive writes the archive of one target: a folder with the programs, what belongs to
// them, and the license.
func (r release) archive(program string, p image.Platform, extras []extra) error {
	name := releaseName(program, r.source, p.Target)
	var files []tree.File
	for _, source := range p.Programs {
		files = append(files, tree.Executable(name+"/"+filepath.Base(source), source))
	}
	for _, e := range extras {
		files = append(files, tree.Text(name+"/"+e.name, e.text))
	}
	for _, document := range []string{"LICENSE", "README.md"} {
		text, err := os.ReadFile(filepath.Join(r.source.Dir, document))
		if err != nil {
			return fmt.Errorf("add %s to the archive: %w", document, err)
		}
		files = append(files, tree.Text(name+"/"+document, text))
	}
	file := filepath.Join(r.dir, name+".tar.gz")
	if err := tree.WriteArchive(file, tree.WithParents(files), r.source.Time); err != nil {
		return err
	}
	fmt.Fprintln(r.stdout, file)
	components, err := sbom.Make(sbom.Options{
		Name: name, Version: r.source.Version, Purpose: "ARCHIVE", Source: image.GitAddress(r.source), Created: r.source.Time, Programs: p.Programs,
	})
	if err != nil {
		return err
	}
	return r.write(name+".spdx.json", components)
}

// write writes a file of the release.
func (r release) write(name string, text []byte) error {
	file := filepath.Join(r.dir, name)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write a file of the release: %w", err)
	}
	fmt.Fprintln(r.stdout, file)
	return nil
}
