package variant

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

func isPolicy(o manifest.Object) bool {
	return o.GroupVersionKind().Group == "networking.k8s.io" && o.GetKind() == "NetworkPolicy"
}

// matches reports whether a label selector selects pods with these labels. One that is invalid selects
// none.
func matches(selector map[string]any, pod map[string]string) bool {
	text, err := json.Marshal(selector)
	if err != nil {
		return false
	}
	var parsed metav1.LabelSelector
	if err := json.Unmarshal(text, &parsed); err != nil {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(&parsed)
	return err == nil && s.Matches(labels.Set(pod))
}

// podLabels returns the labels of the pods of a workload.
func podLabels(o manifest.Object) map[string]string {
	found, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
	return found
}

// addPolicies copies the NetworkPolicies of the branch that limit the workloads, so that their pods have
// the limits of those of the branch. A pull request can change neither these nor, by other labels,
// whether they apply.
func (c *copier) addPolicies() error {
	for _, o := range c.branch {
		if !isPolicy(o) || o.GetNamespace() != c.Namespace {
			continue
		}
		selector, _, err := unstructured.NestedMap(o.Object, "spec", "podSelector")
		if err != nil {
			return deploy.Errorf(deploy.Invalid, "%s: NetworkPolicy %s: spec.podSelector: %w", o.Origin, o.GetName(), err)
		}
		var names []any
		for _, w := range c.limited(selector) {
			names = append(names, c.name(w.GetKind(), w.GetName()))
		}
		if len(names) == 0 {
			continue
		}
		made := c.make(o, c.name(o.GetKind(), o.GetName()))
		own := map[string]any{
			"matchLabels":      map[string]any{LabelPreview: c.Name},
			"matchExpressions": []any{map[string]any{"key": LabelPreviewWorkload, "operator": "In", "values": names}},
		}
		if err := setField(made, own, "spec", "podSelector"); err != nil {
			return err
		}
	}
	return nil
}

// limited returns the workloads whose pods a selector selects, with their labels of the branch or of the
// merge, and those of whose copies it does not.
func (c *copier) limited(selector map[string]any) (out []manifest.Object) {
	for _, w := range c.workloads {
		copied := slices.IndexFunc(c.out, func(o manifest.Object) bool {
			return o.GetKind() == w.GetKind() && o.GetName() == c.name(w.GetKind(), w.GetName())
		})
		was := find(c.branch, w)
		applies := matches(selector, podLabels(w)) || was != nil && matches(selector, podLabels(*was))
		if applies && !matches(selector, podLabels(c.out[copied])) {
			out = append(out, w)
		}
	}
	return out
}
