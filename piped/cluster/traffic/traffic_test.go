package traffic

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

var update = flag.Bool("update", false, "write what the cases lead to into their files")

// TestCases runs the files of testdata: routing and shares, the objects of Git, and
// the objects that come of it, or the error.
func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]*txtar.File{}
			for i := range archive.Files {
				parts[archive.Files[i].Name] = &archive.Files[i]
			}
			routing, shares, git := readCase(t, parts)
			before := manifest.Clone(git)
			got := outcome(routing.Apply(git, shares))
			if diff := cmp.Diff(before, git); diff != "" {
				t.Errorf("the objects of Git changed (-before +after):\n%s", diff)
			}
			want := parts["want"]
			if want == nil {
				t.Fatal("the case has no part want")
			}
			if *update {
				want.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again, err := routing.Apply(git, Stable())
			if diff := cmp.Diff(git, again); err != nil || diff != "" {
				t.Errorf("stable shares do not give what Git has: %v\n%s", err, diff)
			}
		})
	}
}

func readCase(t *testing.T, parts map[string]*txtar.File) (r Routing, s Shares, git []manifest.Object) {
	t.Helper()
	for name, into := range map[string]any{"routing": &r, "shares": &s} {
		if parts[name] == nil {
			t.Fatalf("the case has no part %s", name)
		}
		if err := yaml.UnmarshalStrict(parts[name].Data, into); err != nil {
			t.Fatal(err)
		}
	}
	r.Label.Key, r.Label.PrimaryValue, r.Label.CanaryValue, r.Label.BaselineValue = "pipecd.dev/variant", "primary", "canary", "baseline"
	git, err := manifest.Parse("web/app.yaml", parts["git"].Data)
	if err != nil {
		t.Fatal(err)
	}
	return r, s, git
}

// outcome writes objects, or the error of which the kind must be Invalid.
func outcome(objects []manifest.Object, err error) string {
	if err != nil {
		if !deploy.IsKind(err, deploy.Invalid) {
			return "of the wrong kind: " + err.Error() + "\n"
		}
		return "error: " + err.Error() + "\n"
	}
	var text strings.Builder
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return err.Error()
		}
		text.WriteString("---\n" + string(data))
	}
	return text.String()
}
