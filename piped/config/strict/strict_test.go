package strict

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestNearest(t *testing.T) {
	candidates := []string{"manifests", "namespace", "autoRollback", "kubeConfigPath", "up"}
	tests := map[string]string{
		"manifets":                        "manifests",
		"Manifests":                       "manifests",
		"name_space":                      "namespace",
		"autorollback":                    "autoRollback",
		"kubeconfigpath":                  "kubeConfigPath",
		"colour":                          "",
		"xy":                              "",
		"":                                "",
		strings.Repeat("manifests", 1000): "",
	}
	for key, want := range tests {
		if got := nearest(key, candidates); got != want {
			t.Errorf("%.20q: got %q, want %q", key, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	for text, want := range map[string]Percent{"10": 10, "10%": 10, " 7% ": 7, "0": 0, "250%": 250} {
		var got Percent
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "-1", "1.5", "10%%", "ten"} {
		var got Percent
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

type colour string

func (colour) Values() []string { return []string{"red", "green", "blue"} }

func TestEnum(t *testing.T) {
	read := func(text string) (colour, error) {
		d, err := Parse("f.yaml", []byte("apiVersion: v1\nkind: K\nspec:\n  c: "+text+"\n"), "v1")
		if err != nil {
			t.Fatal(err)
		}
		spec := struct {
			C colour `yaml:"c"`
		}{"red"}
		d.Decode(d.Spec, Field{Base: "spec"}, &spec, Rules{})
		return spec.C, d.Err()
	}
	for text, want := range map[string]colour{"green": "green", "null": "red"} {
		if got, err := read(text); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	for text, found := range map[string]string{"Green": `"Green"`, `""`: `""`, "[red]": "a list"} {
		want := "f.yaml:4: spec.c: expected red, green or blue, found " + found
		if _, err := read(text); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestAlternatives(t *testing.T) {
	for want, values := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := Alternatives(values); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSecretIsNeverShown(t *testing.T) {
	type holder struct {
		Public Secret
		hidden Secret
	}
	s := NewSecret("hunter2")
	h := holder{Public: s, hidden: s}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", s, "holder", h)
	encoded, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{"log": log.String(), "json": string(encoded), "String": s.String(), "cmp": cmp.Diff(s, NewSecret("other"))}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		shown["secret "+verb] = fmt.Sprintf(verb, s)
		shown["holder "+verb] = fmt.Sprintf(verb, h)
		shown["pointer "+verb] = fmt.Sprintf(verb, &h)
	}
	for how, text := range shown {
		if strings.Contains(text, "hunter2") || strings.Contains(text, fmt.Sprintf("%x", "hunter2")) {
			t.Errorf("%s shows the secret: %s", how, text)
		}
	}
	if s.Reveal() != "hunter2" || s.IsEmpty() || !(Secret{}).IsEmpty() {
		t.Error("the secret is lost")
	}
}

func TestSecretFromBase64(t *testing.T) {
	got, err := NewSecret("aHVudGVyMg==").FromBase64()
	if err != nil || got.Reveal() != "hunter2" {
		t.Errorf("got %q, %v", got.Reveal(), err)
	}
	if _, err := NewSecret("hunter2!").FromBase64(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want an error that does not show the value", err)
	}
}

func TestManyProblemsAreCutShort(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: K\nspec:\n")
	for i := range 1000 {
		fmt.Fprintf(&b, "  unknown%d: 1\n", i)
	}
	fmt.Fprintf(&b, "  ? %s\n  : 1\n  sizes:\n", strings.Repeat("y", 10_000))
	for range 1001 {
		b.WriteString("    - x\n")
	}
	d, err := Parse("f.yaml", []byte(b.String()), "v1")
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Sizes []int `yaml:"sizes"`
	}
	d.Decode(d.Spec, Field{Base: "spec"}, &spec, Rules{})
	lines := strings.Split(d.Err().Error(), "\n")
	if want := "f.yaml: and 951 more problems"; len(lines) != 51 || lines[50] != want {
		t.Errorf("got %d lines, the last %q, want 51 and %q", len(lines), lines[len(lines)-1], want)
	}
	unread := d.Unread()
	if want := "f.yaml: and 951 more keys that are not read"; len(unread) != 51 || unread[50] != want {
		t.Errorf("got %d lines, the last %q, want 51 and %q", len(unread), unread[len(unread)-1], want)
	}
}

// TestKeysAsPipeCDReadsThem: keys in another case, keys that stand twice, unknown keys
// and later documents are no errors there. A typing error is one here.
func TestKeysAsPipeCDReadsThem(t *testing.T) {
	type inner struct {
		Replicas int `yaml:"replicas"`
	}
	type spec struct {
		Name     string            `yaml:"name"`
		OnCommit inner             `yaml:"onCommit"`
		Labels   map[string]string `yaml:"labels"`
	}
	tests := map[string]struct {
		text    string
		want    spec
		unread  []string
		problem string
	}{
		"another case": {
			text: "  NAME: web\n  oncommit: {Replicas: 2}\n  labels: {App: a, app: b}\n",
			want: spec{Name: "web", OnCommit: inner{2}, Labels: map[string]string{"App": "a", "app": "b"}},
		},
		"the last of two counts": {
			text: "  name: a\n  name: b\n  labels: {x: 1, x: 2}\n", want: spec{Name: "b", Labels: map[string]string{"x": "2"}},
			unread: []string{"f.yaml:4: spec.name: is not read, because the key stands again in line 5",
				"f.yaml:6: spec.labels.x: is not read, because the key stands again in line 6"},
		},
		"the last of two in different case counts": {
			text: "  Name: a\n  name: b\n", want: spec{Name: "b"},
			unread: []string{"f.yaml:4: spec.name: is not read, because the key stands again in line 5"},
		},
		"unknown keys are kept out": {
			text: "  name: a\n  colour: red\n  onCommit: {replicas: 1, maxSurge: 2}\n", want: spec{Name: "a", OnCommit: inner{1}},
			unread: []string{"f.yaml:5: spec.colour: unknown field, which is not read; known here: labels, name, onCommit",
				"f.yaml:6: spec.onCommit.maxSurge: unknown field, which is not read; known here: replicas"},
		},
		"typing errors are refused": {
			text:    "  nmae: a\n  onCommit: {replica: 1}\n  label: {}\n",
			problem: "f.yaml:4: spec.nmae: unknown field; did you mean \"name\"?\nf.yaml:5: spec.onCommit.replica: unknown field; did you mean \"replicas\"?\nf.yaml:6: spec.label: unknown field; did you mean \"labels\"?",
		},
		"a longer name is no typing error": {
			text: "  nameTemplate: a\n", unread: []string{"f.yaml:4: spec.nameTemplate: unknown field, which is not read; known here: labels, name, onCommit"},
		},
		"the first document counts": {
			text: "  name: a\n---\nspec: {name: b}\n---\n- c\n", want: spec{Name: "a"},
			unread: []string{"f.yaml:6: another document begins here, which is not read: only the first one counts"},
		},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			d, err := Parse("f.yaml", []byte("apiVersion: v1\nkind: K\nspec:\n"+c.text), "v1")
			if err != nil {
				t.Fatal(err)
			}
			var got spec
			d.Decode(d.Spec, Field{Base: "spec"}, &got, Rules{})
			problem := ""
			if err := d.Err(); err != nil {
				problem = err.Error()
			}
			if problem != c.problem {
				t.Errorf("problems:\n%s\nwant\n%s", problem, c.problem)
			}
			if diff := cmp.Diff(c.unread, d.Unread(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("unread (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, got); diff != "" && c.problem == "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestSpecMayBeMissing: then every field has its default.
func TestSpecMayBeMissing(t *testing.T) {
	for _, text := range []string{"", "spec:\n", "spec: {}\n"} {
		d, err := Parse("f.yaml", []byte("apiVersion: v1\nkind: K\n"+text), "v1")
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		spec := struct {
			Name string `yaml:"name"`
		}{"default"}
		d.Decode(d.Spec, Field{Base: "spec"}, &spec, Rules{})
		if d.Err() != nil || len(d.Unread()) > 0 || spec.Name != "default" {
			t.Errorf("%q: got %q, %v, %v", text, spec.Name, d.Err(), d.Unread())
		}
	}
}

func TestSlips(t *testing.T) {
	known := []string{"name", "id", "replicas", "autoRollback", "apiKeyFile", "applicationKeyFile", "trigger"}
	for key, want := range map[string]string{
		"nam": "name", "naem": "name", "nme": "name", "title": "", "ip": "id", "if": "id", "no": "",
		"replica": "replicas", "replcias": "replicas", "autorolback": "autoRollback", "auto-roll-back": "autoRollback",
		"apiKey": "", "applicationKey": "", "tirgger": "trigger", "triggers": "trigger", "onEveryTrigger": "", "": "",
		strings.Repeat("name", 100): "",
	} {
		if got := slipOf(key, known); got != want {
			t.Errorf("%.20q: got %q, want %q", key, got, want)
		}
	}
}

func TestMergingManyKeysManyTimesEnds(t *testing.T) {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: K\nspec:\n  a: &a {")
	for i := range 10_000 {
		fmt.Fprintf(&b, "x%d: ,", i)
	}
	b.WriteString("}\n  labels: {<<: [" + strings.Repeat("*a,", 100_000) + "]}\n")
	d, err := Parse("f.yaml", []byte(b.String()), "v1")
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Labels map[string]string `yaml:"labels"`
	}
	d.Decode(d.Spec, Field{Base: "spec"}, &spec, Rules{Ignored: map[string]string{"a": "ignored"}})
	want := "f.yaml:4: spec.labels: the document has more than 100000 values once its aliases are followed"
	if err := d.Err(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]string{"90s": `"1m30s"`, "1000000": `"1ms"`, "0": `"0s"`} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, err := json.Marshal(d); err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	if err := new(Duration).UnmarshalText([]byte("soon")); err == nil {
		t.Error("want an error")
	}
}

// box holds what its kind says.
type box struct {
	With any    `yaml:"with"`
	Kind string `yaml:"kind"`
}

func (b *box) Variant() any {
	return map[string]any{"ball": &ball{Size: 1}, "cube": &[]string{"x"}}[b.Kind]
}

type ball struct {
	Size   int     `yaml:"size"`
	Weight float64 `yaml:"weight"`
}

func (b *ball) Default() { b.Weight = 0.5 }

func TestVariantsAndDefaults(t *testing.T) {
	d, err := Parse("f.yaml", []byte(`apiVersion: v1
kind: K
spec:
  boxes:
    - with: {size: 2, weight: 2.5}
      kind: ball
    - {kind: ball, with: ~}
    - {kind: ball}
    - {kind: cube, with: [a]}
    - {kind: cone, with: {any: thing}}
    - {kind: ball, with: {siz: 2, weight: heavy}}
  balls: [{}, {size: 3}]
  named: {a: {}}
  one: {}
`), "v1")
	if err != nil {
		t.Fatal(err)
	}
	type spec struct {
		Boxes []box           `yaml:"boxes"`
		Balls []ball          `yaml:"balls"`
		Named map[string]ball `yaml:"named"`
		One   *ball           `yaml:"one"`
		None  *ball           `yaml:"none"`
	}
	var got spec
	d.Decode(d.Spec, Field{Base: "spec"}, &got, Rules{})
	want := spec{
		Boxes: []box{
			{Kind: "ball", With: &ball{Size: 2, Weight: 2.5}}, {Kind: "ball", With: &ball{Size: 1}}, {Kind: "ball"},
			{Kind: "cube", With: &[]string{"a"}}, {Kind: "cone"}, {Kind: "ball", With: &ball{Size: 1}},
		},
		Balls: []ball{{Weight: 0.5}, {Size: 3, Weight: 0.5}},
		Named: map[string]ball{"a": {Weight: 0.5}},
		One:   &ball{Weight: 0.5},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	wantErr := `f.yaml:11: spec.boxes[5].with.siz: unknown field; did you mean "size"?
f.yaml:11: spec.boxes[5].with.weight: expected a number, found "heavy"`
	if err := d.Err(); err == nil || err.Error() != wantErr {
		t.Errorf("got %v, want %s", err, wantErr)
	}
}
