package opentofu

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	tfjson "github.com/hashicorp/terraform-json"
)

// Action is what a plan does with a resource.
type Action string

// The actions.
const (
	Create  Action = "create"
	Update  Action = "update"
	Delete  Action = "delete"
	Replace Action = "replace"
	Forget  Action = "forget" // the state forgets the resource, which stays
	Import  Action = "import" // the state takes over a resource that exists
	Move    Action = "move"   // only the address in the state changes
)

// Plan is a saved plan.
type Plan struct {
	Digest  string   // SHA-256 of the file, in hex
	Data    []byte   // the file
	Changes []Change // of resources, by address
	Drift   []Change // what differed from the state before
	Outputs []Change // of outputs, by name
	Reads   int      // data sources that are read by the apply
	// IsEmpty is set if the program says that there is nothing to apply (-detailed-exitcode). That is
	// known only of a plan that was just made.
	IsEmpty bool
}

// Resource identifies a resource.
type Resource struct {
	Address string // such as module.net.aws_subnet.a["x"]
	Module  string // such as module.net; "" for the root
	Type    string
	Name    string // with its index
}

// Change is the change of a resource or of an output, which has only a Name.
type Change struct {
	Resource
	Action     Action
	Origin     string      // where the resource comes from, such as "moved from a.b"; "" if it stays at its place
	Attributes []Attribute // that differ, by path
}

// Attribute is an attribute that changes. Before and After are JSON, "" for an absent value.
type Attribute struct {
	Path          string
	Before, After string
	Sensitive     bool // the values are not to be shown
	Unknown       bool // After is known only after the apply
	Forces        bool // it is a reason of a replacement
}

// Masked stands for a sensitive value.
const Masked = "(sensitive value)"

// unknown stands for a value that is not known before the apply.
const unknown = "(known after apply)"

// Summary describes the plan in one line. It always has the numbers of resources that are created,
// updated, deleted and replaced.
func (p Plan) Summary() string {
	if p.IsEmpty {
		return "no changes"
	}
	counts := map[Action]int{}
	for _, c := range p.Changes {
		counts[c.Action]++
	}
	text := fmt.Sprintf("%d to create, %d to update, %d to delete, %d to replace", counts[Create], counts[Update], counts[Delete], counts[Replace])
	for _, also := range []struct {
		n    int
		what string
	}{{counts[Import], "to import"}, {counts[Move], "to move"}, {counts[Forget], "to forget"}, {p.Reads, "to read"}} {
		if also.n > 0 {
			text += fmt.Sprintf(", %d %s", also.n, also.what)
		}
	}
	if n := len(p.Outputs); n == 1 {
		text += ", 1 output to change"
	} else if n > 0 {
		text += fmt.Sprintf(", %d outputs to change", n)
	}
	return text
}

// Destroyed returns the resources that the plan deletes or replaces.
func (p Plan) Destroyed() (out []Resource) {
	for _, c := range p.Changes {
		if c.Action == Delete || c.Action == Replace {
			out = append(out, c.Resource)
		}
	}
	return out
}

// planOf converts a plan as the program shows it.
func planOf(data []byte, shown *tfjson.Plan) Plan {
	sum := sha256.Sum256(data)
	p := Plan{Digest: hex.EncodeToString(sum[:]), Data: data, Changes: changesOf(shown.ResourceChanges)}
	p.Drift = slices.DeleteFunc(changesOf(shown.ResourceDrift), func(c Change) bool { return c.Action == Move || c.Action == Import }) // the resource is as it was
	for _, rc := range shown.ResourceChanges {
		if rc.Change != nil && rc.Change.Actions.Read() {
			p.Reads++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown.OutputChanges)) {
		o := shown.OutputChanges[name]
		if action := actionOf(o.Actions); action != "" {
			p.Outputs = append(p.Outputs, Change{Resource: Resource{Name: name}, Action: action, Attributes: attributesOf(o)})
		}
	}
	return p
}

func changesOf(all []*tfjson.ResourceChange) (out []Change) {
	for _, rc := range all {
		if rc.Change == nil || rc.Change.Actions.Read() {
			continue
		}
		action, origin := actionOf(rc.Change.Actions), originOf(rc)
		switch {
		case action != "":
		case rc.Change.Importing != nil:
			action = Import
		case origin != "":
			action = Move
		default:
			continue
		}
		name := rc.Name + index(rc.Index)
		if rc.DeposedKey != "" {
			name += " (deposed " + rc.DeposedKey + ")"
		}
		out = append(out, Change{Resource{rc.Address, rc.ModuleAddress, rc.Type, name}, action, origin, attributesOf(rc.Change)})
	}
	slices.SortFunc(out, func(a, b Change) int { return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Name, b.Name)) })
	return out
}

// originOf returns where a resource comes from, "" if it stays at its place.
func originOf(rc *tfjson.ResourceChange) string {
	var parts []string
	if rc.PreviousAddress != "" && rc.PreviousAddress != rc.Address {
		parts = append(parts, "moved from "+rc.PreviousAddress)
	}
	if i := rc.Change.Importing; i != nil && i.ID != "" {
		parts = append(parts, "imported as "+encode(i.ID))
	} else if i != nil {
		parts = append(parts, "imported as "+encode(i.Identity))
	}
	if slices.Contains(rc.Change.Actions, tfjson.ActionForget) && len(rc.Change.Actions) > 1 {
		parts = append(parts, "its predecessor is forgotten, and stays")
	}
	return strings.Join(parts, ", ")
}

// actionOf returns "" for no action. What this package does not know is shown by its name.
func actionOf(a tfjson.Actions) Action {
	switch {
	case len(a) == 0 || a.NoOp():
		return ""
	case a.Replace():
		return Replace
	case len(a) == 2 && slices.Contains(a, tfjson.ActionCreate) && slices.Contains(a, tfjson.ActionForget):
		return Create
	}
	names := make([]string, 0, len(a))
	for _, action := range a {
		names = append(names, string(action))
	}
	return Action(strings.Join(names, " and "))
}

// index returns the index of a resource as an address has it.
func index(i any) string {
	switch i := i.(type) {
	case nil:
		return ""
	case string:
		return fmt.Sprintf("[%q]", i)
	default:
		return fmt.Sprintf("[%v]", i)
	}
}

// attributesOf returns the attributes that differ. A sensitive value is one attribute with all that is
// in it, since its keys and its size are as sensitive.
func attributesOf(c *tfjson.Change) (out []Attribute) {
	secret := map[string]bool{}
	flags("", c.BeforeSensitive, secret)
	flags("", c.AfterSensitive, secret)
	before, after, unknown, later := map[string]string{}, map[string]string{}, map[string]bool{}, map[string]bool{}
	flatten("", c.Before, secret, before)
	flatten("", c.After, secret, after)
	flags("", c.AfterUnknown, unknown)
	for at := range unknown {
		later[outermost(secret, at)] = true
	}
	forces := map[string]bool{}
	for _, p := range c.ReplacePaths {
		if steps, ok := p.([]any); ok {
			forces[outermost(secret, pathOf(steps))] = true
		}
	}
	paths := map[string]bool{}
	for _, all := range []map[string]string{before, after} {
		for at := range all {
			paths[at] = true
		}
	}
	for at := range later {
		paths[at] = true
	}
	for _, at := range slices.Sorted(maps.Keys(paths)) {
		a := Attribute{Path: at, Before: before[at], After: after[at], Unknown: under(later, at), Sensitive: under(secret, at), Forces: under(forces, at)}
		if a.Unknown {
			a.After = ""
		}
		if a.Before != a.After || a.Unknown {
			out = append(out, a)
		}
	}
	return out
}

// flatten stores the scalars of a value, and what is at one of the whole paths, by path, as JSON; null
// is absent.
func flatten(at string, value any, whole map[string]bool, out map[string]string) {
	if value != nil && whole[at] {
		out[at] = encode(value)
		return
	}
	switch v := value.(type) {
	case nil:
	case map[string]any:
		for key, item := range v {
			flatten(below(at, key), item, whole, out)
		}
		if len(v) == 0 && at != "" {
			out[at] = "{}"
		}
	case []any:
		for i, item := range v {
			flatten(fmt.Sprintf("%s[%d]", at, i), item, whole, out)
		}
		if len(v) == 0 && at != "" {
			out[at] = "[]"
		}
	default:
		out[at] = encode(v)
	}
}

// encode returns a value as JSON, with the text of strings as it is, so that a secret in it can be
// found.
func encode(v any) string {
	var buf strings.Builder
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprintf("%q", fmt.Sprint(v))
	}
	return strings.TrimSuffix(buf.String(), "\n")
}

// flags stores the paths at which a value is true.
func flags(at string, value any, out map[string]bool) {
	switch v := value.(type) {
	case bool:
		if v {
			out[at] = true
		}
	case map[string]any:
		for key, item := range v {
			flags(below(at, key), item, out)
		}
	case []any:
		for i, item := range v {
			flags(fmt.Sprintf("%s[%d]", at, i), item, out)
		}
	}
}

// plainKey matches the keys that a path has without quotes.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

func below(at, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%q]", at, key)
	case at == "":
		return key
	}
	return at + "." + key
}

func pathOf(steps []any) (at string) {
	for _, step := range steps {
		switch s := step.(type) {
		case string:
			at = below(at, s)
		default:
			at += fmt.Sprintf("[%v]", s)
		}
	}
	return at
}

// under reports whether a path, or one that contains it, is among the paths.
func under(paths map[string]bool, at string) bool { return paths[outermost(paths, at)] }

// outermost returns the outermost of the paths that is a path or contains it, else the path itself.
func outermost(paths map[string]bool, at string) string {
	if paths[""] {
		return ""
	}
	for i := 1; i < len(at); i++ {
		if (at[i] == '.' || at[i] == '[') && paths[at[:i]] {
			return at[:i]
		}
	}
	return at
}

// Shown returns the values for users.
func (a Attribute) Shown() (before, after string) {
	show := func(value string) string {
		switch {
		case value != "" && a.Sensitive:
			return Masked
		case value == "":
			return "null"
		}
		return value
	}
	if before, after = show(a.Before), show(a.After); a.Unknown {
		after = unknown
	}
	return before, after
}

// String describes the change of the attribute for users, without sensitive values, in the notation
// of the program.
func (a Attribute) String() string {
	before, after := a.Shown()
	sign, value := "~ ", before+" -> "+after
	switch {
	case a.Before == "":
		sign, value = "+ ", after
	case a.After == "" && !a.Unknown:
		sign, value = "- ", before
	case before == after: // both are masked
		value = after
	}
	if a.Path != "" {
		value = a.Path + " = " + value
	}
	if a.Forces {
		value += " # forces replacement"
	}
	return sign + value
}

// String describes the change for users, without sensitive values: a line for the resource, and
// one for each attribute.
func (c Change) String() string {
	words := map[Action]string{
		Create: "will be created", Update: "will be updated", Delete: "will be deleted", Replace: "must be replaced",
		Forget: "will be forgotten, and stays", Import: "will be imported", Move: "will be moved",
	}
	first := "# " + c.Label() + " " + cmp.Or(words[c.Action], "will "+string(c.Action))
	if c.Origin != "" {
		first += " (" + c.Origin + ")"
	}
	lines := []string{first}
	for _, a := range c.Attributes {
		lines = append(lines, a.String())
	}
	return strings.Join(lines, "\n")
}

// Label returns the name of a resource, or of an output, in a plan.
func (r Resource) Label() string {
	if r.Address == "" {
		return "output." + r.Name
	}
	if i := strings.Index(r.Name, " (deposed "); i >= 0 {
		return r.Address + r.Name[i:]
	}
	return r.Address
}
