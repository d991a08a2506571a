package opentofu

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	tfjson "github.com/hashicorp/terraform-json"
)

// shown is a plan as `show -json` writes it, by the documentation of that format: it replaces one
// resource because of its path, and updates another, whose token is sensitive.
const shown = `{
  "format_version": "1.2", "terraform_version": "1.12.6",
  "resource_changes": [
    {"address": "module.net.sample_file.b[\"x\"]", "module_address": "module.net", "mode": "managed", "type": "sample_file", "name": "b", "index": "x",
     "change": {"actions": ["delete", "create"], "before": {"path": "/old", "content": "one"}, "after": {"path": "/new", "content": "one"},
       "after_unknown": {"id": true}, "before_sensitive": {}, "after_sensitive": {}, "replace_paths": [["path"]]}},
    {"address": "sample_file.a", "mode": "managed", "type": "sample_file", "name": "a",
     "change": {"actions": ["update"], "before": {"token": "old-secret", "list": [1, 2], "same": true}, "after": {"token": "new-secret", "list": [1, 3], "same": true},
       "after_unknown": {}, "before_sensitive": {"token": true}, "after_sensitive": {"token": true}}},
    {"address": "sample_file.c", "mode": "managed", "type": "sample_file", "name": "c",
     "change": {"actions": ["no-op"], "before": {}, "after": {}, "after_unknown": {}, "before_sensitive": {}, "after_sensitive": {}}},
    {"address": "data.sample_file.d", "mode": "data", "type": "sample_file", "name": "d",
     "change": {"actions": ["read"], "before": null, "after": {}, "after_unknown": {}, "before_sensitive": {}, "after_sensitive": {}}}
  ],
  "output_changes": {"url": {"actions": ["create"], "before": null, "after": "http://x", "after_unknown": false, "before_sensitive": false, "after_sensitive": true}}
}`

func read(t *testing.T, text string) Plan {
	t.Helper()
	var p tfjson.Plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return planOf([]byte("plan"), &p)
}

func TestPlan(t *testing.T) {
	p := read(t, shown)
	if got := p.Summary(); got != "0 to create, 1 to update, 0 to delete, 1 to replace, 1 to read, 1 output to change" {
		t.Errorf("the summary is %q", got)
	}
	var lines []string
	for _, c := range append(p.Changes, p.Outputs...) {
		lines = append(lines, c.String())
	}
	want := `# module.net.sample_file.b["x"] must be replaced
+ id = (known after apply)
~ path = "/old" -> "/new" # forces replacement
# sample_file.a will be updated
~ list[1] = 2 -> 3
~ token = (sensitive value)
# output.url will be created
+ (sensitive value)`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the changes are\n%s\nwant\n%s", got, want)
	}
	if d := p.Destroyed(); len(d) != 1 || d[0].Module != "module.net" || d[0].Name != `b["x"]` {
		t.Errorf("destroyed: %v", d)
	}
	if len(p.Digest) != 64 {
		t.Errorf("the digest is %q", p.Digest)
	}
}

// TestPathsOfHostileKeys: a key of a map takes one line, and cannot look like something else.
func TestPathsOfHostileKeys(t *testing.T) {
	p := read(t, `{"format_version": "1.2", "resource_changes": [{"address": "a.b", "mode": "managed", "type": "a", "name": "b", "change": {"actions": ["delete", "create"],
      "before": {"tags": {"x\n- y": "1", "k8s.io/name": "a", "plain": "1", "gone": "1"}}, "after": {"tags": {"x\n- y": "2\n+ z", "k8s.io/name": "b", "plain": "2"}},
      "replace_paths": [["tags", "k8s.io/name"]]}}]}`)
	want := `# a.b must be replaced
- tags.gone = "1"
~ tags.plain = "1" -> "2"
~ tags["k8s.io/name"] = "a" -> "b" # forces replacement
~ tags["x\n- y"] = "1" -> "2\n+ z"`
	if got := p.Changes[0].String(); got != want {
		t.Errorf("the change is\n%s\nwant\n%s", got, want)
	}
}

// TestSensitiveCollection: of a sensitive map or list neither keys nor the number of items are shown.
func TestSensitiveCollection(t *testing.T) {
	p := read(t, `{"format_version": "1.2", "resource_changes": [{"address": "a.b", "mode": "managed", "type": "a", "name": "b", "change": {"actions": ["delete", "create"],
      "before": {"users": {"ann": "1", "ben": "1"}, "list": [1], "same": {"x": "1"}, "tags": {"x": "1", "y": "1"}},
      "after": {"users": {"ann": "2"}, "list": [1, 2], "same": {"x": "1"}, "tags": {"x": "2", "y": "1"}}, "after_unknown": {"users": {"new": true}},
      "before_sensitive": {"users": true, "tags": {"x": true}}, "after_sensitive": {"list": true, "same": true}, "replace_paths": [["users", "ann"]]}}],
      "output_changes": {"all": {"actions": ["update"], "before": {"k": 1}, "after": {"k": 2}, "after_unknown": false, "before_sensitive": true, "after_sensitive": true}}}`)
	want := `# a.b must be replaced
~ list = (sensitive value)
~ tags.x = (sensitive value)
~ users = (sensitive value) -> (known after apply) # forces replacement
# output.all will be updated
~ (sensitive value)`
	if got := p.Changes[0].String() + "\n" + p.Outputs[0].String(); got != want {
		t.Errorf("the changes are\n%s\nwant\n%s", got, want)
	}
}

// TestDeposed: a plan distinguishes the old object of a replacement from the new one.
func TestDeposed(t *testing.T) {
	p := read(t, `{"format_version": "1.2", "resource_changes": [{"address": "a.b", "mode": "managed", "type": "a", "name": "b", "deposed": "0f", "change": {"actions": ["delete"], "before": {}}}]}`)
	if got := p.Changes[0].String(); got != "# a.b (deposed 0f) will be deleted" {
		t.Errorf("the change is %q", got)
	}
}

// TestWithoutChangeOfAResource: what only the state takes over, moves or forgets is in the plan, as
// OpenTofu 1.12 writes it. An action that is not known is shown.
func TestWithoutChangeOfAResource(t *testing.T) {
	change := func(name, more, actions, also string) string {
		return fmt.Sprintf(`{"address": "a.%[1]s", "mode": "managed", "type": "a", "name": "%[1]s"%[2]s, "change": {"actions": %[3]s, "before": {"x": 1}, "after": {"x": 1}%[4]s}}`, name, more, actions, also)
	}
	p := read(t, `{"format_version": "1.2", "resource_changes": [`+strings.Join([]string{
		change("b", `, "previous_address": "a.old"`, `["no-op"]`, ""),
		change("c", "", `["no-op"]`, `, "importing": {"id": "x\ny"}`),
		change("d", `, "previous_address": "a.d"`, `["no-op"]`, ""),
		change("e", "", `["forget"]`, ""),
		change("f", "", `["forget", "create"]`, ""),
		change("g", `, "previous_address": "a.h"`, `["update"]`, ""),
		change("i", "", `["no-op"]`, `, "importing": {"identity": {"name": "n"}}`),
		change("j", "", `["dance"]`, ""),
	}, ",")+`]}`)
	var lines []string
	for _, c := range p.Changes {
		lines = append(lines, c.String())
	}
	want := `# a.b will be moved (moved from a.old)
# a.c will be imported (imported as "x\ny")
# a.e will be forgotten, and stays
# a.f will be created (its predecessor is forgotten, and stays)
# a.g will be updated (moved from a.h)
# a.i will be imported (imported as {"name":"n"})
# a.j will dance`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the changes are\n%s\nwant\n%s", got, want)
	}
	if got := p.Summary(); got != "1 to create, 1 to update, 0 to delete, 0 to replace, 2 to import, 1 to move, 1 to forget" {
		t.Errorf("the summary is %q", got)
	}
	if len(p.Destroyed()) != 0 {
		t.Errorf("destroyed: %v", p.Destroyed())
	}
}

// TestLeftOf: what may be applied after an apply was interrupted.
func TestLeftOf(t *testing.T) {
	change := func(action Action, attributes ...Attribute) Plan {
		return Plan{Changes: []Change{{Resource: Resource{Address: "a.b", Name: "b"}, Action: action, Attributes: attributes}}}
	}
	known := func(after string) Attribute { return Attribute{Path: "x", Before: "0", After: after} }
	unknownYet := Attribute{Path: "x", Unknown: true}
	output := func(action Action, attributes ...Attribute) Plan {
		return Plan{Outputs: []Change{{Resource: Resource{Name: "b"}, Action: action, Attributes: attributes}}}
	}
	tests := map[string]struct {
		left, approved Plan
		news           string
	}{
		"nothing is left":                 {Plan{}, change(Create), ""},
		"the same":                        {change(Update, known("1")), change(Update, known("1")), ""},
		"another value":                   {change(Update, known("2")), change(Update, known("1")), "x differs"},
		"an unknown value is known":       {change(Create, known("1")), change(Create, unknownYet), ""},
		"a replacement half done":         {change(Create, known("1")), change(Replace, known("1")), ""},
		"a replacement with new value":    {change(Create, known("2")), change(Replace, known("1")), "x differs"},
		"a deletion that is left":         {change(Delete), change(Replace), ""},
		"a deletion in place of it":       {change(Delete), change(Update), "planned to update"},
		"another value beside an unknown": {change(Create, Attribute{Path: "xy", After: "1"}), change(Create, unknownYet), "xy differs"},
		"an unknown in place of a value":  {change(Update, unknownYet), change(Update, known("1")), "x differs"},
		"a tainted resource":              {change(Replace, known("1")), change(Create, known("1")), ""},
		"the old one of a replacement": {
			Plan{Changes: []Change{{Resource: Resource{Address: "a.b", Name: "b (deposed 1)"}, Action: Delete}}}, change(Replace, known("1")), "",
		},
		"an output":                      {output(Update, known("1")), output(Update, known("1")), ""},
		"an output that is known now":    {output(Create, Attribute{After: "1"}), output(Create, Attribute{Unknown: true}), ""},
		"an output with another value":   {output(Update, Attribute{Before: "0", After: "2"}), output(Update, Attribute{Before: "0", After: "1"}), "update output b (its value differs"},
		"an output that was not planned": {output(Update, known("1")), change(Update, known("1")), "update output b (it was not planned"},
		"an output that is removed":      {output(Delete), output(Update, known("1")), "delete output b (it was planned to update"},
		"another resource":               {change(Create), Plan{}, "not planned"},
		"an import that is left":         {Plan{Changes: []Change{{Resource: Resource{Address: "a.b", Name: "b"}, Action: Import, Origin: "imported as 1"}}}, Plan{Changes: []Change{{Resource: Resource{Address: "a.b", Name: "b"}, Action: Import, Origin: "imported as 1"}}}, ""},
		"an import of another":           {Plan{Changes: []Change{{Resource: Resource{Address: "a.b", Name: "b"}, Action: Import, Origin: "imported as 2"}}}, Plan{Changes: []Change{{Resource: Resource{Address: "a.b", Name: "b"}, Action: Import, Origin: "imported as 1"}}}, "imported as 2"},
		"an update after its move":       {change(Update, known("1")), Plan{Changes: []Change{{Resource: Resource{Address: "a.b", Name: "b"}, Action: Update, Origin: "moved from a.c", Attributes: []Attribute{known("1")}}}}, ""},
		"a move in place of an update":   {change(Move), change(Update, known("1")), "planned to update"},
		"an attribute more":              {change(Update, known("1"), Attribute{Path: "y", After: "1"}), change(Update, known("1")), "y differs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := test.left.LeftOf(test.approved)
			if (got == "") != (test.news == "") || !strings.Contains(got, test.news) {
				t.Errorf("got %q, want %q", got, test.news)
			}
		})
	}
}

func TestMoved(t *testing.T) {
	approved, now := read(t, shown), read(t, strings.Replace(shown, `"actions": ["update"]`, `"actions": ["delete"]`, 1))
	if got := now.Moved(approved); got != "sample_file.a: now delete instead of update" {
		t.Errorf("got %q", got)
	}
	before := Plan{Outputs: []Change{{Resource: Resource{Name: "x"}, Action: Update}}}
	after := Plan{Outputs: []Change{{Resource: Resource{Name: "y"}, Action: Create}}}
	if got := after.Moved(before); got != "now also create output y; no longer update output x" {
		t.Errorf("got %q", got)
	}
}

// TestLock reads what OpenTofu 1.12 writes.
func TestLock(t *testing.T) {
	const text = `
Error: Error acquiring the state lock

Error message: HTTP remote state already locked: ID=ce0f
Lock Info:
  ID:        ce0f
  Path:      
  Operation: OperationTypeApply
  Who:       ann@laptop
  Version:   1.12.6
  Created:   2026-11-28 06:38:29.1 +0000 UTC
  Info:      
`
	lock := lockIn(text)
	if lock == nil || lock.ID != "ce0f" || lock.Who != "ann@laptop" || lock.Operation != "OperationTypeApply" || !strings.HasPrefix(lock.Created, "2026-11-28 06:38:29.1") {
		t.Fatalf("got %+v", lock)
	}
	const released = "Error: Error releasing the state lock\n\nError message: timeout\nLock Info:\n  ID:        ce0f\n  Who:       ann@laptop\n"
	if lockIn(released) != nil || !keepsLock(released) || keepsLock(text) || keepsLock("Error: cannot create\n"+released) {
		t.Error("a lock that could not be released was taken for one that another run has")
	}
	if lockIn("Error: Unsupported block type\n  ID: 3\n") != nil {
		t.Error("another error was taken for a lock")
	}
}
