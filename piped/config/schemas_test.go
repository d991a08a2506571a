package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/schema"
)

// validator compiles a schema as a reader of the written form does.
func validator(t testing.TB, s schema.Schema) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("file:///schema.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := c.Compile("file:///schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// plain reads YAML as an editor does.
func plain(t testing.TB, data []byte) any {
	t.Helper()
	var out any
	if err := yaml.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// validators returns what returns the schema of a valid file of testdata.
func validators(t testing.TB) func(folder, file string) *jsonschema.Schema {
	agent := validator(t, kinds.PipedSchema())
	applications := map[string]*jsonschema.Schema{}
	for _, k := range kinds {
		applications[k.Name] = validator(t, k.ApplicationSchema())
	}
	return func(folder, file string) *jsonschema.Schema {
		if folder == "piped" {
			return agent
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		app, err := kinds.ParseApplication(file, data)
		if err != nil {
			t.Fatal(err)
		}
		return applications[app.Kind]
	}
}

func TestSchemaAcceptsEveryValidFile(t *testing.T) {
	schemaOf := validators(t)
	for _, folder := range []string{"application", "piped"} {
		cases, err := filepath.Glob(filepath.Join("testdata", folder, "valid-*.yaml"))
		if err != nil || len(cases) == 0 {
			t.Fatalf("no cases in %s: %v", folder, err)
		}
		for _, file := range cases {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := schemaOf(folder, file).Validate(plain(t, data)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

// TestSchemaAndParserAgreeOnUnknownKeys adds a key to each mapping of each valid
// file, one at a time: the schema, which is for writing, refuses it exactly when the
// parser does not read it.
func TestSchemaAndParserAgreeOnUnknownKeys(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	parsers := map[string]func([]byte) error{
		"application": func(data []byte) error {
			app, err := kinds.ParseApplication("app.pipecd.yaml", data)
			if err == nil && len(app.Unread) > 0 {
				err = errors.New(strings.Join(app.Unread, "\n"))
			}
			return err
		},
		"piped": func(data []byte) error {
			agent, _, err := kinds.ParsePiped("piped.yaml", data)
			if err == nil && len(agent.Unread) > 0 {
				err = errors.New(strings.Join(agent.Unread, "\n"))
			}
			return err
		},
	}
	schemaOf := validators(t)
	outcomes := map[bool]int{}
	for folder, parse := range parsers {
		files, err := filepath.Glob(filepath.Join("testdata", folder, "valid-*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no cases in %s: %v", folder, err)
		}
		for _, file := range files {
			compiled := schemaOf(folder, file)
			for place, data := range withUnknownKeys(t, file) {
				accepted := compiled.Validate(plain(t, data)) == nil
				outcomes[accepted]++
				err := parse(data)
				if strings.Contains(file, "merges-the-plugin") && err == nil {
					continue // the parser does not look at what the plugin replaces
				}
				if (err == nil) != accepted {
					t.Errorf("%s, a key more at %s: the schema accepts it: %t, the parser says %v", file, place, accepted, err)
				}
			}
		}
	}
	if outcomes[true] < 5 || outcomes[false] < 100 {
		t.Errorf("the files show too little: %v", outcomes)
	}
}

// withUnknownKeys returns a file's text with a key more in each of its mappings,
// by the line and column of the mapping.
func withUnknownKeys(t *testing.T, file string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			content := n.Content
			n.Content = append(content[:len(content):len(content)],
				&yaml.Node{Kind: yaml.ScalarNode, Value: "aKeyMore"}, &yaml.Node{Kind: yaml.ScalarNode, Value: "x"})
			text, err := yaml.Marshal(&doc)
			if err != nil {
				t.Fatal(err)
			}
			out[fmt.Sprintf("%d:%d", n.Line, n.Column)] = text
			n.Content = content
		}
		for _, child := range n.Content {
			visit(child)
		}
	}
	visit(&doc)
	return out
}

// TestSchemaHasEveryKey takes the keys from the source, so that none is lost by
// the way the schema is made.
func TestSchemaHasEveryKey(t *testing.T) {
	known := map[string]bool{"apiVersion": true, "kind": true, "spec": true}
	for _, s := range []schema.Schema{kinds[0].applicationSchema(schema.Refused{}), kinds.PipedSchema()} {
		for _, key := range schema.Keys(s["$defs"].(schema.Schema)["spec"].(schema.Schema)) {
			known[key[strings.LastIndex(key, ".")+1:]] = true
		}
	}
	tag := regexp.MustCompile("`yaml:\"(\\w+)\"")
	found := 0
	for _, pattern := range []string{"*.go", "kubernetes/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range tag.FindAllStringSubmatch(string(text), -1) {
				found++
				if key := m[1]; !known[key] && !known[key+"[]"] {
					t.Errorf("%s: the schemas have no key %s", file, key)
				}
			}
		}
	}
	if found < 200 {
		t.Errorf("found only %d keys in the source", found)
	}
}

// TestSchemaDefaultsAreValid: each default is something the key itself takes.
func TestSchemaDefaultsAreValid(t *testing.T) {
	found := 0
	var visit func(at string, s schema.Schema)
	visit = func(at string, s schema.Schema) {
		if value, ok := s["default"]; ok {
			found++
			if err := validator(t, s).Validate(value); err != nil {
				t.Errorf("%s: the default %v: %v", at, value, err)
			}
		}
		for key, p := range s {
			if sub, ok := p.(schema.Schema); ok {
				visit(at+"."+key, sub)
			}
		}
	}
	visit("application", kinds[0].applicationSchema(schema.Refused{}))
	visit("piped", kinds.PipedSchema())
	if found < 40 {
		t.Errorf("found only %d defaults", found)
	}
}

func TestSchemaRefusesWhatTheVersionDoes(t *testing.T) {
	compiled := validator(t, kinds[0].ApplicationSchema())
	head := "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: a\n"
	for text, valid := range map[string]bool{
		"": true,
		"  pipeline: {stages: [{name: WAIT, with: {duration: 5m}}]}\n":   true,
		"  pipeline: {stages: [{name: WAIT, with: {timeout: 5m}}]}\n":    false,
		"  pipeline: {stages: [{name: WAIT, with: {duration: soon}}]}\n": false,
		"  pipeline: {stages: [{name: WAITING}]}\n":                      false,
		"  trigger: {queue: latest}\n":                                   false,
		"  readyThreshold: 50%\n":                                        true,
		"  readyThreshold: 0.5\n":                                        false,
		"  labels: {version: 1.2, on: true}\n":                           true,
		"  labels: {version: [1]}\n":                                     false,
		"  quickSync:\n":                                                 true,
		"  quickSync: {prune: maybe}\n":                                  false,
		"  input: {helmVersion: 3}\n":                                    true,
	} {
		err := compiled.Validate(plain(t, []byte(head+text)))
		if (err == nil) != valid {
			t.Errorf("%s: got %v, want it valid: %t", text, err, valid)
		}
	}
	for _, field := range kinds[0].Refused {
		text := "spec"
		for _, key := range strings.Split(field, ".") {
			text += ": {" + key
		}
		text = head[:strings.Index(head, "spec")] + text + ": {}" + strings.Repeat("}", strings.Count(field, ".")+1) + "\n"
		if compiled.Validate(plain(t, []byte(text))) == nil {
			t.Errorf("%s is accepted by the schema, though this version refuses it", field)
		}
	}
}
