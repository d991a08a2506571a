package kustomize

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/tools/txtar"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite what the cases want")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree makes files out of pairs of a name and a text; a text that begins with
// "-> " is a symbolic link.
func tree(pairs ...string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		file := &fstest.MapFile{Data: []byte(pairs[i+1])}
		if target, ok := strings.CutPrefix(pairs[i+1], "-> "); ok {
			file = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
		}
		fsys[pairs[i]] = file
	}
	return fsys
}

func build(t *testing.T, b *Builder, fsys fs.FS, dir string) (Result, error) {
	t.Helper()
	return b.Build(t.Context(), Request{Tree: fsys, Dir: dir})
}

// text returns objects as YAML.
func text(t *testing.T, r Result) string {
	t.Helper()
	var out []string
	for _, o := range r.Objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(data))
	}
	return strings.Join(out, "---\n")
}

// TestBuild builds app/ of each archive in testdata: a repository, options, and
// as the last file "want", what comes out, or "error", what is wrong.
func TestBuild(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			want := &archive.Files[len(archive.Files)-1]
			b := New(nil, DefaultLimits())
			for range 2 { // the second build sees nothing of the first
				got := outcomeOf(t, b, archive.Files[:len(archive.Files)-1])
				if *update {
					*want = got
				}
				if diff := cmp.Diff(want.Name+":\n"+string(want.Data), got.Name+":\n"+string(got.Data)); diff != "" {
					t.Fatalf("-want +got:\n%s", diff)
				}
			}
			if *update {
				if err := os.WriteFile(name, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// outcomeOf builds app/ of a repository and returns the last file of its case.
func outcomeOf(t *testing.T, b *Builder, repository []txtar.File) txtar.File {
	t.Helper()
	fsys, options := fstest.MapFS{}, kubernetes.Input{}
	for _, f := range repository {
		if f.Name != "options" {
			fsys[f.Name] = tree(f.Name, strings.TrimSuffix(string(f.Data), "\n"))[f.Name]
		} else if err := yaml.Unmarshal(f.Data, &options.KustomizeOptions); err != nil {
			t.Fatal(err)
		}
	}
	charts, err := helm.New(helm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Build(t.Context(), Request{Tree: fsys, Dir: "app", Options: options.KustomizeBuild(), Charts: charts})
	if err == nil {
		return txtar.File{Name: "want", Data: []byte(text(t, r))}
	}
	if !deploy.IsKind(err, deploy.Invalid) || r.Objects != nil {
		t.Errorf("%v is %v, want it to be invalid; next to it %v", err, deploy.KindOf(err), r.Objects)
	}
	return txtar.File{Name: "error", Data: []byte(err.Error() + "\n")}
}

const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"

func TestOriginAndSizeOfWhatIsBuilt(t *testing.T) {
	r, err := build(t, New(nil, DefaultLimits()), tree("app/kustomization.yml", "resources: [a.yaml]\nbuildMetadata: [originAnnotations, transformerAnnotations]\n", "app/a.yaml", service), "app")
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Objects[0].Origin.String(); got != "app/kustomization.yml" || r.Bytes == 0 || r.Remote {
		t.Errorf("got origin %q, %d bytes, remote %v", got, r.Bytes, r.Remote)
	}
	if diff := cmp.Diff(map[string]string{"config.kubernetes.io/origin": "path: a.yaml\n"}, r.Objects[0].GetAnnotations()); diff != "" {
		t.Errorf("annotations, -want +got:\n%s", diff)
	}
}

func TestBuildAtTheRoot(t *testing.T) {
	r, err := build(t, New(nil, DefaultLimits()), tree("Kustomization", "resources: [base]\n", "base/kustomization.yaml", "resources: [a.yaml]\n", "base/a.yaml", service), ".")
	if err != nil || len(r.Objects) != 1 || r.Objects[0].Origin.File != "Kustomization" {
		t.Errorf("got %v, %v", r, err)
	}
}

// TestSchemaOfOneBuildIsNotThatOfAnother: with a schema of its own a build merges
// lists by keys that another replaces.
func TestSchemaOfOneBuildIsNotThatOfAnother(t *testing.T) {
	const schema = `{"definitions": {"v1.Thing": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Thing"}],
		"properties": {"spec": {"type": "object", "properties": {"items": {"type": "array", "x-kubernetes-patch-merge-key": "name", "x-kubernetes-patch-strategy": "merge",
		"items": {"type": "object", "properties": {"name": {"type": "string"}}}}}}}}}}`
	thing := func(openapi string) fstest.MapFS {
		return tree(
			"app/kustomization.yaml", openapi+"resources: [thing.yaml]\npatches: [{path: patch.yaml}]\n",
			"app/schema.json", schema,
			"app/thing.yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec: {items: [{name: one}]}\n",
			"app/patch.yaml", "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\nspec: {items: [{name: two}]}\n",
		)
	}
	b := New(nil, DefaultLimits())
	for i, c := range []struct{ openapi, want string }{
		{"", "[map[name:two]]"}, {"openapi: {path: schema.json}\n", "[map[name:two] map[name:one]]"}, {"", "[map[name:two]]"},
	} {
		r, err := build(t, b, thing(c.openapi), "app")
		if err != nil {
			t.Fatal(i, err)
		}
		if got := fmt.Sprint(r.Objects[0].Object["spec"].(map[string]any)["items"]); got != c.want {
			t.Errorf("build %d: got %s, want %s", i, got, c.want)
		}
	}
}

// bases are remote repositories by remote and reference.
type bases map[string]fs.FS

func (b bases) At(_ context.Context, remote, ref string) (fs.FS, string, error) {
	fsys, ok := b[remote+" "+ref]
	if !ok {
		return nil, "", deploy.Errorf(deploy.Unavailable, "%s at %q is not there", remote, ref)
	}
	return fsys, fmt.Sprintf("%040x", len(remote+ref)), nil
}

func (b bases) File(_ context.Context, address string, limit int64) ([]byte, error) {
	fsys, ok := b["file"]
	if !ok {
		return nil, deploy.Errorf(deploy.Unavailable, "%s is not there", address)
	}
	return fs.ReadFile(fsys, strings.TrimPrefix(address, "https://"))
}

func TestRemoteBases(t *testing.T) {
	remotes := bases{
		"https://host/org/repo v1": tree(
			"base/kustomization.yaml", "resources: [service.yaml, ../shared, \"https://host/org/nested//dir?ref=v2\"]\nnamePrefix: a-\n", "base/service.yaml", service,
			"shared/kustomization.yaml", "configMapGenerator: [{name: c, files: [file.txt]}]\n", "shared/file.txt", "text",
		),
		"https://host/org/nested v2": tree("dir/kustomization.yaml", "resources: [nested.yaml]\n", "dir/nested.yaml", strings.ReplaceAll(service, "web", "nested")),
		"git@host:org/repo.git ":     tree("kustomization.yaml", "resources: [service.yaml]\n", "service.yaml", strings.ReplaceAll(service, "web", "root")),
	}
	r, err := build(t, New(remotes, DefaultLimits()), tree("apps/web/kustomization.yaml", "resources: [\"https://host/org/repo//base?ref=v1\", \"git@host:org/repo.git\"]\nnameSuffix: -z\n"), "apps/web")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range r.Objects {
		got = append(got, o.GetKind()+" "+o.GetName()+" "+o.Origin.String())
	}
	want := []string{
		"ConfigMap a-c-z-4k5f86f7m2 apps/web/kustomization.yaml",
		"Service a-nested-z apps/web/kustomization.yaml",
		"Service a-web-z apps/web/kustomization.yaml",
		"Service root-z apps/web/kustomization.yaml",
	}
	if diff := cmp.Diff(want, got); diff != "" || !r.Remote {
		t.Errorf("remote %v, -want +got:\n%s", r.Remote, diff)
	}
}

func TestRemoteBasesThatAreRefused(t *testing.T) {
	deep := bases{}
	for i := range maxDepth + 1 {
		deep[fmt.Sprintf("https://host/org/r%d ", i)] = tree("kustomization.yaml", fmt.Sprintf("resources: [\"https://host/org/r%d\"]\n", i+1))
	}
	tests := []struct {
		name    string
		remotes Remotes
		entry   string
		kind    deploy.Kind
		want    string
	}{
		{"without remotes", nil, "https://host/org/repo", deploy.Invalid, "remote base https://host/org/repo: remote bases are not available here; commit the base"},
		{"not there", bases{}, "https://host/org/repo?ref=v1", deploy.Unavailable, `remote base https://host/org/repo?ref=v1: https://host/org/repo at "v1" is not there`},
		{"a user in the address", bases{}, "https://token@host/org/repo", deploy.Unavailable, "remote base https://host/org/repo: "},
		{"too deep", deep, "https://host/org/r0", deploy.Invalid, "remote bases refer to remote bases more than 5 deep"},
		{"a cycle", bases{"https://host/org/repo ": tree("kustomization.yaml", "resources: [\"https://host/org/repo\"]\n")}, "https://host/org/repo", deploy.Invalid, "cycle detected"},
		{"out of its repository", bases{"https://host/org/repo ": tree("kustomization.yaml", "resources: [../../../secret]\n")}, "https://host/org/repo", deploy.Invalid,
			`https://host/org/repo@0000000:kustomization.yaml: resources[0]: "../../../secret" leads out of the repository`},
		{"a file out of its repository", bases{"https://host/org/repo ": tree("kustomization.yaml", "configMapGenerator: [{name: a, files: [k=../../secret/kustomization.yaml]}]\n")}, "https://host/org/repo", deploy.Invalid,
			`configMapGenerator[0].files[0]: "../../secret/kustomization.yaml" leads out of the repository`},
		{"a directory that is not there", bases{"https://host/org/repo ": tree("kustomization.yaml", "")}, "https://host/org/repo//gone", deploy.Invalid,
			"https://host/org/repo@0000000:gone: there is no such directory in the commit"},
		{"without a kustomization", bases{"https://host/org/repo ": tree("dir/a.yaml", "")}, "https://host/org/repo//dir", deploy.Invalid,
			"https://host/org/repo@0000000:dir: the directory has no kustomization.yaml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := tree("app/kustomization.yaml", "resources: [\""+tt.entry+"\"]\n", "secret/kustomization.yaml", "resources: [a.yaml]\n", "secret/a.yaml", service)
			r, err := New(tt.remotes, DefaultLimits()).Build(t.Context(), Request{Tree: fsys, Dir: "app", Options: kubernetes.KustomizeBuild{AnyFile: true}})
			if err == nil || !strings.Contains(err.Error(), tt.want) || deploy.KindOf(err) != tt.kind || !r.Remote {
				t.Errorf("got %v (%v), remote %v, want %s (%v)", err, deploy.KindOf(err), r.Remote, tt.want, tt.kind)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	many := func(n int) string {
		var s strings.Builder
		for i := range n {
			fmt.Fprintf(&s, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d}\n", i)
		}
		return s.String()
	}
	link := tree("app/kustomization.yaml", "resources: [self]\n", "app/self", "-> .")
	tests := []struct {
		name string
		edit func(*Limits)
		fsys fs.FS
		want string
	}{
		{"objects", func(l *Limits) { l.Objects = 20 }, tree("app/kustomization.yaml", "resources: [a.yaml]\n", "app/a.yaml", many(21)), "app/a.yaml: the files of the build hold more than 20 objects; split the application"},
		{"generated objects", func(l *Limits) { l.Objects = 1 }, tree("app/kustomization.yaml", "configMapGenerator: [{name: a}, {name: b}]\n"), "app/kustomization.yaml: it declares 2 objects; expected at most 1"},
		{"bytes of a file", func(l *Limits) { l.Bytes = 100 }, tree("app/kustomization.yaml", "resources: [a.yaml]\n", "app/a.yaml", many(10)), "app/a.yaml: the files of the build have more bytes than the "},
		{"files", func(l *Limits) { l.Files = 1 }, tree("app/kustomization.yaml", "resources: [a.yaml]\n", "app/a.yaml", service), "app/a.yaml: the build reads more than 33554432 bytes or 1 files; split the application"},
		{"bytes of what is built", func(l *Limits) { l.Output = 100 }, tree("app/kustomization.yaml", "resources: [a.yaml]\n", "app/a.yaml", many(10)), "app/kustomization.yaml: its objects have more than 100 bytes; split the application"},
		{"a link to itself", func(l *Limits) { l.Kustomizations = 20 }, link, "the build consists of more than 20 kustomizations; split the application, or remove a symbolic link that leads to itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limits := DefaultLimits()
			tt.edit(&limits)
			_, err := build(t, New(nil, limits), tt.fsys, "app")
			if err == nil || !strings.Contains(err.Error(), tt.want) || !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

// slow is a tree in which one file is opened when it is let.
type slow struct {
	fstest.MapFS
	opened, let chan struct{}
}

func (s slow) Open(name string) (fs.File, error) {
	if name == "app/a.yaml" {
		close(s.opened)
		<-s.let
	}
	return s.MapFS.Open(name)
}

// TestSlowBuild: its caller does not wait beyond the limit, and the next build
// does not begin concurrently.
func TestSlowBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slow{tree("app/kustomization.yaml", "resources: [a.yaml]\n", "app/a.yaml", service), make(chan struct{}), make(chan struct{})}
		b := New(nil, DefaultLimits())
		begin := time.Now()
		_, err := build(t, b, s, "app")
		if !errors.Is(err, ErrSlow) || !deploy.IsKind(err, deploy.Invalid) || time.Since(begin) != time.Minute {
			t.Errorf("the slow one after %s: %v", time.Since(begin), err)
		}
		_, err = build(t, b, s.MapFS, "app")
		want := "app/kustomization.yaml: other kustomizations are still being built after 1m0s; try again later"
		if err == nil || err.Error() != want || !deploy.IsKind(err, deploy.Unavailable) {
			t.Errorf("the one behind it: %v, want %s", err, want)
		}
		close(s.let)
		synctest.Wait()
		if _, err := build(t, b, s.MapFS, "app"); err != nil {
			t.Errorf("once it is over: %v", err)
		}
	})
}

func TestCancelledBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slow{tree("app/kustomization.yaml", "resources: [a.yaml]\n", "app/a.yaml", service), make(chan struct{}), make(chan struct{})}
		b := New(nil, DefaultLimits())
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-s.opened
			cancel()
		}()
		if _, err := b.Build(ctx, Request{Tree: s, Dir: "app"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		close(s.let)
		synctest.Wait()
		if _, err := b.Build(ctx, Request{Tree: s.MapFS, Dir: "app"}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: got %v", err)
		}
	})
}

// Run with -race.
func TestBuildConcurrently(t *testing.T) {
	b := New(nil, DefaultLimits())
	fsys := tree("app/kustomization.yaml", "resources: [a.yaml]\nnamePrefix: a-\n", "app/a.yaml", service)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if r, err := b.Build(t.Context(), Request{Tree: fsys, Dir: "app"}); err != nil || r.Objects[0].GetName() != "a-web" {
				t.Errorf("got %v, %v", r, err)
			}
		})
	}
	wg.Wait()
}

// TestNothingIsRun: with a git on the path that records its calls, none of the
// ways to name something remote runs it or asks a server.
func TestNothingIsRun(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte("#!/bin/sh\necho \"$@\" >> "+calls+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv("http_proxy", "http://127.0.0.1:1")
	const remote = "http://169.254.0.1/org/repo"
	for _, kustomization := range []string{
		"resources: [%q]", "bases: [%q]", "components: [%q]", "crds: [%q]", "configurations: [%q]", "generators: [%q]", "transformers: [%q]", "validators: [%q]",
		"patchesStrategicMerge: [%q]", "patches: [{path: %q}]", "patchesJson6902: [{target: {kind: A, name: b}, path: %q}]", "replacements: [{path: %q}]",
		"configMapGenerator: [{name: a, files: [%q]}]", "configMapGenerator: [{name: a, files: [k=%s]}]", "secretGenerator: [{name: a, envs: [%q]}]", "secretGenerator: [{name: a, env: %q}]",
		"openapi: {path: %q}",
		"transformers: [\"{apiVersion: builtin, kind: PatchTransformer, metadata: {name: a}, Path: '%s'}\"]",
		"generators: [\"{apiVersion: builtin, kind: ConfigMapGenerator, metadata: {name: a}, files: ['k=%s']}\"]",
		"transformers: [plugin.yaml] # %s", "transformers: [plugins] # %s", "generators: [\"git::%s: {}\\napiVersion: v1\\nkind: A\\n\"]",
	} {
		for _, entry := range []string{remote, "git::" + remote, "HTTP://169.254.0.1/org/repo.git", "ssh://git@169.254.0.1/org/repo", "git@169.254.0.1:org/repo", "github.com/org/repo", "file:///org/repo"} {
			k := fmt.Sprintf(kustomization, entry)
			fsys := tree("app/kustomization.yaml", k+"\nnamePrefix: a-\n", "app/plugin.yaml", "apiVersion: builtin\nkind: ReplacementTransformer\nmetadata: {name: a}\nreplacements: [{path: \""+entry+"\"}]\n",
				"app/plugins/kustomization.yaml", "resources: [a.yaml]\npatches: [{target: {kind: PatchTransformer}, patch: '[{\"op\": \"replace\", \"path\": \"/path\", \"value\": \""+entry+"\"}]'}]\n",
				"app/plugins/a.yaml", "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: a}\npath: a.yaml\n")
			if _, err := build(t, New(nil, DefaultLimits()), fsys, "app"); !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("%s: got %v", k, err)
			}
		}
	}
	if data, err := os.ReadFile(calls); err == nil {
		t.Errorf("git was run: %s", data)
	}
}
