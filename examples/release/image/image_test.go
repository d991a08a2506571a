package image

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/c785c783/piped/examples/release/build"
)

var targets = []build.Target{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}

// Everything but the run of the agent is tested with a program of two lines: compiling
// piped for another architecture takes minutes.
const smallProgram = "package main\n\nvar version, commit string\n\nfunc main() { println(version, commit) }\n"

// commitTime is the time of the commit of the small program, as Git takes it.
const commitTime = "1795000000 +0000"

// checkout makes a work tree with the small program, in a directory of its own but with
// the same commit each time.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"go.mod": "module example.com/small\n\ngo 1.26\n", "main.go": smallProgram} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message", "Begin"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_AUTHOR_DATE="+commitTime, "GIT_COMMITTER_DATE="+commitTime)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// makeSmall builds the small program from a new work tree, and the image from that.
func makeSmall(t *testing.T) *Image { return makeOf(t, checkout(t)) }

// makeOf builds the small program of a work tree, and the image from that.
func makeOf(t *testing.T, dir string) *Image {
	t.Helper()
	source, err := build.ReadSource(t.Context(), dir, "v1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	var platforms []Platform
	for _, target := range targets {
		file := filepath.Join(t.TempDir(), "piped")
		if err := source.Program(t.Context(), ".", target, file); err != nil {
			t.Fatal(err)
		}
		platforms = append(platforms, Platform{target, []string{file}})
	}
	source.Dir = "../../.." // the module that names the version of the certificates
	made, err := Make(t.Context(), source, platforms)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// otherTree makes another work tree of a repository, with a tag that the first one had not.
func otherTree(t *testing.T, first string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "other")
	for _, args := range [][]string{{"tag", "v1.1.0"}, {"worktree", "add", "--quiet", "--detach", dir}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = first
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// Two work trees with the same commit result in the same bytes.
func TestImageIsReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "")
	first, second, tree := t.TempDir(), t.TempDir(), checkout(t)
	for _, dir := range []string{first, second} {
		made := makeOf(t, tree)
		if dir == first {
			tree = otherTree(t, tree)
		}
		if err := made.WriteLayout(filepath.Join(dir, "layout")); err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			if err := made.WriteTarball(target, filepath.Join(dir, target.Arch+".tar")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := exec.Command("diff", "--recursive", first, second).Run(); err != nil {
		out, _ := exec.Command("diff", "--recursive", "--brief", first, second).CombinedOutput()
		t.Errorf("the second image differs: %v\n%s", err, out)
	}
}

// The time of the source is part of the image, and can be given.
func TestImageHasTheTimeOfItsSource(t *testing.T) {
	for given, want := range map[string]int64{"": 1795000000, "1700000000": 1700000000} {
		t.Setenv("SOURCE_DATE_EPOCH", given)
		config, err := makeSmall(t).Platforms[targets[0]].ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Created.Unix() != want {
			t.Errorf("SOURCE_DATE_EPOCH=%q: the image is of %s, want %d", given, config.Created, want)
		}
	}
}

// Another program reads the layout: it is complete and consistent, with one image for
// each platform, each with its configuration.
func TestLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	if err := makeSmall(t).WriteLayout(dir); err != nil {
		t.Fatal(err)
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(all); err != nil {
		t.Error(err)
	}
	top, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := all.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if got := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != "v1.2.0" {
		t.Errorf("the index is named %q", got)
	}
	if got := manifest.Annotations["org.opencontainers.image.version"]; got != "v1.2.0" {
		t.Errorf("the index has the version %q", got)
	}
	var platforms []string
	for _, d := range manifest.Manifests {
		platforms = append(platforms, d.Platform.String())
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, image, d.Platform)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

func checkConfig(t *testing.T, image v1.Image, platform *v1.Platform) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != platform.OS || config.Architecture != platform.Architecture {
		t.Errorf("the image of %s is for %s/%s", platform, config.OS, config.Architecture)
	}
	if config.Config.User != "65532:65532" || config.Config.WorkingDir != "/var/lib/piped" {
		t.Errorf("user %q, directory %q", config.Config.User, config.Config.WorkingDir)
	}
	for _, label := range []string{"title", "description", "version", "revision", "created", "source", "licenses"} {
		if config.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("the label %s is missing", label)
		}
	}
}

// The tarball has the image of its platform, with its name.
func TestTarball(t *testing.T) {
	made := makeSmall(t)
	for _, target := range targets {
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := made.WriteTarball(target, file); err != nil {
			t.Fatal(err)
		}
		tag := name.MustParseReference("piped:v1.2.0").(name.Tag)
		loaded, err := tarball.ImageFromPath(file, &tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(loaded); err != nil {
			t.Error(err)
		}
		config, err := loaded.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != target.Arch {
			t.Errorf("the tarball of %s is for %s", target, config.Architecture)
		}
	}
}

// A registry has the image and finds what is attached by its subject, also one without
// the API of referrers.
func TestPush(t *testing.T) {
	made := makeSmall(t)
	for title, option := range map[string]registry.Option{"referrers": registry.WithReferrersSupport(true), "tags": registry.WithReferrersSupport(false)} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(registry.New(option, registry.Logger(log.New(io.Discard, "", 0))))
			defer server.Close()
			repository := strings.TrimPrefix(server.URL, "http://") + "/team/piped"
			pushed, err := made.Push(t.Context(), repository)
			if err != nil {
				t.Fatal(err)
			}
			tag, err := name.NewTag(repository + ":v1.2.0")
			if err != nil {
				t.Fatal(err)
			}
			index, err := remote.Index(tag)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(index); err != nil {
				t.Error(err)
			}
			if digest, err := index.Digest(); err != nil || repository+"@"+digest.String() != pushed {
				t.Errorf("the registry has %s, Push reports %s: %v", digest, pushed, err)
			}
			checkAttached(t, repository, index)
		})
	}
}

// checkAttached checks what a registry finds attached to the index and its images.
func checkAttached(t *testing.T, repository string, index v1.ImageIndex) {
	t.Helper()
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Subject []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		PredicateType string `json:"predicateType"`
		Predicate     struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ URI string } `json:"resolvedDependencies"`
			} `json:"buildDefinition"`
		} `json:"predicate"`
	}
	readAttached(t, repository, digest, "application/vnd.in-toto+json", &statement)
	want := []string{digest.Hex}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range manifest.Manifests {
		want = append(want, d.Digest.Hex)
		var document struct {
			SPDXVersion string `json:"spdxVersion"`
			Name        string `json:"name"`
		}
		readAttached(t, repository, d.Digest, "application/spdx+json", &document)
		if document.SPDXVersion != "SPDX-2.3" || !strings.Contains(document.Name, d.Platform.Architecture) {
			t.Errorf("attached to the image of %s: %+v", d.Platform, document)
		}
	}
	var got []string
	for _, s := range statement.Subject {
		got = append(got, s.Digest["sha256"])
	}
	if diff := cmp.Diff(want, got); diff != "" || statement.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("the provenance %q is about (-want +got):\n%s", statement.PredicateType, diff)
	}
	dependencies := statement.Predicate.BuildDefinition.ResolvedDependencies
	if !slices.ContainsFunc(dependencies, func(d struct{ URI string }) bool { return strings.HasPrefix(d.URI, "git+https://") }) {
		t.Errorf("the provenance does not name the source: %v", dependencies)
	}
}

// readAttached reads the one artifact of a kind that a registry has for a subject.
func readAttached(t *testing.T, repository string, of v1.Hash, kind string, into any) {
	t.Helper()
	repo, err := name.NewRepository(repository)
	if err != nil {
		t.Fatal(err)
	}
	found, err := remote.Referrers(repo.Digest(of.String()))
	if err != nil {
		t.Fatal(err)
	}
	list, err := found.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Manifests) != 1 {
		t.Fatalf("%s has %d artifacts, want 1", of, len(list.Manifests))
	}
	artifact, err := remote.Image(repo.Digest(list.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := artifact.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.ArtifactType != kind || string(manifest.Layers[0].MediaType) != kind || manifest.Subject.Digest != of {
		t.Errorf("the artifact of %s is a %s of %s, want %s", manifest.Subject.Digest, manifest.ArtifactType, manifest.Layers[0].MediaType, kind)
	}
	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d blobs: %v", len(layers), err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// A push that fails says where to.
func TestPushThatFails(t *testing.T) {
	server := httptest.NewServer(nil)
	repository := strings.TrimPrefix(server.URL, "http://") + "/team/piped"
	server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no retries
	if _, err := makeSmall(t).Push(ctx, repository); err == nil || !strings.Contains(err.Error(), repository+":v1.2.0") {
		t.Errorf("got %v", err)
	}
}

// TestAWorkTreeThatDiffersNamesNoCommit: neither the statement nor the labels say that a commit was
// built.
func TestAWorkTreeThatDiffersNamesNoCommit(t *testing.T) {
	dir := checkout(t)
	for _, dirty := range []bool{false, true} {
		if dirty {
			if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(smallProgram+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		source, err := build.ReadSource(t.Context(), dir, "v1.2.0")
		if err != nil {
			t.Fatal(err)
		}
		m := materials{source: source}
		statement, err := m.provenance(&Image{Index: empty.Index})
		if err != nil {
			t.Fatal(err)
		}
		if named := strings.Contains(string(statement), source.Commit); named == dirty {
			t.Errorf("dirty %v: the statement is %s", dirty, statement)
		}
		if named := m.labels()["org.opencontainers.image.revision"] == source.Commit; named == dirty {
			t.Errorf("dirty %v: the labels are %v", dirty, m.labels())
		}
	}
}

// TestSettingsOfTheUserDoNotMatter: with these of `go env -w` and of the shell, nothing compiles.
func TestSettingsOfTheUserDoNotMatter(t *testing.T) {
	source, err := build.ReadSource(t.Context(), checkout(t), "v1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	settings := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(settings, []byte("GOEXPERIMENT=nosuchexperiment\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOENV", settings)
	t.Setenv("GOFIPS140", "nosuchversion")
	if err := source.Program(t.Context(), ".", targets[0], filepath.Join(t.TempDir(), "piped")); err != nil {
		t.Error(err)
	}
}
