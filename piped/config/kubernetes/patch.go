package kubernetes

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// Patch changes one object of the canary.
type Patch struct {
	// Target is the object to change.
	// Required.
	Target PatchTarget `yaml:"target" json:"target"`
	// Ops are the changes.
	// Required.
	Ops []PatchOp `yaml:"ops" json:"ops"`
}

// PatchTarget names the object.
type PatchTarget struct {
	Reference `yaml:",inline"`
	// DocumentRoot is the path of a field whose text is the document to change, such as
	// `$.data.'app.yaml'`.
	// Default: none: the object itself.
	DocumentRoot string `yaml:"documentRoot" json:"documentRoot,omitempty"`
}

// PatchOp is one change.
type PatchOp struct {
	// Op is the kind of change: `yaml-replace` changes a value, `yaml-add` adds one, `yaml-remove`
	// removes one; `json-replace` is `yaml-replace` for JSON; `text-regex` replaces what a regular
	// expression matches.
	Op PatchKind `yaml:"op" json:"op"`
	// Path is the place of the change, such as `$.spec.template.spec.containers[0].image`. `[*]`
	// is every item, `..name` every field of that name. With `text-regex` it is the expression
	// (RE2).
	// Required.
	Path string `yaml:"path" json:"path"`
	// Value is the new value, as YAML. With `text-regex` it is the new text, in which `$1` is the
	// first group.
	// Default: none.
	Value string `yaml:"value" json:"value,omitempty"`
}

// Default implements strict.Defaulter.
func (o *PatchOp) Default() { o.Op = YAMLReplace }

// PatchKind says how a PatchOp changes.
type PatchKind string

// The kinds of change.
const (
	YAMLReplace PatchKind = "yaml-replace"
	YAMLAdd     PatchKind = "yaml-add"
	YAMLRemove  PatchKind = "yaml-remove"
	JSONReplace PatchKind = "json-replace"
	TextRegex   PatchKind = "text-regex"
)

// Values lists the kinds of change.
func (PatchKind) Values() []string {
	return []string{string(YAMLReplace), string(YAMLAdd), string(YAMLRemove), string(JSONReplace), string(TextRegex)}
}

func (p *Patch) complete(d *strict.Document, at string) {
	for field, value := range map[string]string{"kind": p.Target.Kind, "name": p.Target.Name} {
		if value == "" {
			d.Problemf(at+".target."+field, "required; expected the %s of the object to change", field)
		}
	}
	if root := p.Target.DocumentRoot; root != "" && !strings.HasPrefix(root, "$") {
		d.Problemf(at+".target.documentRoot", "expected a path such as $.data.config, found %q", root)
	}
	if len(p.Ops) == 0 {
		d.Problemf(at+".ops", "expected at least one change")
	}
	for i, op := range p.Ops {
		op.complete(d, fmt.Sprintf("%s.ops[%d]", at, i))
	}
}

func (o *PatchOp) complete(d *strict.Document, at string) {
	switch {
	case o.Path == "":
		d.Problemf(at+".path", "required")
	case o.Op == TextRegex:
		if _, err := regexp.Compile(o.Path); err != nil {
			d.Problemf(at+".path", "expected a regular expression with %s, found %q: %s", TextRegex, o.Path, err)
		}
	case !strings.HasPrefix(o.Path, "$"):
		d.Problemf(at+".path", "expected a path such as $.spec.replicas, found %q", o.Path)
	}
	if o.Op == YAMLRemove && o.Value != "" {
		d.Problemf(at+".value", "%s takes no value", YAMLRemove)
	}
}
