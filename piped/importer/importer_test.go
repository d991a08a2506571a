package importer

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

func TestImage(t *testing.T) {
	for text, want := range map[string]map[string]any{
		"web":                           {"name": "web"},
		"web:v1":                        {"name": "web", "newTag": "v1"},
		"web=registry.example:5000/web": {"name": "web", "newName": "registry.example:5000/web"},
		"registry.example:5000/web:v1":  {"name": "registry.example:5000/web", "newTag": "v1"},
		"web=other/web:v1@sha256:00":    {"name": "web", "newName": "other/web", "newTag": "v1", "digest": "sha256:00"},
	} {
		if diff := cmp.Diff(want, image(text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// TestGlobs matches as Argo CD does: a star also stands for slashes.
func TestGlobs(t *testing.T) {
	for pattern, names := range map[string]map[string]bool{
		"*.yaml":          {"a.yaml": true, "x/a.yaml": true, "a.yml": false},
		"{a,b}.yaml":      {"a.yaml": true, "b.yaml": true, "c.yaml": false},
		"{x/*,*.draft.*}": {"x/y/a.yaml": true, "a.draft.yaml": true, "a.yaml": false},
		"a?.yaml":         {"ab.yaml": true, "a.yaml": false},
		"a.yaml,b.yaml":   {"a.yaml": false, "a.yaml,b.yaml": true},
	} {
		expression, err := globs(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range names {
			if got := expression.MatchString(name); got != want {
				t.Errorf("%s matches %s: %v", pattern, name, got)
			}
		}
	}
	if _, err := globs("{a"); err == nil {
		t.Error("an open brace is not refused")
	}
}

func TestJQPointer(t *testing.T) {
	for expression, want := range map[string]string{
		".spec.replicas": "/spec/replicas",
		`.metadata.annotations["example.com/a~b"]`:                                        "/metadata/annotations/example.com~1a~0b",
		`.metadata.labels."app.kubernetes.io/name"`:                                       "/metadata/labels/app.kubernetes.io~1name",
		`.spec.template.spec.containers[] | select(.name == "web") | .image`:              "/spec/template/spec/containers[name=web]/image",
		`.spec.template.spec.containers[]?|select(.name=="web").env[]|select(.name=="A")`: "/spec/template/spec/containers[name=web]/env[name=A]",
		".spec.containers[0].image":                                                       "", ".": "", "": "", ".spec | keys": "", `.spec.a[] | select(.name | test("x"))`: "", `[].a`: "",
	} {
		if got, ok := jqPointer(expression); got != want && ok || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", expression, got, ok, want)
		}
	}
}

func TestRelative(t *testing.T) {
	for _, c := range [][3]string{
		{"a/b", "a/c/d", "../c/d"}, {"a/b", "a/b", "."}, {"a/b", "a", ".."}, {"a", ".", ".."}, {".", "a/b", "a/b"}, {"piped/web", "web", "../../web"}, {"a", "ab", "../ab"},
	} {
		if got := relative(c[0], c[1]); got != c[2] {
			t.Errorf("%s from %s: %q, want %q", c[1], c[0], got, c[2])
		}
	}
}

func TestSameRemote(t *testing.T) {
	const remote = "https://git.example.com/team/apps.git"
	for address, want := range map[string]bool{
		"https://git.example.com/team/apps": true, "https://user@git.example.com/team/apps/": true, "git@git.example.com:team/apps.git": true,
		"ssh://git@git.example.com/team/apps": true, "ssh://git@git.example.com:22/team/apps.git": true, "https://GIT.example.com/team/apps": true,
		"https://git.example.com/team/other": false, "https://example.com/team/apps": false, "https://git.example.com/other/team/apps": false, "": false,
	} {
		if got := sameRemote(remote, address); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

// TestInventory reads the records of both tools; hooks of Argo CD are no objects that stay.
func TestInventory(t *testing.T) {
	documents, err := Parse("status.yaml", []byte(`status:
  resources:
    - {group: apps, version: v1, kind: Deployment, namespace: shop, name: web}
    - {group: batch, version: v1, kind: Job, namespace: shop, name: migrate, hook: true}
  inventory:
    entries:
      - {id: shop_web__ConfigMap, v: v1}
      - {id: _system__web_rbac.authorization.k8s.io_ClusterRole, v: v1}
      - {id: broken, v: v1}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range inventory(documents[0]) {
		got = append(got, o.GetAPIVersion()+" "+o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
	}
	want := []string{"apps/v1 Deployment shop/web", "v1 ConfigMap shop/web", "rbac.authorization.k8s.io/v1 ClusterRole /system:web"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestParse reads lists and refuses what is no object.
func TestParse(t *testing.T) {
	documents, err := Parse("list.yaml", []byte("kind: List\nitems: [{kind: A}, {kind: List, items: [{kind: B}]}]\n---\n---\nkind: C\n"))
	if err != nil || len(documents) != 3 || documents[1].kind() != "B" || documents[2].kind() != "C" {
		t.Errorf("got %v, %v", documents, err)
	}
	for _, text := range []string{"[1]\n", "text\n", "{a\n", "{1: 2}\n", "kind: A\n---\n{b\n"} {
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "x.yaml: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestSetIsDeletedFirst: an ApplicationSet makes its Applications again, so that it goes, and leaves
// them, before the first is deleted.
func TestSetIsDeletedFirst(t *testing.T) {
	const application = "spec: {source: {repoURL: git@git.example.com:team/apps.git, path: web}, destination: {name: in-cluster}}"
	for name, text := range map[string]string{
		"set": "{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, metadata: {name: shop, namespace: tools}, " +
			"spec: {generators: [{list: {elements: [{name: a}, {name: b}]}}], template: {metadata: {name: '{{name}}'}, " + application + "}}}",
		"live": "{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a, namespace: tools, ownerReferences: [{kind: ApplicationSet, name: shop}]}, " + application + "}",
	} {
		documents, err := Parse("shop.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		results, err := Convert(t.Context(), Request{Documents: documents, Checkout: Checkout{Files: fstest.MapFS{"web/web.yaml": {Data: []byte("kind: ConfigMap\n")}}}})
		if err != nil || len(results) == 0 {
			t.Fatalf("%s: %v, %v", name, results, err)
		}
		for _, r := range results {
			plan := strings.Join(r.Plan, "\n")
			set, first := strings.Index(plan, "kubectl -n tools delete applicationset shop --cascade=orphan"), strings.Index(plan, "kubectl -n tools delete application "+r.Document.name())
			if set < 0 || first < set {
				t.Errorf("%s of %s:\n%s", r.Document, name, plan)
			}
		}
	}
}

// FuzzConvert converts any documents without a crash. What is written lies in the checkout, and
// what is not written has a reason.
func FuzzConvert(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(paths) < 40 {
		f.Fatalf("%d samples, %v", len(paths), err)
	}
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		var text []byte
		for _, file := range archive.Files {
			if !strings.Contains(file.Name, "/") && strings.HasSuffix(file.Name, ".yaml") {
				text = append(append(text, file.Data...), "---\n"...)
			}
		}
		f.Add(text)
	}
	tree := fstest.MapFS{
		"web/web.yaml": {Data: []byte("kind: ConfigMap\n")}, "web/kustomization.yaml": {Data: []byte("resources: [web.yaml]\n")},
		"charts/web/Chart.yaml": {Data: []byte("name: web\n")}, "charts/web/values.yaml": {Data: []byte("a: 1\n")},
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		documents, err := Parse("fuzz.yaml", data)
		if err != nil {
			return
		}
		results, err := Convert(t.Context(), Request{Documents: documents, Dir: "piped", Checkout: Checkout{Files: tree}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Blocked() && len(r.Files) > 0 || len(r.Configs) == 0 && len(r.Findings) == 0 {
				t.Errorf("%s: files %v, findings %v", r.Document, r.Files, r.Findings)
			}
			for _, file := range r.Files {
				if _, ok := inside(file.Path); !ok || strings.HasPrefix(file.Path, "/") || file.Path != filepath.Clean(file.Path) {
					t.Errorf("%s is written", file.Path)
				}
			}
		}
	})
}
