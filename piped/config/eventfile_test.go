package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseEventRules(t *testing.T) {
	const head = "apiVersion: pipecd.dev/v1beta1\nkind: EventWatcher\nspec:\n"
	rules, _, err := ParseEventRules(".pipe/a.yaml", []byte(head+`  events:
    - name: image
      labels: {app: web}
      replacements:
        - {file: apps/web/deployment.yaml, yamlField: $.spec.image}
        - {file: Makefile, regex: "TAG=(.*)"}
`))
	want := []EventRule{{
		Matcher: EventMatcher{Name: "image", Labels: map[string]string{"app": "web"}},
		Handler: EventHandler{Type: HandlerGitUpdate, Config: GitUpdate{Replacements: []Replacement{
			{File: "apps/web/deployment.yaml", YAMLField: "$.spec.image"}, {File: "Makefile", Regex: "TAG=(.*)"},
		}}},
	}}
	if diff := cmp.Diff(want, rules); err != nil || diff != "" {
		t.Errorf("rules, %v (-want +got):\n%s", err, diff)
	}
	for name, other := range map[string]string{
		"another kind":                  strings.ReplaceAll(head, "EventWatcher", "AnalysisTemplate"),
		"something else":                "a: [",
		"another kind that names this":  strings.ReplaceAll(head, "kind: EventWatcher", "kind: Other") + "  kind: EventWatcher\n",
		"no file of ours that names it": "text: kind EventWatcher",
	} {
		if rules, _, err := ParseEventRules(".pipe/a.yaml", []byte(other)); rules != nil || err != nil {
			t.Errorf("%s: %v, %v", name, rules, err)
		}
	}
	_, _, err = ParseEventRules(".pipe/a.yaml", []byte(head+`  events:
    - replacements: [{file: ../x, yamlField: spec.image}, {file: x}, {file: x, regex: "a"}]
    - name: b
`))
	wantError := strings.TrimPrefix(`
.pipe/a.yaml:5: spec.events[0].name: required; expected an event's name
.pipe/a.yaml:5: spec.events[0].replacements[0].file: expected the path of a file from the repository's root, found "../x"
.pipe/a.yaml:5: spec.events[0].replacements[0].yamlField: expected a path such as $.spec.replicas, found "spec.image"
.pipe/a.yaml:5: spec.events[0].replacements[1]: expected exactly one of yamlField, jsonField, HCLField and regex, found 0
.pipe/a.yaml:5: spec.events[0].replacements[2].regex: expected a group, such as image:(.*), which is what is replaced; found "a"
.pipe/a.yaml:6: spec.events[1].replacements: expected at least one replacement`, "\n")
	if err == nil || cmp.Diff(wantError, err.Error()) != "" {
		t.Errorf("problems (-want +got):\n%s", cmp.Diff(wantError, err.Error()))
	}
}

func TestEventWatcherReads(t *testing.T) {
	w := EventWatcher{GitRepos: []EventWatcherRepository{{RepoID: "a", Includes: patterns(t, "prod/*.yaml"), Excludes: patterns(t, "prod/old.yaml")}}}
	for _, c := range []struct {
		repo, file string
		want       bool
	}{
		{"a", "prod/web.yaml", true}, {"a", "prod/old.yaml", false}, {"a", "web.yaml", false}, {"b", "web.yaml", true},
	} {
		if got := w.Of(c.repo).Reads(c.file); got != c.want {
			t.Errorf("%s of %s is read: %v", c.file, c.repo, got)
		}
	}
}
