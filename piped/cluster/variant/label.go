package variant

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Label is the label that distinguishes the pods of a variant from those of other variants.
type Label struct{ Key, Value string }

// Add sets the label in the selector and the pod template of o if it is a workload. It does
// not change other objects.
func (l Label) Add(o manifest.Object) error {
	if !isWorkload(o) {
		return nil
	}
	for _, path := range labelPaths() {
		if err := setField(o, l.Value, append(path, l.Key)...); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether a workload has the label in its selector and its pod template, so that
// it does not select pods of another variant, or whether a Service has it in its selector.
// For other objects it returns true.
func (l Label) Has(o manifest.Object) bool {
	has := func(path ...string) bool {
		value, _, _ := unstructured.NestedString(o.Object, append(path, l.Key)...)
		return value == l.Value
	}
	switch {
	case isWorkload(o):
		return !slices.ContainsFunc(labelPaths(), func(path []string) bool { return !has(path...) })
	case isService(o):
		return has("spec", "selector")
	}
	return true
}

func labelPaths() [][]string {
	return [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}}
}

// setField sets a field of an object. If a parent field is not a mapping, it returns an error
// that names the object's file.
func setField(o manifest.Object, value any, path ...string) error {
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: %s %s cannot be made a variant: %w", o.Origin, o.GetKind(), o.GetName(), err)
	}
	return nil
}
