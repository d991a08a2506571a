package helm

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/c785c783/piped/piped/deploy"
)

// TestSchemasAreBounded: a schema may be small and take forever all the same.
func TestSchemasAreBounded(t *testing.T) {
	doubling := func(draft, how string) string {
		var s strings.Builder
		fmt.Fprintf(&s, `{"$schema": %q, "$ref": "#/$defs/d40", "$defs": {"d0": {"type": "object"}`, draft)
		for i := range 40 {
			fmt.Fprintf(&s, `, "d%d": {%q: [{"$ref": "#/$defs/d%d"}, {"$ref": "#/$defs/d%d"}]}`, i+1, how, i, i)
		}
		return s.String() + "}}"
	}
	const seven, latest = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"
	for name, c := range map[string]struct{ schema, want string }{
		"doubled":                  {doubling(seven, "allOf"), "that takes more than 100000 steps"},
		"doubled, of today":        {doubling(latest, "allOf"), "that takes more than 100000 steps"},
		"doubled in alternatives":  {strings.Replace(doubling(latest, "oneOf"), `"object"`, `"string"`, 1), "that takes more than 100000 steps"},
		"refers to itself":         {`{"$ref": "#"}`, "the values do not fit web/values.schema.json"},
		"many things are wrong":    {`{"properties": {"list": {"items": {"type": "string"}}}}`, "..."},
		"much, but right":          {`{"properties": {"list": {"items": {"type": "integer"}}}}`, ""},
		"is no schema":             {`{"type": "thing"}`, "web/values.schema.json"},
		"is no schema, of draft 7": {`{"$schema": "` + seven + `", "type": "thing"}`, "web/values.schema.json"},
	} {
		t.Run(name, func(t *testing.T) {
			req := requestFor(fstest.MapFS{
				"app/chart/values.yaml":        {Data: []byte("list: [" + strings.Repeat("1, ", 2000) + "1]\n")},
				"app/chart/values.schema.json": {Data: []byte(c.schema)},
				"app/chart/templates/x.yaml":   {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")},
			})
			_, err := newRenderer(t).Render(t.Context(), req)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.want) || len(err.Error()) > maxWhy+500):
				t.Errorf("got %.500v", err)
			}
		})
	}
}

// TestIndexesOfSetValuesAreBounded: a list is as long as its index says.
func TestIndexesOfSetValuesAreBounded(t *testing.T) {
	for key, want := range map[string]string{
		"a[60000]": "", "a" + strings.Repeat("[65535]", 50): "the list indexes add up to more than 500000", "a[99999999999999999999]": "add up to",
	} {
		req := chartOf("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}")
		req.Options.SetValues = map[string]string{key: "x"}
		_, err := newRenderer(t).Render(t.Context(), req)
		if want == "" && err != nil || want != "" && (!deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.30s: got %v", key, err)
		}
	}
}
