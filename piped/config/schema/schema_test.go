package schema

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/strict"
)

var update = flag.Bool("update", false, "rewrite the golden file")

type everything struct {
	Common   `yaml:",inline"`
	Count    int               `yaml:"count"`
	Ratio    float64           `yaml:"ratio"`
	On       *bool             `yaml:"on"`
	Off      bool              `yaml:"off"`
	Wait     time.Duration     `yaml:"wait"`
	Pause    strict.Duration   `yaml:"pause"`
	Share    strict.Percent    `yaml:"share"`
	Password strict.Secret     `yaml:"password"`
	Colour   colour            `yaml:"colour"`
	Labels   map[string]string `yaml:"labels"`
	Raw      yaml.Node         `yaml:"raw"`
	Items    []item            `yaml:"items"`
	Shape    *shape            `yaml:"shape"`
	Later    string            `yaml:"later"`
	Never    string            `yaml:"never"`
	Hidden   string            `yaml:"-"`
}

type Common struct {
	Name string `yaml:"name"`
}

type colour string

func (colour) Values() []string { return []string{"red", "green"} }

type item struct {
	Size int `yaml:"size"`
}

func (i *item) Default() { i.Size = 3 }

type shape struct {
	Kind string `yaml:"kind"`
	With any    `yaml:"with"`
}

func (*shape) Variants() (string, map[string]any) {
	return "kind", map[string]any{"circle": &circle{Radius: 2}, "square": &square{}, "line": &square{}}
}

type circle struct {
	Radius int `yaml:"radius"`
}

type square struct{}

func defaults() everything {
	return everything{Count: 7, Wait: 90 * time.Minute, Share: 50, Colour: "green", Password: strict.NewSecret("hunter2"), Later: "x"}
}

func schemaOfEverything() Schema {
	value := defaults()
	return Object(&value, strict.Rules{Unsupported: []string{"never"}, Ignored: map[string]string{"old": "ignored", "shape.old": "ignored"}},
		Refused{Keys: []string{"later"}, Values: map[string][]string{"shape.kind": {"line"}}})
}

func TestSchemaOfEveryKindOfField(t *testing.T) {
	got, err := json.MarshalIndent(Document("Test", "v1", []string{"K"}, schemaOfEverything()), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/every-kind-of-field.json"
	if *update {
		if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestKeys(t *testing.T) {
	want := []string{
		"colour", "count", "items", "items[].size", "labels", "name", "off", "on", "password", "pause", "ratio", "raw", "shape",
		"shape.kind", "shape.with", "shape.with<circle>.radius", "share", "wait",
	}
	if diff := cmp.Diff(want, Keys(schemaOfEverything())); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDefaultDurationsAreWrittenAsPeopleDo(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"6h": 6 * time.Hour, "1h30m": 90 * time.Minute, "5m": 5 * time.Minute, "10m10s": 610 * time.Second, "30s": 30 * time.Second,
		"1h0m30s": time.Hour + 30*time.Second, "1.5s": 1500 * time.Millisecond,
	} {
		if got := shorten(d); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if back, err := time.ParseDuration(shorten(d)); err != nil || back != d {
			t.Errorf("%s is read back as %s, %v", want, back, err)
		}
	}
}
