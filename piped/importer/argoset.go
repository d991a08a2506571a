package importer

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// argoSet converts the Applications that the list generators of an ApplicationSet make. Of the
// others it reports why they cannot be expressed.
func (c *converter) argoSet(ctx context.Context, d Document) ([]Result, error) {
	root := d.root()
	s := root.get("spec")
	s.get("goTemplate").none() // parameters are the same in both forms
	s.get("goTemplateOptions").none()
	s.get("syncPolicy").none() // what happens to Applications when the set changes
	s.get("strategy").lost("applications have no order among themselves: postSync.chain of one deploys others after it")
	s.get("preservedFields").none()
	s.get("ignoreApplicationDifferences").none()
	s.get("applyNestedSelectors").none()
	s.get("templatePatch").block("a template is not evaluated: write the Applications out, and import them")
	root.get("metadata", "labels").none() // of the set, not of its Applications
	root.get("metadata", "annotations").none()
	template := s.get("template")
	var documents []Document
	for _, g := range s.get("generators").items() {
		for _, key := range g.keys() {
			if key != "list" {
				g.get(key).block("%s", generatorReason(key))
				continue
			}
			documents = append(documents, listed(d, g.get(key), template)...)
		}
	}
	template.none()
	root.rest()
	if root.track.blocked() {
		return []Result{{Document: d, Findings: root.track.findings}}, nil
	}
	var out []Result
	for _, made := range documents {
		results, err := c.unit(ctx, made, (*unit).argo, argoSetPlan(d))
		if err != nil {
			return nil, err
		}
		out = append(out, results...)
	}
	if len(out) == 0 {
		out = []Result{{Document: d, Findings: []Finding{{File: d.File, Path: "spec.generators", Reason: "the lists have no elements", Blocks: true}}}}
	} else {
		out[0].Findings = append(root.track.findings, out[0].Findings...)
	}
	return out, nil
}

// generatorReason says what takes the place of a generator.
func generatorReason(kind string) string {
	switch kind {
	case "git":
		return "spec.repositories[].discover finds every app.pipecd.yaml: import one Application per directory, such as those that are live with --from-cluster"
	case "pullRequest":
		return "spec.previews of the agent and preview of an application deploy pull requests"
	}
	return "the elements are known only to a running generator: import the Applications that are live with --from-cluster"
}

// listed returns the Applications of a list generator.
func listed(d Document, list, template field) (out []Document) {
	list.get("elementsYaml").block("a template is not evaluated: write the elements out, and import again")
	if list.get("template").exists() {
		list.get("template").block("a template of a generator is not merged: write the Applications out, and import them")
	}
	for i, e := range list.get("elements").items() {
		values, ok := e.raw().(map[string]any)
		if !ok {
			e.block("expected a mapping")
			continue
		}
		filled, unknown := fill(template.value, values)
		if unknown != "" {
			template.block("%s is not a parameter of %s: only parameters are filled in", unknown, e.path)
			return nil
		}
		object, ok := filled.(map[string]any)
		if !ok {
			template.block("expected a mapping")
			return nil
		}
		object["apiVersion"], object["kind"] = d.Object["apiVersion"], "Application"
		if metadata, ok := object["metadata"].(map[string]any); ok && metadata["namespace"] == nil {
			metadata["namespace"] = d.namespace()
		}
		out = append(out, Document{fmt.Sprintf("%s (%s of %s)", d.File, fmt.Sprintf("element %d", i), d), object})
	}
	return out
}

var (
	parameter = regexp.MustCompile(`\{\{-?\s*\.?([A-Za-z0-9_.-]+?)\s*-?\}\}`)
	action    = regexp.MustCompile(`\{\{.*?\}\}`)
)

// fill returns a copy of a template with the parameters of an element, and the first action that
// is not one of them.
func fill(v any, values map[string]any) (out any, unknown string) {
	switch v := v.(type) {
	case map[string]any:
		filled := map[string]any{}
		for key, child := range v {
			name, bad := fill(key, values)
			value, worse := fill(child, values)
			if bad+worse != "" {
				return nil, bad + worse
			}
			filled[name.(string)] = value
		}
		return filled, ""
	case []any:
		var filled []any
		for _, child := range v {
			value, bad := fill(child, values)
			if bad != "" {
				return nil, bad
			}
			filled = append(filled, value)
		}
		return filled, ""
	case string:
		text := parameter.ReplaceAllStringFunc(v, func(found string) string {
			if value, ok := lookup(values, parameter.FindStringSubmatch(found)[1]); ok {
				return value
			}
			return found
		})
		return text, action.FindString(text)
	}
	return v, ""
}

// lookup returns a scalar at a path of keys.
func lookup(values map[string]any, name string) (string, bool) {
	var at any = values
	for key := range strings.SplitSeq(name, ".") {
		m, ok := at.(map[string]any)
		if !ok {
			return "", false
		}
		at = m[key]
	}
	switch at.(type) {
	case string, bool, int64, float64:
		return fmt.Sprint(at), true
	}
	return "", false
}
