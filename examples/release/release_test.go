package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/c785c783/piped/examples/release/build"
	"github.com/c785c783/piped/examples/release/image"
)

// newRelease makes a release of a commit of this repository with small programs, whose compilation
// and compression take a moment. The manuals are those of the real ones.
func newRelease(t *testing.T, checkout string) release {
	t.Helper()
	small := newCheckout(t, "Begin").source(t, "v1.2.0")
	source, err := build.ReadSource(t.Context(), checkout, "v1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	r := release{source: source, dir: filepath.Join(t.TempDir(), "v1.2.0"), stdout: io.Discard}
	r.runnable = func([]image.Platform) ([]string, error) { return builtPrograms(t), nil }
	r.compile = func(ctx context.Context, target build.Target, names ...string) ([]string, error) {
		return buildPrograms(ctx, small, filepath.Join(small.Dir, "bin"), target, names...)
	}
	if err := r.make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRelease: a release has a file for each purpose, all of them with their checksum, and
// another one of the same commit has the same bytes.
func TestRelease(t *testing.T) {
	checkout := t.TempDir() // the work tree may move to another commit meanwhile
	if out, err := exec.Command("git", "clone", "--quiet", "--shared", moduleRoot, checkout).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, again := newRelease(t, checkout), newRelease(t, checkout)
	if out, err := exec.Command("diff", "--recursive", "--brief", r.dir, again.dir).CombinedOutput(); err != nil {
		t.Errorf("another release of the commit differs: %v\n%s", err, out)
	}
	t.Run("files", func(t *testing.T) { checkFiles(t, r) })
	t.Run("checksums", func(t *testing.T) { checkSums(t, r) })
	t.Run("archive", func(t *testing.T) { checkArchive(t, r) })
}

func checkFiles(t *testing.T, r release) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{
		"checksums.txt", "image", "piped-1.2.0.tgz",
		"pipectl_v1.2.0_darwin_amd64.spdx.json", "pipectl_v1.2.0_darwin_amd64.tar.gz",
		"pipectl_v1.2.0_darwin_arm64.spdx.json", "pipectl_v1.2.0_darwin_arm64.tar.gz",
		"piped_v1.2.0_linux_amd64.spdx.json", "piped_v1.2.0_linux_amd64.tar.gz", "piped_v1.2.0_linux_amd64_image.tar",
		"piped_v1.2.0_linux_arm64.spdx.json", "piped_v1.2.0_linux_arm64.tar.gz", "piped_v1.2.0_linux_arm64_image.tar",
		"release-notes.md",
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	packed, err := loader.LoadFile(filepath.Join(r.dir, "piped-1.2.0.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if packed.Metadata.Version != "1.2.0" || packed.Metadata.AppVersion != "v1.2.0" || len(packed.Schema) == 0 || len(packed.Templates) == 0 {
		t.Errorf("the chart of the release is %+v with %d templates and a schema of %d bytes", packed.Metadata, len(packed.Templates), len(packed.Schema))
	}
}

// checkSums has sha256sum check the files.
func checkSums(t *testing.T, r release) {
	cmd := exec.Command("sha256sum", "--check", "--strict", "checksums.txt")
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(out, []byte(": OK\n")); got != len(files)-1 { // but for the checksums themselves
		t.Errorf("%d files have checksums, want %d:\n%s", got, len(files)-1, out)
	}
}

// checkArchive checks an archive's manual pages and completions, and that its programs are
// those that were built.
func checkArchive(t *testing.T, r release) {
	name := releaseName(agent, r.source, host)
	files := readArchive(t, filepath.Join(r.dir, name+".tar.gz"))
	for _, file := range []string{"LICENSE", "README.md", "completion/_piped", "completion/piped.fish", "completion/pipectl.bash", "man/man1/piped.1", "man/man1/pipectl.1"} {
		if len(files[name+"/"+file]) == 0 {
			t.Errorf("%s is missing", file)
		}
	}
	for page, flag := range map[string]string{"piped-run.1": `--repo`, "pipectl-application-sync.1": `--wait-status`} {
		text := string(files[name+"/man/man1/"+page])
		if !strings.Contains(text, ".TH ") || !strings.Contains(text, flag) || !strings.Contains(text, r.source.Time.Format("Jan 2006")) {
			t.Errorf("%s is no manual page of its command and time:\n%s", page, text)
		}
	}
	check := exec.Command("bash", "-n")
	check.Stdin = bytes.NewReader(files[name+"/completion/piped.bash"])
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("the completion of bash: %v\n%s", err, out)
	}
	program := filepath.Join(t.TempDir(), agent)
	if err := os.WriteFile(program, files[name+"/"+agent], 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "v1.2.0 ") {
		t.Errorf("the agent of the archive prints %q: %v", out, err)
	}
	client := readArchive(t, filepath.Join(r.dir, "pipectl_v1.2.0_darwin_arm64.tar.gz"))
	for file := range client {
		if strings.Contains(file, "/piped") {
			t.Errorf("the client's archive has %s", file)
		}
	}
}

// readArchive returns the files of a tar.gz by name.
func readArchive(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}
