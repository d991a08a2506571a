package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGoldenAnalysisTemplates(t *testing.T) {
	golden(t, "template", func(data []byte) string {
		if !IsAnalysisTemplates(data) {
			t.Errorf("it is not meant to hold templates:\n%s", data)
		}
		_, warnings, err := ParseAnalysisTemplates(".pipe/analysis.yaml", data)
		return report(warnings, err)
	})
}

// TestWhichFilesHoldTemplates: other kinds are passed over, and broken files are
// known by their kind.
func TestWhichFilesHoldTemplates(t *testing.T) {
	for text, want := range map[string]bool{
		"kind: AnalysisTemplate":                                  true,
		"apiVersion: x\nkind:   \"AnalysisTemplate\"\nspec: ]":    true,
		`{"apiVersion": "x", "kind": "AnalysisTemplate"}`:         true,
		"{\n  \"kind\": \"AnalysisTemplate\",\n  \"spec\": {}\n}": true,
		"kind: EventWatcher":                                      false,
		"kind: AnalysisTemplates":                                 false,
		"spec: {text: \"of kind: AnalysisTemplate\"}":             false,
		"": false,
	} {
		if got := IsAnalysisTemplates([]byte(text)); got != want {
			t.Errorf("%q holds templates: %t, want %t", text, got, want)
		}
	}
	for name, want := range map[string]bool{
		".pipe/a.yaml": true, ".pipe/a.yml": true, ".pipe/a.json": true,
		".pipe/a.txt": false, ".pipe/dir/a.yaml": false, "web/.pipe/a.yaml": false, "a.yaml": false,
	} {
		if got := IsShared(name); got != want {
			t.Errorf("%s is shared: %t, want %t", name, got, want)
		}
	}
}

// TestTemplatesOfSeveralFiles: one name in two files is neither's.
func TestTemplatesOfSeveralFiles(t *testing.T) {
	file := func(spec string) []byte {
		return []byte("apiVersion: " + APIVersion + "\nkind: AnalysisTemplate\nspec: " + spec + "\n")
	}
	var all AnalysisTemplates
	all.Add(".pipe/a.yaml", file("{metrics: {one: {interval: 1m}, both: {interval: 1m}}}"))
	all.Add(".pipe/b.yaml", file("{metrics: {both: {interval: 2m}, two: {interval: 1m}}, logs: {both: {interval: 1m}}}"))
	all.Add(".pipe/c.yaml", []byte("kind: EventWatcher"))
	var names []string
	for _, name := range []string{"one", "two", "both"} {
		if _, ok := all.Metrics[name]; ok {
			names = append(names, name)
		}
	}
	if diff := cmp.Diff([]string{"one", "two"}, names); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	if _, ok := all.Logs["both"]; !ok {
		t.Error("a template of logs is gone because one of metrics has its name")
	}
	const want = ".pipe/b.yaml: spec.metrics.both: the template is also in .pipe/a.yaml; keep one of them"
	if len(all.Broken) != 1 || all.Broken[0].Error() != want {
		t.Errorf("broken: %v, want %q", all.Broken, want)
	}
}
