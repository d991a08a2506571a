package strict_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config/strict"
)

func TestHeader(t *testing.T) {
	many := &strings.Builder{} // yaml.Unmarshal takes minutes for it
	many.WriteString("kind: Many\n")
	for i := range 90_000 {
		fmt.Fprintf(many, "k%d: 1\n", i)
	}
	for name, c := range map[string]struct{ text, apiVersion, kind string }{
		"both":                 {"apiVersion: v1\nkind: A\nspec: {}\n", "v1", "A"},
		"first document":       {"kind: A\n---\nkind: B\n", "", "A"},
		"anchored":             {"name: &x A\nkind: *x\n", "", "A"},
		"unknown fields":       {"kind: A\nspce: {}\n", "", "A"},
		"nested ones":          {"spec: {kind: A}\n", "", ""},
		"no scalar":            {"kind: [A]\n", "", ""},
		"null":                 {"kind: ~\n", "", ""},
		"a list":               {"- kind: A\n", "", ""},
		"empty":                {"", "", ""},
		"no YAML":              {"kind: A\n\t", "", ""},
		"very many fields":     {many.String(), "", "Many"},
		"a key with a mapping": {"{a: b}: c\nkind: A\n", "", "A"},
	} {
		apiVersion, kind := strict.Header([]byte(c.text))
		if apiVersion.Value != c.apiVersion || kind.Value != c.kind {
			t.Errorf("%s: got %q and %q, want %q and %q", name, apiVersion.Value, kind.Value, c.apiVersion, c.kind)
		}
	}
}
