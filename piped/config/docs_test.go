package config

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/schema"
)

// examples returns the YAML blocks of pages of docs/reference.
func examples(t *testing.T, pages ...string) (blocks []string, text string) {
	t.Helper()
	for _, page := range pages {
		content, err := os.ReadFile("../../docs/reference/" + page)
		if err != nil {
			t.Fatal(err)
		}
		text += string(content)
	}
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks, text
}

var opened = regexp.MustCompile(`config<\w+>`)

// simple writes a key of a schema as an example has it.
func simple(key string) string {
	key = opened.ReplaceAllString(key, "config")
	key = strings.Replace(key, "with<K8S_TRAFFIC_ROUTING>.analysis.", "with<ANALYSIS>.", 1) // the same keys
	return strings.Replace(key, "cloudProviders[]", "platformProviders[]", 1)
}

// document returns an example as a whole file.
func document(example, kind, add string) string {
	if strings.Contains(example, "apiVersion: "+APIVersion) {
		return example
	}
	head := "apiVersion: " + APIVersion + "\nkind: " + kind + "\nspec:\n"
	if add != "" && !strings.HasPrefix(example, "name:") {
		head += "  " + add + "\n"
	}
	return head + "  " + strings.ReplaceAll(strings.TrimSpace(example), "\n", "\n  ") + "\n"
}

func TestDocsOfTheAgent(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	blocks, _ := examples(t, "agent.md")
	for i, example := range blocks {
		blocks[i] = document(example, KindPiped, "")
		if _, _, err := kinds.ParsePiped("agent.md", []byte(blocks[i])); err != nil {
			t.Errorf("an example does not parse:\n%s\n%v", blocks[i], err)
		}
	}
	compareExamples(t, blocks, kinds.PipedSchema()["$defs"].(schema.Schema)["spec"].(schema.Schema))
}

func TestDocsOfApplications(t *testing.T) {
	blocks, text := examples(t, "application.md", "stages.md")
	supported := 0
	for i, example := range blocks {
		blocks[i] = document(example, kubernetesFile, "name: example")
		if IsAnalysisTemplates([]byte(blocks[i])) {
			if _, _, err := ParseAnalysisTemplates("stages.md", []byte(blocks[i])); err != nil {
				t.Errorf("an example does not parse:\n%s\n%v", blocks[i], err)
			}
			continue
		}
		_, d, err := kinds.readApplication("application.md", []byte(blocks[i])) // also what this version refuses
		if err == nil {
			err = d.Err()
		}
		if err != nil {
			t.Errorf("an example does not parse:\n%s\n%v", blocks[i], err)
		}
		if _, err := kinds.ParseApplication("application.md", []byte(blocks[i])); err == nil {
			supported++
		}
	}
	if supported != len(blocks)-2 { // without resourceRoutes and the templates
		t.Errorf("%d of %d examples are for this version", supported, len(blocks))
	}
	var sections []string
	for _, heading := range regexp.MustCompile("(?m)^## (`[A-Z].*)$").FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`([A-Z0-9_]+)`").FindAllStringSubmatch(heading[1], -1) {
			sections = append(sections, name[1])
		}
	}
	slices.Sort(sections)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(kinds[0].StageOptions())), sections); diff != "" {
		t.Errorf("stages with a section in stages.md (-want +got):\n%s", diff)
	}
	compareExamples(t, blocks, kinds[0].applicationSchema(schema.Refused{})["$defs"].(schema.Schema)["spec"].(schema.Schema))
}

// compareExamples fails unless each key is in an example, or in a comment of one that
// begins with "# or".
func compareExamples(t *testing.T, examples []string, spec schema.Schema) {
	t.Helper()
	shown := map[string]bool{}
	for _, text := range examples {
		var file struct {
			Spec yaml.Node `yaml:"spec"`
		}
		if err := yaml.Unmarshal([]byte(text), &file); err != nil {
			t.Fatal(err)
		}
		keysOf("", &file.Spec, shown)
	}
	all := strings.Join(examples, "")
	for _, key := range schema.Keys(spec) {
		name := key[strings.LastIndex(key, ".")+1:]
		if !shown[simple(key)] && !shown[key] && !strings.Contains(all, "# or "+name+":") {
			t.Errorf("no example of docs/reference has %s", key)
		}
	}
}

func keysOf(path string, n *yaml.Node, into map[string]bool) {
	switch n.Kind {
	case yaml.SequenceNode:
		for _, item := range n.Content {
			keysOf(path+"[]", item, into)
		}
	case yaml.MappingNode:
		stage := ""
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == "name" && path == "pipeline.stages[]" {
				stage = n.Content[i+1].Value
			}
		}
		for i := 0; i < len(n.Content); i += 2 {
			at := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			into[at] = true
			if at == "pipeline.stages[].with" {
				at += "<" + stage + ">"
			}
			keysOf(at, n.Content[i+1], into)
		}
	}
}
