package variant

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/manifest"
)

// switches are the domains of labels that configure a service mesh or an admission webhook. Their values
// are not those of an application.
var switches = []string{"istio.io", "linkerd.io", "kuma.io", "azure.workload.identity", "admission.datadoghq.com"}

// isSwitch reports whether the value of a label has to stay: it configures another program, and no
// selector of the application names it.
func (c *copier) isSwitch(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	return qualified && !c.keys[key] && slices.ContainsFunc(switches, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

// relabel returns labels, or the labels of a selector, with the values of the preview: equal values stay
// equal, and no value is one of the branch.
func (c *copier) relabel(labels map[string]string) map[string]string {
	if labels == nil {
		return nil
	}
	out := map[string]string{}
	for key, value := range labels {
		if !c.isSwitch(key) {
			value = Bounded(value, c.Suffix, validation.LabelValueMaxLength)
		}
		out[key] = value
	}
	return out
}

// relabelSelector changes the values of a label selector in place.
func (c *copier) relabelSelector(selector map[string]any) {
	if labels, ok, err := unstructured.NestedStringMap(selector, "matchLabels"); ok && err == nil {
		selector["matchLabels"] = anys(c.relabel(labels))
	}
	expressions, _ := selector["matchExpressions"].([]any)
	for _, e := range expressions {
		expression, _ := e.(map[string]any)
		key, _ := expression["key"].(string)
		values, _ := expression["values"].([]any)
		for i, v := range values {
			if value, ok := v.(string); ok && !c.isSwitch(key) {
				values[i] = Bounded(value, c.Suffix, validation.LabelValueMaxLength)
			}
		}
	}
}

// relabelWorkload gives the pods of a workload's copy the labels of the preview, and makes it select
// only these.
func (c *copier) relabelWorkload(made, original manifest.Object) error {
	labels, _, _ := unstructured.NestedStringMap(original.Object, "spec", "template", "metadata", "labels")
	own := map[string]string{LabelPreview: c.Name, LabelPreviewWorkload: made.GetName()}
	next := c.relabel(labels)
	if next == nil {
		next = map[string]string{}
	}
	for key, value := range own {
		next[key] = value
	}
	if err := setField(made, anys(next), "spec", "template", "metadata", "labels"); err != nil {
		return err
	}
	if selector, ok, err := unstructured.NestedMap(made.Object, "spec", "selector"); ok && err == nil {
		c.relabelSelector(selector)
		if err := setField(made, selector, "spec", "selector"); err != nil {
			return err
		}
	}
	for key, value := range own {
		if err := setField(made, value, "spec", "selector", "matchLabels", key); err != nil {
			return err
		}
	}
	c.relabelTerms(manifest.PodSpec(made.Unstructured), labels)
	return nil
}

// relabelTerms changes the label selectors of affinities and topology spread constraints that select
// pods with these labels, so that they are about the pods of the preview.
func (c *copier) relabelTerms(node any, pod map[string]string) {
	switch node := node.(type) {
	case []any:
		for _, item := range node {
			c.relabelTerms(item, pod)
		}
	case map[string]any:
		for key, value := range node {
			selector, ok := value.(map[string]any)
			if key == "labelSelector" && ok {
				if matches(selector, pod) {
					c.relabelSelector(selector)
				}
				continue
			}
			c.relabelTerms(value, pod)
		}
	}
}

// selectorKeys returns the keys of labels that selectors of Services and workloads name.
func selectorKeys(objects []manifest.Object) map[string]bool {
	keys := map[string]bool{}
	for _, o := range objects {
		selector, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
		if isService(o) {
			for key := range selector {
				keys[key] = true
			}
			continue
		}
		labels, _ := selector["matchLabels"].(map[string]any)
		for key := range labels {
			keys[key] = true
		}
		expressions, _ := selector["matchExpressions"].([]any)
		for _, e := range expressions {
			expression, _ := e.(map[string]any)
			if key, ok := expression["key"].(string); ok {
				keys[key] = true
			}
		}
	}
	return keys
}

// selectorOf returns a copy of a Service's selector.
func selectorOf(service manifest.Object) map[string]string {
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	return selector
}

// anys converts labels to the type of fields of an object.
func anys(labels map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range labels {
		out[key] = value
	}
	return out
}
