package variant

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/manifest"
)

// TestParsePath states the syntax of paths.
func TestParsePath(t *testing.T) {
	key := func(k string) step { return step{key: k} }
	for text, want := range map[string]path{
		"$":                 nil,
		"$.a.b":             {key("a"), key("b")},
		"$.a.'b.c'.d":       {key("a"), key("b.c"), key("d")},
		`$.a."b.c"[0]`:      {key("a"), key("b.c"), {way: byIndex}},
		"$['b.c']":          {key("b.c")},
		`$["b]"][12]`:       {key("b]"), {way: byIndex, index: 12}},
		`$.'it\'s'`:         {key("it's")},
		"$.a[*].b":          {key("a"), {way: each}, key("b")},
		"$..image":          {{way: deep, key: "image"}},
		"$.a-b.pipecd/c é":  {key("a-b"), key("pipecd/c é")},
		"$.''":              {key("")},
		"$.a..'b.c'[*][10]": {key("a"), {way: deep, key: "b.c"}, {way: each}, {way: byIndex, index: 10}},
	} {
		if got, err := parsePath(text); err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "$a", "$.", "$..", "$.a.", "$.a[", "$.a[]", "$.a[-1]", "$.a[+1]", "$.a[1", "$.a[x]", "$.'a", "$['a'", "$['a", "$.*", "$.[0]", "$.a[99999999999999999999]"} {
		if got, err := parsePath(text); !errors.Is(err, errPath) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// TestPatchText: the document after each change.
func TestPatchText(t *testing.T) {
	const list = "a: # of all\n  - b: 1 # one\n  - b: 2\n    c: {b: 3}\n"
	for _, c := range []struct {
		name  string
		text  string
		op    kubernetes.PatchKind
		path  string
		value string
		want  string
	}{
		{"every item", list, kubernetes.YAMLReplace, "$.a[*].b", "x", "a: # of all\n  - b: x # one\n  - b: x\n    c: {b: 3}\n"},
		{"any depth", list, kubernetes.YAMLReplace, "$..b", "[x]", "a: # of all\n  - b: [x] # one\n  - b: [x]\n    c: {b: [x]}\n"},
		{"one item", list, kubernetes.YAMLReplace, "$.a[1].c.b", "null", "a: # of all\n  - b: 1 # one\n  - b: 2\n    c: {b: null}\n"},
		{"an item removed", list, kubernetes.YAMLRemove, "$.a[0]", "", "a: # of all\n  - b: 2\n    c: {b: 3}\n"},
		{"all items removed", "a:\n  - b\n", kubernetes.YAMLRemove, "$.a[*]", "", "a: []\n"},
		{"any depth removed", list, kubernetes.YAMLRemove, "$..b", "", "a: # of all\n  - {}\n  - c: {}\n"},
		{"a field added", "a: 1", kubernetes.YAMLAdd, "$.b.c.d", "2", "a: 1\nb:\n  c:\n    d: 2"},
		{"an item added", "a: [1]\n", kubernetes.YAMLAdd, "$.a", "2", "a: [1, 2]\n"},
		{"items added", "a: [1]\n", kubernetes.YAMLAdd, "$.a", "[2, 3]", "a: [1, 2, 3]\n"},
		{"fields added", "a: {b: 1, c: 1}\n", kubernetes.YAMLAdd, "$.a", "{c: 2, d: 2}", "a: {b: 1, c: 2, d: 2}\n"},
		{"to nothing at all", "", kubernetes.YAMLAdd, "$.a", "1", "a: 1"},
		{"to null", "a:\n", kubernetes.YAMLAdd, "$.a.b", "1", "a:\n  b: 1\n"},
		{"all of it", "a: 1\n", kubernetes.YAMLReplace, "$", "b", "b\n"},
		{"of an alias", "a: &x {b: 1}\nc: *x\n", kubernetes.YAMLReplace, "$.c.b", "2", "a: &x {b: 2}\nc: *x\n"},
		{"texts stay texts", "a: '1'\nb: 2\n", kubernetes.YAMLReplace, "$.b", "'3'", "a: '1'\nb: '3'\n"},
		{"JSON stays JSON", `{"b": 1.0, "a": "é<\/\ud83d\ude00", "c": [true, null]}`, kubernetes.JSONReplace, "$.b", `"2"`, `{"b":"2","a":"é</😀","c":[true,null]}`},
		{"JSON of several lines", "{\n\t\"b\": [],\n\t\"a\": 12345678901234567890\n}\n", kubernetes.JSONReplace, "$.b", "{}", "{\n\t\"b\": {},\n\t\"a\": 12345678901234567890\n}\n"},
		{"a text", "v1 v2", kubernetes.TextRegex, `v(\d)`, "w$1", "w1 w2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := patchText(c.text, kubernetes.PatchOp{Op: c.op, Path: c.path, Value: c.value})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestAnchorThatIsRemoved: a patch that leaves aliases without their anchor is refused.
func TestAnchorThatIsRemoved(t *testing.T) {
	_, err := patchText("a: &x 1\nb: *x\n", kubernetes.PatchOp{Op: kubernetes.YAMLRemove, Path: "$.a"})
	if err == nil || !strings.Contains(err.Error(), "the result is not a valid document") {
		t.Errorf("patched: %v", err)
	}
}

// FuzzPath: no text makes the parser panic, and a parsed path keeps its meaning when
// written and parsed again.
func FuzzPath(f *testing.F) {
	for _, text := range []string{"$", "$.a.'b.c'[0][*]..d", `$["a"]`, "$.'\\'"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePath(text)
		if err != nil {
			return
		}
		again, err := parsePath(written(p))
		if err != nil || !reflect.DeepEqual(p, again) {
			t.Errorf("%q parses as %+v, but written as %q it parses as %+v, %v", text, p, written(p), again, err)
		}
	})
}

// written writes a path with every key in quotes.
func written(p path) string {
	var b strings.Builder
	b.WriteString("$")
	for _, s := range p {
		quoted := "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s.key) + "'"
		b.WriteString(map[way]string{byKey: "." + quoted, deep: ".." + quoted, each: "[*]"}[s.way])
		if s.way == byIndex {
			number, _ := json.Marshal(s.index)
			b.WriteString("[" + string(number) + "]")
		}
	}
	return b.String()
}

// FuzzPatch: for every object, path and value, a patch returns an error, or an object
// with the same identity that is valid JSON.
func FuzzPatch(f *testing.F) {
	f.Add("a: 1", "$.a", "2", "", uint8(0))
	f.Add(`{"a": [1, {"b": "c"}]}`, "$.a[*].b", `{"x": 1}`, "$.data.text", uint8(3))
	f.Add("a: &x {b: 1}\nc: *x", "$..b", "[*x]", "$.data.text", uint8(1))
	f.Add("a: b", "a", "$1", "", uint8(4))
	kinds := kubernetes.PatchKind("").Values()
	f.Fuzz(func(t *testing.T, text, path, value, root string, kind uint8) {
		object, err := manifest.Parse("app.json", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"web"},"data":{"list":[1,1.5,null,true,{"a":"b"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		object[0].Object["data"].(map[string]any)["text"] = text
		before := object[0].Clone()
		made, err := patch(object, []kubernetes.Patch{{
			Target: kubernetes.PatchTarget{Reference: kubernetes.Reference{Kind: "ConfigMap", Name: "web"}, DocumentRoot: root},
			Ops:    []kubernetes.PatchOp{{Op: kubernetes.PatchKind(kinds[int(kind)%len(kinds)]), Path: path, Value: value}},
		}})
		if diff := cmp.Diff(before, object[0]); diff != "" {
			t.Errorf("the object itself was changed:\n%s", diff)
		}
		if err != nil {
			return
		}
		if _, err := json.Marshal(made[0].Object); err != nil || manifest.Ref(made[0].Unstructured) != manifest.Ref(before.Unstructured) {
			t.Errorf("made %v, %v", made[0].Object, err)
		}
		made[0].DeepCopy() // panics on values that an object cannot contain
	})
}
