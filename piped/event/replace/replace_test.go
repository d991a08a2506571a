package replace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config"
)

// TestApply: each case holds a replacement, the value, the file before, and the file
// after or the error.
func TestApply(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("cases: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			parts := map[string]string{}
			for _, f := range archive.Files {
				parts[f.Name] = string(f.Data)
			}
			var r config.Replacement
			if err := yaml.Unmarshal([]byte(parts["replacement"]), &r); err != nil {
				t.Fatal(err)
			}
			value := strings.TrimSuffix(parts["value"], "\n")
			got, err := Apply([]byte(parts["before"]), r, value)
			if want, fails := parts["error"]; fails {
				if err == nil || err.Error() != strings.TrimSpace(want) {
					t.Fatalf("got %q, %v, want the error %s", got, err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parts["after"], string(got)); diff != "" {
				t.Errorf("after (-want +got):\n%s", diff)
			}
			again, err := Apply(got, r, value)
			if r.Regex == "" && (err != nil || string(again) != string(got)) {
				t.Errorf("a second time it gives %q, %v", again, err)
			}
		})
	}
}

// TestApplyKeepsBytes covers what txtar cannot represent: CRLF, a byte order mark, no
// final line break.
func TestApplyKeepsBytes(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"CRLF":             {"a: 1\r\nb:\r\n  tag: v1 # c\r\nc: 2\r\n", "a: 1\r\nb:\r\n  tag: v2 # c\r\nc: 2\r\n"},
		"byte order mark":  {"\xef\xbb\xbfb: {tag: v1}\n", "\xef\xbb\xbfb: {tag: v2}\n"},
		"no end of line":   {"b:\n  tag: v1", "b:\n  tag: v2"},
		"block at the end": {"b:\n  tag: |\n    v1", "b:\n  tag: v2"},
	} {
		got, err := Apply([]byte(c.before), config.Replacement{YAMLField: "$.b.tag"}, "v2")
		if err != nil || string(got) != c.after {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.after)
		}
	}
	if _, err := Apply([]byte("b: \xff"), config.Replacement{YAMLField: "$.b"}, "v2"); err == nil {
		t.Error("a file that is no text was taken")
	}
	if _, err := Apply([]byte("b: 1"), config.Replacement{}, "v2"); err == nil {
		t.Error("a replacement without a place was taken")
	}
}

// TestApplyToManyPlaces: any number of places is replaced at once, but only a hundred if
// their types would change.
func TestApplyToManyPlaces(t *testing.T) {
	const n = 1000
	before := strings.Repeat("- {tag: v1}\n", n)
	got, err := Apply([]byte(before), config.Replacement{YAMLField: "$[*].tag"}, "v2")
	if err != nil || string(got) != strings.ReplaceAll(before, "v1", "v2") {
		t.Errorf("%v, %d bytes", err, len(got))
	}
	if got, err = Apply([]byte(before), config.Replacement{YAMLField: "$[*].tag"}, "2"); err == nil || !strings.Contains(err.Error(), "1000 places") {
		t.Errorf("%v, %d bytes", err, len(got))
	}
}

func FuzzApply(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		parts := map[string]string{}
		for _, part := range txtar.Parse(data).Files {
			parts[part.Name] = string(part.Data)
		}
		var r config.Replacement
		if err := yaml.Unmarshal([]byte(parts["replacement"]), &r); err != nil {
			f.Fatal(err)
		}
		f.Add(parts["before"], r.YAMLField, r.JSONField, r.HCLField, r.Regex, parts["value"])
	}
	f.Fuzz(func(t *testing.T, before, yamlField, jsonField, hclField, regex, value string) {
		r := config.Replacement{YAMLField: yamlField, JSONField: jsonField, HCLField: hclField, Regex: regex}
		got, err := Apply([]byte(before), r, value)
		if err != nil || yamlField == "" && jsonField == "" && hclField == "" {
			return // the result need not match the regular expression again
		}
		// The written value is found again.
		again, err := Apply(got, r, value)
		if err != nil || string(again) != string(got) {
			t.Errorf("%q in %q gives %q, and then %q, %v", value, before, got, again, err)
		}
	})
}
