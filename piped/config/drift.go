package config

import (
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// DriftDetection is spec.driftDetection.
type DriftDetection struct {
	// IgnoreFields are "apiVersion:kind:namespace:name#path", as in PipeCD.
	IgnoreFields []string     `yaml:"ignoreFields"`
	IgnoreRules  []IgnoreRule `yaml:"ignoreRules"`
}

// IgnoreRule names fields whose difference from Git is no drift, of the objects
// that have the kind and the name.
type IgnoreRule struct {
	Kind string `yaml:"kind"` // "" is every kind
	Name string `yaml:"name"` // "" is every name
	// Paths are JSON pointers (RFC 6901, with ~1 for / and ~0 for ~) in which an item of
	// a list is named by its merge key: /spec/template/spec/containers[name=web]/image,
	// or [port=80,protocol=TCP], or [=text] for an item that is a plain value
	// (ParsePath).
	Paths []string `yaml:"paths"`
	// Managers are field managers, whose fields are meant; with Paths, what of those
	// paths is theirs.
	Managers []string   `yaml:"managers"`
	Mode     IgnoreMode `yaml:"mode"`
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
