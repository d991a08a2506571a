package config

import (
	"fmt"
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

// reference is what docs/reference says of one file. Keys are
// written as schema.Keys does, with what a type opens standing behind no value.
type reference struct {
	defaults map[string]string // by documented key: what its row says of the default
	marked   []string          // keys marked as our own
	own      []string          // keys in the table of our own
	stages   []string          // that have a section
	unsaid   []string          // options whose row leaves a cell empty
	examples []string
}

// readReference reads the reference of the agent's configuration and that of
// applications.
func readReference(t *testing.T) (agent, application *reference) {
	t.Helper()
	var text []byte
	for _, page := range []string{"reference/agent.md", "reference/application.md", "reference/stages.md", "pipecd-differences.md"} {
		content, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, content...)
	}
	agent, application = &reference{defaults: map[string]string{}}, &reference{defaults: map[string]string{}}
	var current *reference
	var section, table, block string
	var stages []string // of the section
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case block != "" && line == "```":
			current.examples = append(current.examples, strings.TrimPrefix(block, "\n"))
			block = ""
		case block != "":
			block += line + "\n"
		case strings.HasPrefix(line, "## "):
			section = strings.TrimPrefix(line, "## ")
			current = map[string]*reference{
				"Configuration of the agent (`kind: Piped`)":          agent,
				"Configuration of an application (`app.pipecd.yaml`)": application,
				"Stages":          application,
				"Keys of our own": agent,
			}[section]
		case line == "Of an application:":
			current = application
		case current == nil:
		case strings.HasPrefix(line, "#"):
			stages = spans(line)
			current.stages = append(current.stages, stages...)
		case line == "```yaml":
			block = "\n"
		case !strings.HasPrefix(line, "|"):
			table = ""
		case table == "":
			table = strings.Fields(line)[1]
		case !strings.HasPrefix(line, "|---"):
			current.row(table, stages, section == "Keys of our own", strings.Split(strings.Trim(line, "|"), "|"))
		}
	}
	return agent, application
}

// row reads a row of a table of keys, or of the options of stages.
func (r *reference) row(table string, stages []string, own bool, cells []string) {
	keys := spans(cells[0])
	if table == "option" {
		var all []string
		for _, stage := range stages {
			for _, option := range keys {
				all = append(all, "pipeline.stages[].with<"+stage+">."+option)
			}
		}
		keys = all
		if slices.ContainsFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) == "" }) {
			r.unsaid = append(r.unsaid, keys...)
		}
	}
	for _, key := range keys {
		if own {
			r.own = append(r.own, key)
			continue
		}
		r.defaults[key] += cells[2]
		if strings.Contains(cells[0], "*") {
			r.marked = append(r.marked, key)
		}
	}
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// spans returns the keys in a cell; one that begins with a point stands beside
// the one before.
func spans(cell string) []string {
	var out []string
	for _, m := range codeSpan.FindAllStringSubmatch(cell, -1) {
		key := m[1]
		if strings.HasPrefix(key, ".") {
			last := out[len(out)-1]
			key = last[:strings.LastIndex(last, ".")] + key
		}
		out = append(out, strings.TrimSuffix(key, "[]"))
	}
	return out
}

var opened = regexp.MustCompile(`config<\w+>`)

// simple writes a key of a schema as the reference does.
func simple(key string) string {
	key = opened.ReplaceAllString(key, "config")
	key = strings.Replace(key, "with<K8S_TRAFFIC_ROUTING>.analysis.", "with<ANALYSIS>.", 1) // the same keys
	return strings.Replace(key, "cloudProviders[]", "platformProviders[]", 1)
}

// document returns an example as a whole file.
func document(example, kind, add string) string {
	if strings.HasPrefix(example, "apiVersion:") {
		return example
	}
	head := "apiVersion: " + APIVersion + "\nkind: " + kind + "\nspec:\n"
	if add != "" && !strings.HasPrefix(example, "name:") {
		head += "  " + add + "\n"
	}
	return head + "  " + strings.ReplaceAll(strings.TrimSpace(example), "\n", "\n  ") + "\n"
}

func TestReferenceOfTheAgent(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	r, _ := readReference(t)
	spec := PipedSchema()["$defs"].(schema.Schema)["spec"].(schema.Schema)
	compare(t, r, spec)
	for i, example := range r.examples {
		text := document(example, KindPiped, "")
		r.examples[i] = text
		if _, _, err := ParsePiped("docs", []byte(text)); err != nil {
			t.Errorf("an example of docs does not parse:\n%s\n%v", text, err)
		}
	}
	compareExamples(t, r, spec)
}

func TestReferenceOfApplications(t *testing.T) {
	_, r := readReference(t)
	spec := applicationSchema(schema.Refused{})["$defs"].(schema.Schema)["spec"].(schema.Schema)
	compare(t, r, spec)
	supported := 0
	for i, example := range r.examples {
		text := document(example, KindKubernetesApp, "name: example")
		r.examples[i] = text
		_, d, err := readApplication("docs", []byte(text)) // what later versions run is shown too
		if err == nil {
			err = d.Err()
		}
		if err != nil {
			t.Errorf("an example of docs does not parse:\n%s\n%v", text, err)
		}
		if _, err := ParseApplication("docs", []byte(text)); err == nil {
			supported++
		}
	}
	if supported < 6 {
		t.Errorf("only %d examples of docs are for this version", supported)
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(StageOptions())), slices.Sorted(slices.Values(r.stages))); diff != "" {
		t.Errorf("stages with a section in docs (-want +got):\n%s", diff)
	}
	for _, option := range r.unsaid {
		t.Errorf("docs does not say the type, the default and the meaning of %s", option)
	}
	compareExamples(t, r, spec)
}

// compare holds the tables of the reference against the schema.
func compare(t *testing.T, r *reference, spec schema.Schema) {
	t.Helper()
	defaults := schema.Defaults(spec)
	known := map[string]bool{}
	for _, key := range schema.Keys(spec) {
		known[simple(key)] = true
		documented := false
		for k := range r.defaults {
			documented = documented || k == simple(key) || strings.HasPrefix(k, simple(key)+".") || strings.HasPrefix(k, simple(key)+"[") ||
				strings.HasPrefix(k, simple(key)+"<")
		}
		if !documented {
			t.Errorf("docs has no row for %s", simple(key))
		}
		if value, ok := defaults[key]; ok && value != false && !strings.Contains(r.defaults[simple(key)], fmt.Sprint(value)) {
			t.Errorf("docs: the default of %s is %v, the row says %q", simple(key), value, r.defaults[simple(key)])
		}
	}
	for key := range r.defaults {
		if !known[key] {
			t.Errorf("docs has a row for %s, which is no key", key)
		}
	}
	for _, key := range r.marked {
		general := regexp.MustCompile(`<\w+>`).ReplaceAllString(key, "")
		if !slices.ContainsFunc(r.own, func(own string) bool {
			return own == general || strings.HasPrefix(general, own+".") || strings.HasPrefix(general, own+"[") || strings.HasPrefix(own, general+".") ||
				strings.HasSuffix(general, ".readyThreshold")
		}) {
			t.Errorf("docs marks %s as our own, and its table of those has it not", key)
		}
	}
	for _, own := range r.own {
		if !slices.ContainsFunc(r.marked, func(key string) bool {
			general := regexp.MustCompile(`<\w+>`).ReplaceAllString(key, "")
			return general == own || strings.HasPrefix(general, own)
		}) {
			t.Errorf("docs has %s among our own keys, and does not mark it", own)
		}
	}
}

// compareExamples: each key stands in an example, or in a comment of one that
// begins with "# or".
func compareExamples(t *testing.T, r *reference, spec schema.Schema) {
	t.Helper()
	shown := map[string]bool{}
	for _, text := range r.examples {
		var file struct {
			Spec yaml.Node `yaml:"spec"`
		}
		if err := yaml.Unmarshal([]byte(text), &file); err != nil {
			t.Fatal(err)
		}
		keysOf("", &file.Spec, shown)
	}
	all := strings.Join(r.examples, "")
	for _, key := range schema.Keys(spec) {
		name := key[strings.LastIndex(key, ".")+1:]
		if !shown[simple(key)] && !shown[key] && !strings.Contains(all, "# or "+name+":") {
			t.Errorf("no example of docs has %s", key)
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
