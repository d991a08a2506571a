package config

import (
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// DriftDetection is spec.driftDetection.
type DriftDetection struct {
	// IgnoreFields are fields whose difference is no drift, as PipeCD writes them:
	// `apiVersion:kind:namespace:name#path`. The namespace is `default` for objects without one.
	// In the path, keys and list indexes have dots between them. A field includes all below it.
	IgnoreFields []string `yaml:"ignoreFields"`
	// IgnoreRules name fields by object, path and field manager.
	// Not in PipeCD.
	IgnoreRules []IgnoreRule `yaml:"ignoreRules"`
}

// IgnoreRule names fields whose difference from Git is no drift, of the objects
// that have the kind and the name.
type IgnoreRule struct {
	// Kind is the kind of the objects that the rule applies to.
	// Default: all.
	Kind string `yaml:"kind"`
	// Name is their name.
	// Default: all.
	Name string `yaml:"name"`
	// Paths are JSON pointers to fields; a field includes all below it. An item of a list is named
	// by its merge key: `/spec/template/spec/containers[name=web]/image`.
	//
	// See ParsePath: RFC 6901 with ~1 for / and ~0 for ~, [port=80,protocol=TCP] for several keys,
	// and [=text] for an item that is a plain value.
	Paths []string `yaml:"paths"`
	// Managers are field managers whose fields are meant, as `kubectl get --show-managed-fields`
	// names them. With `paths`, only those fields of the paths that they own.
	Managers []string `yaml:"managers"`
	// Mode is what ignoring means: with `observe` the field is applied, and its difference is not
	// reported. With `yield` the field is left to others: applied when the object is created, and
	// then not changed.
	Mode IgnoreMode `yaml:"mode"`
}

// Default implements strict.Defaulter.
func (r *IgnoreRule) Default() { r.Mode = IgnoreObserve }

// IgnoreMode says what ignoring a field means.
type IgnoreMode string

// The modes: the field is applied but its drift is not reported, or it is left
// to others: applied when the object is created, and then kept as it is live.
const (
	IgnoreObserve IgnoreMode = "observe"
	IgnoreYield   IgnoreMode = "yield"
)

// Values lists the modes.
func (IgnoreMode) Values() []string { return []string{string(IgnoreObserve), string(IgnoreYield)} }

func (dd DriftDetection) complete(d *strict.Document) {
	for i, f := range dd.IgnoreFields {
		key, path, ok := strings.Cut(f, "#")
		if !ok || strings.Contains(path, "#") || strings.Count(key, ":") != 3 || path == "" {
			d.Problemf(fmt.Sprintf("driftDetection.ignoreFields[%d]", i), "expected apiVersion:kind:namespace:name#path, found %q", f)
		}
	}
	for i, r := range dd.IgnoreRules {
		r.complete(d, fmt.Sprintf("driftDetection.ignoreRules[%d]", i))
	}
}

func (r IgnoreRule) complete(d *strict.Document, at string) {
	if len(r.Paths) == 0 && len(r.Managers) == 0 {
		d.Problemf(at, "expected at least one of paths and managers")
	}
	for i, p := range r.Paths {
		if _, err := ParsePath(p); err != nil {
			d.Problemf(fmt.Sprintf("%s.paths[%d]", at, i), "%v", err)
		}
	}
	for i, m := range r.Managers {
		if m == "" {
			d.Problemf(fmt.Sprintf("%s.managers[%d]", at, i), "expected the name of a field manager, found an empty one")
		}
	}
}
