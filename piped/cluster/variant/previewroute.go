package variant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const gatewayGroup = "gateway.networking.k8s.io"

// isRoute reports whether an object is a route that can select requests by a header.
func isRoute(o manifest.Object) bool {
	return o.GroupVersionKind().Group == gatewayGroup && (o.GetKind() == "HTTPRoute" || o.GetKind() == "GRPCRoute")
}

// addRoutes adds routes to the copies, next to those of the branch: one for the header and one for the
// host. Each has all rules of the original, so that the rules have the same order of precedence: a copy
// of a rule has one header more and takes precedence over the original, and over no rule that took
// precedence over the original. Gateways and hostnames are those of the branch.
func (c *copier) addRoutes() error {
	for _, o := range c.merged {
		if !isRoute(o) || o.GetNamespace() != c.Namespace || !c.leadsToCopy(o) {
			continue
		}
		was := find(c.branch, o)
		if was == nil {
			continue // reported as shared
		}
		if c.Header != "" {
			made := c.make(o, c.name(o.GetKind(), o.GetName()))
			if err := c.route(made, *was, c.addHeader); err != nil {
				return err
			}
			c.routes = append(c.routes, *was)
		}
		if c.Host != "" {
			name := o.GetName()
			if c.Header != "" {
				name += "-host"
			}
			made := c.make(o, c.name(o.GetKind(), name))
			if err := c.route(made, *was, c.setHeader); err != nil {
				return err
			}
			if err := setField(made, []any{c.Host}, "spec", "hostnames"); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkEntry returns an error if no request would reach the preview.
func (c *copier) checkEntry() error {
	if slices.ContainsFunc(c.out, isEntry) {
		return nil
	}
	return deploy.Errorf(deploy.Invalid, "the application has no HTTPRoute, GRPCRoute or VirtualService on the branch that leads to a Service of its workloads (%s), so that a preview with mode route would get no requests: "+
		"declare one, as an Ingress cannot select requests by a header, or use mode: namespace in spec.preview", strings.Join(namesOf(c.services), ", "))
}

func namesOf(objects []manifest.Object) (out []string) {
	for _, o := range objects {
		out = append(out, o.GetName())
	}
	return out
}

// leadsToCopy reports whether a route has a copied Service as a backend.
func (c *copier) leadsToCopy(o manifest.Object) bool {
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		return slices.ContainsFunc(list(fields["backendRefs"]), c.isCopied)
	})
}

// isCopied reports whether a reference of a route is to a copied Service.
func (c *copier) isCopied(ref map[string]any) bool {
	text := func(key string) string { s, _ := ref[key].(string); return s }
	return text("group") == "" && (text("kind") == "" || text("kind") == "Service") && (text("namespace") == "" || text("namespace") == c.Namespace) &&
		slices.ContainsFunc(c.services, func(s manifest.Object) bool { return s.GetName() == text("name") })
}

// route makes a copy of a route lead to the copied Services, and changes its rules.
func (c *copier) route(made, branch manifest.Object, edit func(rule map[string]any) error) error {
	spec, _ := made.Object["spec"].(map[string]any)
	original, _ := branch.DeepCopy().Object["spec"].(map[string]any)
	for _, field := range []string{"parentRefs", "hostnames"} {
		delete(spec, field)
		if original[field] != nil {
			spec[field] = original[field]
		}
	}
	for _, rule := range list(spec["rules"]) {
		c.redirect(rule)
		if err := edit(rule); err != nil {
			return deploy.Errorf(deploy.Invalid, "%s: %s %s: %w", made.Origin, made.GetKind(), branch.GetName(), err)
		}
	}
	return nil
}

// redirect replaces the copied Services in the backends and mirrors of a rule.
func (c *copier) redirect(rule map[string]any) {
	change := func(ref map[string]any) {
		if c.isCopied(ref) {
			name, _ := ref["name"].(string)
			ref["name"] = c.name("Service", name)
		}
	}
	mirrors := func(filters any) {
		for _, filter := range list(filters) {
			mirror, _ := filter["requestMirror"].(map[string]any)
			if ref, ok := mirror["backendRef"].(map[string]any); ok {
				change(ref)
			}
		}
	}
	mirrors(rule["filters"])
	for _, ref := range list(rule["backendRefs"]) {
		mirrors(ref["filters"])
		change(ref)
	}
}

// addHeader makes every match of a rule demand the header.
func (c *copier) addHeader(rule map[string]any) error {
	all, _ := rule["matches"].([]any)
	if len(all) == 0 {
		all = []any{map[string]any{}}
	}
	for _, m := range all {
		match, ok := m.(map[string]any)
		if !ok {
			return fmt.Errorf("expected a mapping in rules[].matches")
		}
		for _, h := range list(match["headers"]) {
			if name, _ := h["name"].(string); strings.EqualFold(name, c.Header) {
				return fmt.Errorf("it matches the header %s itself: choose another spec.preview.header", c.Header)
			}
		}
		headers, _ := match["headers"].([]any)
		match["headers"] = append(headers, map[string]any{"type": "Exact", "name": c.Header, "value": c.Name})
	}
	rule["matches"] = all
	return nil
}

// setHeader makes a rule set the header on requests, so that workloads that pass it on reach the
// rest of the preview.
func (c *copier) setHeader(rule map[string]any) error {
	if c.Header == "" {
		return nil
	}
	own := map[string]any{"name": c.Header, "value": c.Name}
	filters, _ := rule["filters"].([]any)
	for _, filter := range list(filters) {
		if filter["type"] != "RequestHeaderModifier" {
			continue
		}
		modifier, _ := filter["requestHeaderModifier"].(map[string]any)
		if modifier == nil {
			return fmt.Errorf("expected requestHeaderModifier in a filter of that type")
		}
		set, _ := modifier["set"].([]any)
		set = slices.DeleteFunc(set, func(v any) bool {
			header, _ := v.(map[string]any)
			name, _ := header["name"].(string)
			return strings.EqualFold(name, c.Header)
		})
		modifier["set"] = append(set, own)
		return nil
	}
	rule["filters"] = append(filters, map[string]any{"type": "RequestHeaderModifier", "requestHeaderModifier": map[string]any{"set": []any{own}}})
	return nil
}

// list returns the mappings of a list.
func list(v any) (out []map[string]any) {
	items, _ := v.([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// hostnames returns the hosts whose requests the routes with the header get, nil for every host.
func (c *copier) hostnames() []string {
	found := map[string]bool{}
	for _, o := range c.routes {
		hosts, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "hostnames")
		if len(hosts) == 0 {
			return nil
		}
		for _, host := range hosts {
			found[host] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
