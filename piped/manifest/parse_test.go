package manifest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/rest"

	"github.com/c785c783/piped/piped/deploy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestParse compares the result of each case with its golden file: the error, or each
// object's origin and JSON. A case is valid exactly if its name says so.
func TestParse(t *testing.T) {
	for _, file := range cases(t) {
		name := filepath.Base(file)
		if strings.HasSuffix(name, ".golden") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := Parse("apps/web/"+name, data)
			if valid := err == nil; valid != strings.HasPrefix(name, "valid-") {
				t.Errorf("the name of the case and its outcome differ: %v", err)
			}
			got := report(t, objects, err)
			want := file + ".golden"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func cases(tb testing.TB) []string {
	files, err := filepath.Glob("testdata/parse/*")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no cases: %v", err)
	}
	return files
}

func report(t *testing.T, objects []Object, err error) string {
	if err != nil {
		return fmt.Sprintf("%s: %s\n", deploy.KindOf(err), err)
	}
	var b strings.Builder
	b.WriteString("valid\n")
	for _, o := range objects {
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", o.Origin, text)
	}
	return b.String()
}

func TestIntegersStayIntegers(t *testing.T) {
	for file, text := range map[string]string{
		"a.yaml": "apiVersion: v1\nkind: K\nmetadata: {name: a}\ncount: 9007199254740993\n",
		"a.json": `{"apiVersion": "v1", "kind": "K", "metadata": {"name": "a"}, "count": 9007199254740993}`,
	} {
		objects, err := Parse(file, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if n, ok := objects[0].Object["count"].(int64); !ok || n != 9007199254740993 {
			t.Errorf("%s: got %T %[2]v, want int64", file, objects[0].Object["count"])
		}
	}
}

func TestLimits(t *testing.T) {
	const one = "apiVersion: v1\nkind: K\nmetadata: {name: a}\n---\n"
	tests := []struct{ name, text, want string }{
		{"too large", strings.Repeat("#", MaxFileSize+1), "a.yaml: the file has 8388609 bytes; expected at most 8388608"},
		{"too many objects", strings.Repeat(one, MaxObjects+1), "a.yaml:40001: the file holds more than 10000 objects"},
		{
			"grows by its aliases",
			strings.Repeat("apiVersion: v1\nkind: K\nmetadata: {name: a}\nx: &x "+strings.Repeat("x", 300_000)+
				"\ny: ["+strings.Repeat("*x,", 20)+"]\n---\n", 5),
			"a.yaml:13: the file grows beyond 16777216 bytes once its aliases are followed",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("a.yaml", []byte(tt.text))
			if err == nil || err.Error() != tt.want || !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestManyProblemsAreCutShort(t *testing.T) {
	for name, text := range map[string]string{"a.yaml": strings.Repeat("kind: K\n---\n", 60), "a.json": strings.Repeat("[]", 60)} {
		_, err := Parse(name, []byte(text))
		if n := len(strings.Split(err.Error(), "\n")); n != maxProblems {
			t.Errorf("%s: %d problems are reported, want %d", name, n, maxProblems)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, file := range cases(f) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, err := Parse("a.yaml", data)
		if err != nil && (objects != nil || !deploy.IsKind(err, deploy.Invalid)) {
			t.Fatalf("got %v and %v", objects, err)
		}
		for _, o := range objects {
			if o.GetAPIVersion() == "" || o.GetKind() == "" || o.GetName() == "" {
				t.Fatalf("an object without a name was accepted: %v", o.Object)
			}
			before := Digest(o.Unstructured)
			Containers(o.Unstructured)
			Annotate(o.Clone().Unstructured, Ownership{CommitHash: "c"})
			if Digest(o.Unstructured) != before {
				t.Fatal("the object was changed")
			}
		}
	})
}

// TestNamesAreSegmentsOfAPath: a name or namespace that would change the path of a
// request is an error of its file. Valid names are those of
// rest.IsValidPathSegmentName, which client-go checks for every request.
func TestNamesAreSegmentsOfAPath(t *testing.T) {
	for text, valid := range map[string]bool{
		"web": true, "system:node": true, "a..b": true, "Web_1": true, "...": true,
		".": false, "..": false, "../secrets/x": false, "a/b": false, "a%2fb": false, "100%": false, "/": false,
	} {
		for _, metadata := range []string{fmt.Sprintf("{name: %q}", text), fmt.Sprintf("{name: a, namespace: %q}", text)} {
			_, err := Parse("a.yaml", []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: "+metadata))
			if valid != (len(rest.IsValidPathSegmentName(text)) == 0) {
				t.Fatalf("client-go thinks otherwise of %q", text)
			}
			if valid != (err == nil) || err != nil && (!deploy.IsKind(err, deploy.Invalid) || !strings.HasPrefix(err.Error(), "a.yaml:1: ConfigMap: metadata.name")) {
				t.Errorf("%s: got %v, want that it is valid: %v", metadata, err, valid)
			}
		}
	}
}
