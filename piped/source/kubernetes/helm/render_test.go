package helm

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

var update = flag.Bool("update", false, "rewrite what the cases want")

// request is request.yaml of a case: what is asked for.
type request struct {
	HelmChart    kubernetes.HelmChart
	HelmOptions  kubernetes.HelmOptions
	Namespace    string
	Capabilities Capabilities
	// Differs says why Helm gives something else.
	Differs string
}

// TestRender renders each case of testdata/render: a repository with the
// application in app/, what is asked for, and what it renders to.
func TestRender(t *testing.T) {
	files, err := filepath.Glob("testdata/render/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("cases: %d, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, req := readCase(t, name)
			got := report(t, req)
			want := archive.Files[len(archive.Files)-1]
			if want.Name != "want" {
				t.Fatalf("the last file is %s", want.Name)
			}
			if *update {
				archive.Files[len(archive.Files)-1].Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("rendered (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHelmRendersTheSame compares what the templates of each case write with what
// Helm's engine has them write.
func TestHelmRendersTheSame(t *testing.T) {
	files, err := filepath.Glob("testdata/render/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, name := range files {
		_, req := readCase(t, name)
		if req.Differs != "" {
			continue
		}
		r := &rendering{Renderer: newRenderer(t), Request: req.Request, left: budget{files: 100, bytes: 1 << 20}}
		r.remotes = r.Renderer.remotes.Load()
		c, err := r.chart(t.Context())
		if err != nil {
			continue
		}
		values, err := r.values(t.Context())
		if err != nil {
			continue
		}
		scope, err := r.scope(t.Context(), c, values)
		if err != nil {
			continue
		}
		want, wantErr := engine.Engine{}.RenderWithContext(t.Context(), c, scope)
		got, gotErr := execute(t.Context(), c, scope, r.limits)
		if (wantErr != nil) != (gotErr != nil) {
			t.Errorf("%s: Helm: %v; here: %v", name, wantErr, gotErr)
			continue
		}
		maps.DeleteFunc(want, func(name, _ string) bool { return filepath.Base(name) == "NOTES.txt" })
		if diff := cmp.Diff(want, outputs(got)); gotErr == nil && diff != "" {
			t.Errorf("%s (-Helm +here):\n%s", name, diff)
		}
		compared++
	}
	if compared < 10 {
		t.Errorf("only %d cases were compared", compared)
	}
}

func outputs(all []output) map[string]string {
	out := map[string]string{}
	for _, o := range all {
		out[o.name] = o.text
	}
	return out
}

type asked struct {
	Request
	Differs string
}

func readCase(t *testing.T, name string) (*txtar.Archive, asked) {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := txtar.FS(archive)
	if err != nil {
		t.Fatal(err)
	}
	data, err := fs.ReadFile(tree, "request.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var req request
	if err := yaml.UnmarshalStrict(data, &req); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return archive, asked{Differs: req.Differs, Request: Request{
		Tree: tree, Dir: "app", Chart: req.HelmChart, Options: req.HelmOptions, ReleaseName: "shop", Namespace: req.Namespace, Capabilities: req.Capabilities,
	}}
}

func newRenderer(t *testing.T) *Renderer {
	t.Helper()
	r, err := New(Config{AllowedHosts: []string{"127.0.0.1", "localhost"}}) // where the tests' servers are
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// report writes what a request renders to, or its error.
func report(t *testing.T, req asked) string {
	t.Helper()
	result, err := newRenderer(t).Render(t.Context(), req.Request)
	if err != nil {
		return fmt.Sprintf("%s: %v\n", deploy.KindOf(err), err)
	}
	var out strings.Builder
	for _, o := range result.Objects {
		fmt.Fprintf(&out, "# %s", o.Origin)
		if h := o.Hook; h.Phase != "" {
			fmt.Fprintf(&out, "; hook %s, weight %d, install %t, upgrade %t, delete on success %t, on failure %t",
				h.Phase, h.Weight, h.Install, h.Upgrade, h.DeleteOnSuccess, h.DeleteOnFailure)
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "\n---\n%s", text)
	}
	return out.String()
}

// TestRenderIsDeterministic: charts with dependencies are read in no order.
func TestRenderIsDeterministic(t *testing.T) {
	files, err := filepath.Glob("testdata/render/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		_, req := readCase(t, name)
		seen := map[string]bool{}
		for range 10 {
			seen[report(t, req)] = true
		}
		if len(seen) != 1 {
			t.Errorf("%s: %d results:\n%s", name, len(seen), strings.Join(slices.Sorted(maps.Keys(seen)), "\n\n"))
		}
	}
}
