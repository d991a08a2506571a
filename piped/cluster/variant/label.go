package variant

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Label is what tells the pods of a variant from those of the others.
type Label struct{ Key, Value string }

// Add puts the label into a workload's selector and pod template; what is no
// workload stays as it is. It changes o.
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

// Has reports whether a workload has the label in its selector and its pod
// template, so that the selector takes no pods of another variant; and whether a
// Service selects by it. Of other objects it is true.
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

// setField sets a field of an object; where a field on the way is no mapping, the
// error points at the file.
func setField(o manifest.Object, value any, path ...string) error {
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		return deploy.Errorf(deploy.Invalid, "%s: %s %s cannot be made a variant: %w", o.Origin, o.GetKind(), o.GetName(), err)
	}
	return nil
}
