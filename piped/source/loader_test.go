package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/piped/source/secret"
)

var at = deploy.GitPath{RepoID: "repo", Dir: "apps/web", ConfigFile: "app.pipecd.yaml"}

func object(kind, name string) string {
	return "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: " + name + "}\n"
}

var kinds = config.Kinds{config.Kubernetes()}

func renderers() map[string]render.Renderer {
	return map[string]render.Renderer{deploy.KindKubernetes: kubernetes.New(kubernetes.Config{})}
}

// kubernetesOf returns the renderer of Kubernetes applications of a loader.
func kubernetesOf(l *Loader) *kubernetes.Renderer {
	return l.Renderers[deploy.KindKubernetes].(*kubernetes.Renderer)
}

// loader serves one tree, whatever the commit, and counts how often.
func loader(fsys fs.FS, cacheBytes int64) (*Loader, *int) {
	var mu sync.Mutex
	count := 0
	return &Loader{Kinds: kinds, Renderers: renderers(), CacheBytes: cacheBytes, Tree: func(repoID, commit string) (fs.FS, error) {
		mu.Lock()
		defer mu.Unlock()
		count++
		return fsys, nil
	}}, &count
}

// names lists what a source declares, as "kind name @ origin".
func names(s *Source) []string {
	var out []string
	for _, o := range s.Objects {
		out = append(out, fmt.Sprintf("%s %s @ %s", o.GetKind(), o.GetName(), o.Origin))
	}
	return out
}

func TestLoad(t *testing.T) {
	tests := []struct {
		name  string
		at    deploy.GitPath
		files fstest.MapFS
		want  []string
	}{
		{
			"every manifest directly in the directory, by name", at,
			files(
				"apps/web/app.pipecd.yaml", head+"  name: web\n",
				"apps/web/other.pipecd.yaml", head+"  name: other\n",
				"apps/web/.pipe.yaml", "old: configuration",
				"apps/web/b.yml", object("ConfigMap", "b1")+"---\n"+object("ConfigMap", "b2"),
				"apps/web/c.json", `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "c"}}`,
				"apps/web/a.yaml", object("Service", "a"),
				"apps/web/README.md", "# not a manifest",
				"apps/web/values.yaml.tpl", "{{ }}",
				"apps/web/sub/d.yaml", "broken: {",
				"apps/web2/e.yaml", object("Service", "e"),
			),
			[]string{
				"Service a @ apps/web/a.yaml:1", "ConfigMap b1 @ apps/web/b.yml:1", "ConfigMap b2 @ apps/web/b.yml:5",
				"Secret c @ apps/web/c.json:1",
			},
		},
		{
			"the named manifests, in their order", at,
			files(
				"apps/web/app.pipecd.yaml", head+"  name: web\n  input: {manifests: [z.yaml, sub/a.yaml]}\n",
				"apps/web/z.yaml", object("Service", "z"),
				"apps/web/sub/a.yaml", object("Service", "a"),
				"apps/web/unnamed.yaml", "broken: {",
			),
			[]string{"Service z @ apps/web/z.yaml:1", "Service a @ apps/web/sub/a.yaml:1"},
		},
		{
			"ordered by annotation, stable among equals", at,
			files(
				"apps/web/app.pipecd.yaml", head+"  name: web\n",
				"apps/web/a.yaml", strings.Join([]string{
					"apiVersion: v1\nkind: A\nmetadata: {name: last, annotations: {pipecd.dev/order: \"10\"}}\n",
					object("B", "first-of-zero"),
					"apiVersion: v1\nkind: C\nmetadata: {name: no-integer, annotations: {pipecd.dev/order: soon}}\n",
					"apiVersion: v1\nkind: D\nmetadata: {name: negative, annotations: {pipecd.dev/order: \"-1\"}}\n",
					object("E", "last-of-zero"),
				}, "---\n"),
			),
			[]string{
				"D negative @ apps/web/a.yaml:13", "B first-of-zero @ apps/web/a.yaml:5", "C no-integer @ apps/web/a.yaml:9",
				"E last-of-zero @ apps/web/a.yaml:17", "A last @ apps/web/a.yaml:1",
			},
		},
		{
			"a kustomization", at,
			files(
				"apps/web/app.pipecd.yaml", head+"  name: web\n",
				"apps/web/kustomization.yaml", "resources: [b.yaml, ../../base]\nnamePrefix: web-\n",
				"apps/web/b.yaml", object("Service", "b"),
				"apps/web/unnamed.yaml", "broken: {",
				"base/kustomization.yaml", "resources: [a.yaml]\n",
				"base/a.yaml", object("Service", "a"),
			),
			[]string{"Service web-a @ apps/web/kustomization.yaml", "Service web-b @ apps/web/kustomization.yaml"},
		},
		{
			"named manifests next to a kustomization", at,
			files(
				"apps/web/app.pipecd.yaml", head+"  name: web\n  input: {manifests: [a.yaml]}\n",
				"apps/web/Kustomization", "broken: {",
				"apps/web/a.yaml", object("Service", "a"),
			),
			[]string{"Service a @ apps/web/a.yaml:1"},
		},
		{
			"at the repository's root", deploy.GitPath{RepoID: "repo", Dir: ".", ConfigFile: "app.pipecd.yaml"},
			files("app.pipecd.yaml", head+"  name: web\n", "a.yaml", object("Service", "a"), "apps/b.yaml", "broken: {"),
			[]string{"Service a @ a.yaml:1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := loader(tt.files, 0)
			s, err := l.Load(t.Context(), tt.at, "c1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, names(s)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if s.Commit != "c1" || s.Config.Name != "web" || s.Digest == "" {
				t.Errorf("got commit %q, application %q, digest %q", s.Commit, s.Config.Name, s.Digest)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	const minimal = head + "  name: web\n"
	tests := []struct {
		name  string
		files fstest.MapFS
		kind  deploy.Kind
		want  string
	}{
		{"no configuration", files("apps/web/a.yaml", object("Service", "a")), deploy.NotFound,
			"apps/web/app.pipecd.yaml: there is no such file in the commit"},
		{"a bad configuration", files("apps/web/app.pipecd.yaml", head+"  name: web\n  timeout: soon\n"), deploy.Invalid,
			`apps/web/app.pipecd.yaml:5: spec.timeout: expected a duration such as 90s or 5m, found "soon"`},
		{"a directory for a configuration", files("apps/web/app.pipecd.yaml/x", ""), deploy.Invalid,
			"apps/web/app.pipecd.yaml: expected a regular file, found a directory"},
		{"a bad manifest", files("apps/web/app.pipecd.yaml", minimal, "apps/web/a.yaml", object("Service", "a")+"---\nkind: Service\n"), deploy.Invalid,
			"apps/web/a.yaml:5: apiVersion is missing; expected a Kubernetes object with apiVersion, kind and metadata.name"},
		{"several bad manifests", files("apps/web/app.pipecd.yaml", minimal, "apps/web/a.yaml", "kind: A\n---\nkind: B\n", "apps/web/b.yaml", object("Service", "b"), "apps/web/c.yaml", "[]"), deploy.Invalid,
			"apps/web/a.yaml:1: apiVersion is missing; expected a Kubernetes object with apiVersion, kind and metadata.name\n" +
				"apps/web/a.yaml:3: apiVersion is missing; expected a Kubernetes object with apiVersion, kind and metadata.name\n" +
				"apps/web/c.yaml:1: expected a Kubernetes object with apiVersion, kind and metadata.name, found a list"},
		{"no manifests", files("apps/web/app.pipecd.yaml", minimal), deploy.Invalid,
			"apps/web/app.pipecd.yaml: the application declares no objects; expected .yaml, .yml or .json manifests next to it"},
		{"only empty manifests", files("apps/web/app.pipecd.yaml", minimal, "apps/web/a.yaml", "# later\n"), deploy.Invalid,
			"apps/web/app.pipecd.yaml: the application declares no objects; expected .yaml, .yml or .json manifests next to it"},
		{"a named manifest that is missing", files("apps/web/app.pipecd.yaml", head+"  name: web\n  input: {manifests: [x.yaml]}\n"), deploy.Invalid,
			"apps/web/app.pipecd.yaml: input.manifests: apps/web/x.yaml: there is no such file in the commit"},
		{"a named manifest that is a directory", files("apps/web/app.pipecd.yaml", head+"  name: web\n  input: {manifests: [x]}\n", "apps/web/x/a.yaml", ""), deploy.Invalid,
			"apps/web/x: expected a regular file, found a directory"},
		{"a manifest outside the directory", files("apps/web/app.pipecd.yaml", head+"  name: web\n  input: {manifests: [../api/a.yaml]}\n", "apps/api/a.yaml", object("Service", "a")), deploy.Invalid,
			`apps/web/app.pipecd.yaml:5: spec.input.manifests[0]: expected the name of a file inside the application's directory, found "../api/a.yaml"`},
		{"one object twice", files("apps/web/app.pipecd.yaml", minimal, "apps/web/a.yaml", object("Service", "a"), "apps/web/b.yaml", object("Service", "a")), deploy.Invalid,
			"apps/web/b.yaml:1: Service a is declared already at apps/web/a.yaml:1; an application declares each object once"},
		{"a kustomization of what is missing", files("apps/web/app.pipecd.yaml", minimal, "apps/web/kustomization.yaml", "resources: [a.yaml]\n"), deploy.Invalid,
			"apps/web/kustomization.yaml: resources[0]: there is no file or directory apps/web/a.yaml"},
		{"a kustomization without objects", files("apps/web/app.pipecd.yaml", minimal, "apps/web/kustomization.yaml", "namePrefix: a-\n"), deploy.Invalid,
			"apps/web/app.pipecd.yaml: the kustomization declares no objects; expected resources or generators"},
		{"an oversized manifest", files("apps/web/app.pipecd.yaml", minimal, "apps/web/a.yaml", strings.Repeat("#", manifest.MaxFileSize+5)), deploy.Invalid,
			"apps/web/a.yaml: the file has 8388609 bytes; expected at most 8388608"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := loader(tt.files, 1<<20)
			for range 2 { // failures are not remembered as successes
				s, err := l.Load(t.Context(), at, "c1")
				if err == nil || err.Error() != tt.want || deploy.KindOf(err) != tt.kind {
					t.Fatalf("got %v, %v (%v), want %s (%v)", s, err, deploy.KindOf(err), tt.want, tt.kind)
				}
			}
		})
	}
}

func TestLoadWhenTheTreeFails(t *testing.T) {
	l := &Loader{Kinds: kinds, Renderers: renderers(), Tree: func(_, _ string) (fs.FS, error) {
		return nil, deploy.Errorf(deploy.Unavailable, "the mirror is not there yet")
	}}
	_, err := l.Load(t.Context(), at, "0123456789abcdef")
	want := "open repository repo at commit 0123456: the mirror is not there yet"
	if err == nil || err.Error() != want || deploy.KindOf(err) != deploy.Unavailable {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := l.Config(t.Context(), at, "0123456789abcdef"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLoadEndsWithItsContext(t *testing.T) {
	l, _ := loader(files(), 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Load(ctx, at, "c1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestConfig(t *testing.T) {
	l, opened := loader(files("apps/web/app.pipecd.yaml", head+"  name: web\n", "apps/web/a.yaml", object("Service", "a")), 1<<20)
	for range 2 {
		c, err := l.Config(t.Context(), at, "c1")
		if err != nil || c.Name != "web" {
			t.Fatalf("got %v, %v", c, err)
		}
	}
	if _, err := l.Load(t.Context(), at, "c1"); err != nil {
		t.Fatal(err)
	}
	before := *opened
	if _, err := l.Config(t.Context(), at, "c1"); err != nil || *opened != before {
		t.Errorf("got %v and %d trees opened, want the remembered configuration", err, *opened-before)
	}
}

func TestDigestFollowsTheDeclaredObjects(t *testing.T) {
	load := func(manifests ...string) string {
		t.Helper()
		fsys := files(append(manifests, "apps/web/app.pipecd.yaml", head+"  name: web\n")...)
		l, _ := loader(fsys, 0)
		s, err := l.Load(t.Context(), at, "c1")
		if err != nil {
			t.Fatal(err)
		}
		return s.Digest
	}
	base := load("apps/web/a.yaml", object("Service", "a"), "apps/web/b.yaml", object("Service", "b"))
	if got := load("apps/web/all.yaml", "# moved\n"+object("Service", "a")+"---\n"+object("Service", "b")); got != base {
		t.Error("the digest changed when the objects only moved between files")
	}
	if got := load("apps/web/a.yaml", object("Service", "a")); got == base {
		t.Error("the digest stayed when an object was removed")
	}
}

func TestRememberedSourcesAreNotShared(t *testing.T) {
	l, opened := loader(files("apps/web/app.pipecd.yaml", head+"  name: web\n", "apps/web/a.yaml", object("Service", "a")), 1<<20)
	for range 3 {
		s, err := l.Load(t.Context(), at, "c1")
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Objects[0].GetName(); got != "a" {
			t.Fatalf("got %s: another caller's change is visible", got)
		}
		s.Objects[0].SetName("changed")
		s.Objects[0] = manifest.Object{}
	}
	if *opened != 1 {
		t.Errorf("the tree was opened %d times, want once", *opened)
	}
}

func TestSourcesAreRememberedByRepositoryCommitAndFile(t *testing.T) {
	l, opened := loader(files(
		"apps/web/app.pipecd.yaml", head+"  name: web\n",
		"apps/web/b.pipecd.yaml", head+"  name: b\n",
		"apps/web/a.yaml", object("Service", "a"),
	), 1<<20)
	other, second := at, at
	other.RepoID, second.ConfigFile = "other", "b.pipecd.yaml"
	for _, load := range []struct {
		at     deploy.GitPath
		commit string
	}{{at, "c1"}, {at, "c2"}, {other, "c1"}, {second, "c1"}} {
		if _, err := l.Load(t.Context(), load.at, load.commit); err != nil {
			t.Fatal(err)
		}
	}
	if *opened != 4 {
		t.Errorf("the tree was opened %d times, want 4", *opened)
	}
}

func TestCacheForgetsWhatWasUsedLongestAgo(t *testing.T) {
	var c cache
	const limit = 3 * (100*memoryFactor + memoryOverhead)
	k := func(i int) key { return key{commit: fmt.Sprint(i)} }
	for i := range 3 {
		c.put(k(i), outcome{size: 100}, limit)
	}
	kept := func(want ...int) {
		t.Helper()
		var got []int
		for i := range 6 {
			if _, ok := c.entries[k(i)]; ok {
				got = append(got, i)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
	kept(0, 1, 2)
	c.get(k(0))
	c.put(k(3), outcome{size: 100}, limit)
	kept(0, 2, 3)
	c.put(k(3), outcome{size: 100}, limit)   // it is there already
	c.put(k(4), outcome{size: limit}, limit) // it does not fit at all
	kept(0, 2, 3)
	c.put(k(5), outcome{}, memoryOverhead) // a smaller limit
	kept(5)
	if c.bytes != memoryOverhead || c.recent.Len() != 1 {
		t.Errorf("got %d bytes in %d entries, want %d in 1", c.bytes, c.recent.Len(), memoryOverhead)
	}
}

// Run with -race.
func TestLoadConcurrently(t *testing.T) {
	l, _ := loader(files("apps/web/app.pipecd.yaml", head+"  name: web\n", "apps/web/a.yaml", object("Service", "a")), 16<<10)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				s, err := l.Load(t.Context(), at, fmt.Sprint((i+j)%5))
				if err != nil {
					t.Error(err)
					return
				}
				s.Objects[0].SetName("mine")
			}
		})
	}
	wg.Wait()
}

// TestWarnings: what works and will not be meant is said with its place, without
// secrets, and at each call.
func TestWarnings(t *testing.T) {
	text := "apiVersion: v1\nkind: Secret\nmetadata: {name: web, annotations: {pipecd.dev/order: \"{{ .encryptedSecrets.password }}\"}}\n"
	l, _ := loader(files("apps/web/app.pipecd.yaml", encrypted, "apps/web/a.yaml", text), 1<<20)
	l.Secrets = secret.New(secret.Placeholders())
	for range 2 { // the second one is remembered
		s, err := l.Load(t.Context(), at, "c1")
		if err != nil {
			t.Fatal(err)
		}
		want := []string{`apps/web/a.yaml:1: Secret web: the annotation pipecd.dev/order is "[redacted]", which is treated as 0; expected an integer, such as "1"`}
		if diff := cmp.Diff(want, s.Warnings); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// TestLoadFrom: files that are no commit are loaded as those of one are, and not
// remembered.
func TestLoadFrom(t *testing.T) {
	l, trees := loader(files(), 1<<20)
	tree := func(name string) fs.FS {
		return files("apps/web/app.pipecd.yaml", head+"  name: web\n", "apps/web/a.yaml", object("Service", name))
	}
	for _, name := range []string{"first", "second"} {
		s, err := l.LoadFrom(t.Context(), tree(name), at, "merge")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"Service " + name + " @ apps/web/a.yaml:1"}, names(s)); diff != "" || s.Commit != "merge" {
			t.Errorf("commit %s (-want +got):\n%s", s.Commit, diff)
		}
	}
	if _, err := l.LoadFrom(t.Context(), files("apps/web/app.pipecd.yaml", head+"  nonsense: web\n"), at, "merge"); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("of a configuration that cannot be used: %v", err)
	}
	if _, err := l.LoadFrom(t.Context(), files(), at, "merge"); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("without a configuration: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := l.LoadFrom(ended, tree("x"), at, "merge"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if *trees != 0 {
		t.Errorf("%d trees of commits were opened", *trees)
	}
}
