package variant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const istioGroup = "networking.istio.io"

// mesh is what gateways of a VirtualService call the sidecars.
const mesh = "mesh"

func isVirtualService(o manifest.Object) bool {
	return o.GroupVersionKind().Group == istioGroup && o.GetKind() == "VirtualService"
}

func isDestinationRule(o manifest.Object) bool {
	return o.GroupVersionKind().Group == istioGroup && o.GetKind() == "DestinationRule"
}

// addVirtualServices adds a VirtualService for the host of the preview next to each one of the branch that
// leads to a copied Service, with its rules of http. Gateways are those of the branch. None is for the
// header: at gateways Istio merges the VirtualServices of one host in no defined order, and sidecars
// apply only one of them.
func (c *copier) addVirtualServices() error {
	for _, o := range c.merged {
		if !isVirtualService(o) || o.GetNamespace() != c.Namespace || len(hostsOf(o)) == 0 || !c.leadsToHost(o) {
			continue
		}
		was := find(c.branch, o)
		if was == nil {
			continue // reported as shared
		}
		if err := c.addVirtualService(o, *was); err != nil {
			return deploy.Errorf(deploy.Invalid, "%s: VirtualService %s: %w", o.Origin, o.GetName(), err)
		}
	}
	return nil
}

// addVirtualService adds the copy of a VirtualService and those of its delegates.
func (c *copier) addVirtualService(o, branch manifest.Object) error {
	original, _ := branch.DeepCopy().Object["spec"].(map[string]any)
	gateways, _ := original["gateways"].([]any)
	switch {
	case c.Host == "":
		return fmt.Errorf("requests with the header %s cannot be led past it, because Istio merges several VirtualServices for one host in no defined order, and sidecars apply only one: set spec.preview.host", c.Header)
	case !slices.ContainsFunc(gateways, func(g any) bool { return g != mesh }):
		return fmt.Errorf("on the branch it names no gateway but the mesh, so that requests for %s would not reach the preview: name a Gateway in spec.gateways, or use mode: namespace in spec.preview", c.Host)
	}
	made := c.make(o, c.name(o.GetKind(), o.GetName()))
	spec, _ := made.Object["spec"].(map[string]any)
	for _, field := range []string{"gateways", "exportTo", "tls", "tcp"} { // requests of the last two have no host
		delete(spec, field)
	}
	for _, field := range []string{"gateways", "exportTo"} {
		if original[field] != nil {
			spec[field] = original[field]
		}
	}
	spec["hosts"] = []any{c.Host}
	for _, rule := range list(spec["http"]) {
		if err := c.addDelegate(rule); err != nil {
			return err
		}
		if err := c.lead(rule); err != nil {
			return err
		}
	}
	return nil
}

// addDelegate makes a rule delegate to the copy of its VirtualService, if that leads to a copied Service.
func (c *copier) addDelegate(rule map[string]any) error {
	d, ok := rule["delegate"].(map[string]any)
	if !ok {
		return nil
	}
	delegate := c.delegate(rule)
	if delegate == nil && !c.isShared(d) {
		return fmt.Errorf("it delegates to %v, which no VirtualService of the branch does: merge that first", d["name"])
	}
	if delegate == nil {
		return nil
	}
	name := c.name(delegate.GetKind(), delegate.GetName())
	d["name"] = name
	if c.copied[manifest.Ref(delegate.Unstructured).Key()] { // another rule has it, too
		return nil
	}
	for _, rule := range httpRules(c.make(*delegate, name)) {
		if err := c.lead(rule); err != nil {
			return fmt.Errorf("its delegate %s: %w", delegate.GetName(), err)
		}
	}
	return nil
}

// lead makes a rule of the copy of a VirtualService lead to the copied Services, and set the header.
func (c *copier) lead(rule map[string]any) error {
	for _, match := range list(rule["match"]) {
		if match["authority"] != nil {
			return fmt.Errorf("it matches requests by authority, which is %s for the preview: match them by spec.hosts of several VirtualServices, or use mode: namespace in spec.preview", c.Host)
		}
	}
	for _, d := range destinations(rule) {
		host, _ := d["host"].(string)
		service, rest := c.serviceOf(host)
		if service == "" {
			if err := c.checkDestination(host); err != nil {
				return err
			}
			continue
		}
		d["host"] = c.name("Service", service) + rest
		if subset, _ := d["subset"].(string); !c.subsets[service][subset] {
			delete(d, "subset")
		}
	}
	if c.Header != "" && rule["route"] != nil {
		c.setRequestHeader(rule)
	}
	return nil
}

// checkDestination returns an error for a destination outside the namespace that no VirtualService of the
// branch leads to. Unlike routes of the Gateway API, a VirtualService needs no permission of the other
// namespace, and the gateway may reach what the pods of the application may not.
func (c *copier) checkDestination(host string) error {
	inside := func(host string) bool { return !strings.Contains(host, ".") || c.isOfNamespace(host) }
	known := slices.ContainsFunc(c.branch, func(o manifest.Object) bool {
		return isVirtualService(o) && slices.ContainsFunc(httpRules(o), func(rule map[string]any) bool {
			return slices.ContainsFunc(destinations(rule), func(d map[string]any) bool { return d["host"] == host })
		})
	})
	if inside(host) || known {
		return nil
	}
	return fmt.Errorf("it leads to %s in another namespace, which no VirtualService of the branch does: merge that first", host)
}

// isShared reports whether a VirtualService of the branch has the same delegate.
func (c *copier) isShared(delegate map[string]any) bool {
	id := func(d map[string]any) string { return fmt.Sprint(cmp.Or(d["namespace"], any(c.Namespace)), d["name"]) }
	return slices.ContainsFunc(c.branch, func(o manifest.Object) bool {
		return isVirtualService(o) && slices.ContainsFunc(httpRules(o), func(rule map[string]any) bool {
			d, ok := rule["delegate"].(map[string]any)
			return ok && id(d) == id(delegate)
		})
	})
}

// setRequestHeader makes a rule set the header on requests, as setHeader does for other routes.
func (c *copier) setRequestHeader(rule map[string]any) {
	headers := child(rule, "headers")
	request := child(headers, "request")
	isHeader := func(name string) bool { return strings.EqualFold(name, c.Header) }
	for _, operation := range []string{"set", "add"} {
		for name := range child(request, operation) {
			if isHeader(name) {
				delete(child(request, operation), name)
			}
		}
	}
	if len(child(request, "add")) == 0 {
		delete(request, "add")
	}
	if removed, ok := request["remove"].([]any); ok {
		request["remove"] = slices.DeleteFunc(removed, func(v any) bool { return isHeader(fmt.Sprint(v)) })
	}
	child(request, "set")[c.Header] = c.Name
}

// child returns a mapping in a mapping, which it adds if there is none.
func child(of map[string]any, key string) map[string]any {
	m, ok := of[key].(map[string]any)
	if !ok {
		m = map[string]any{}
		of[key] = m
	}
	return m
}

// leadsToHost reports whether a rule of a VirtualService, or of its delegate, has a copied Service as a
// destination.
func (c *copier) leadsToHost(o manifest.Object) bool {
	return slices.ContainsFunc(httpRules(o), func(rule map[string]any) bool { return c.leadsDirectly(rule) || c.delegate(rule) != nil })
}

func (c *copier) leadsDirectly(rule map[string]any) bool {
	return slices.ContainsFunc(list(rule["route"]), func(route map[string]any) bool {
		host, _, _ := unstructured.NestedString(route, "destination", "host")
		name, _ := c.serviceOf(host)
		return name != ""
	})
}

// delegate returns the VirtualService that a rule delegates to if that leads to a copied Service, nil
// otherwise.
func (c *copier) delegate(rule map[string]any) *manifest.Object {
	d, ok := rule["delegate"].(map[string]any)
	if !ok {
		return nil
	}
	at := slices.IndexFunc(c.merged, func(o manifest.Object) bool {
		return isVirtualService(o) && o.GetName() == d["name"] && o.GetNamespace() == c.Namespace && cmp.Or(d["namespace"], any(c.Namespace)) == c.Namespace &&
			len(hostsOf(o)) == 0 && slices.ContainsFunc(httpRules(o), c.leadsDirectly)
	})
	if at < 0 {
		return nil
	}
	return &c.merged[at]
}

// serviceOf returns the copied Service that a host names, and the rest of the host; "" if it names none.
// A name without a dot is one of the namespace of its VirtualService.
func (c *copier) serviceOf(host string) (name, rest string) {
	name, _, qualified := strings.Cut(host, ".")
	if qualified && !c.isOfNamespace(host) || !slices.ContainsFunc(c.services, func(s manifest.Object) bool { return s.GetName() == name }) {
		return "", ""
	}
	return name, host[len(name):]
}

// isOfNamespace reports whether a host with a dot is that of a Service in the namespace.
func (c *copier) isOfNamespace(host string) bool {
	labels := strings.Split(host, ".")
	return labels[1] == c.Namespace && (len(labels) == 2 || labels[2] == "svc")
}

// addDestinationRules copies the DestinationRules of the copied Services. Subsets that select no pods of a
// copied workload are left out.
func (c *copier) addDestinationRules() error {
	c.subsets = map[string]map[string]bool{}
	for _, o := range c.merged {
		host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
		service, rest := c.serviceOf(host)
		if !isDestinationRule(o) || o.GetNamespace() != c.Namespace || service == "" {
			continue
		}
		made := c.make(o, c.name(o.GetKind(), o.GetName()))
		spec := child(made.Object, "spec")
		spec["host"] = c.name("Service", service) + rest
		var subsets []any
		for _, subset := range list(spec["subsets"]) {
			labels, _, err := unstructured.NestedStringMap(subset, "labels")
			if err != nil {
				return deploy.Errorf(deploy.Invalid, "%s: DestinationRule %s: spec.subsets: %w", o.Origin, o.GetName(), err)
			}
			if !slices.ContainsFunc(c.workloads, func(w manifest.Object) bool {
				return matches(map[string]any{"matchLabels": anys(labels)}, podLabels(w))
			}) {
				continue
			}
			subset["labels"] = anys(c.relabel(labels))
			subsets = append(subsets, subset)
			if c.subsets[service] == nil {
				c.subsets[service] = map[string]bool{}
			}
			name, _ := subset["name"].(string)
			c.subsets[service][name] = true
		}
		delete(spec, "subsets")
		if subsets != nil {
			spec["subsets"] = subsets
		}
	}
	return nil
}

func hostsOf(virtualService manifest.Object) []string {
	hosts, _, _ := unstructured.NestedStringSlice(virtualService.Object, "spec", "hosts")
	return hosts
}

// httpRules returns the rules of a VirtualService for HTTP.
func httpRules(o manifest.Object) []map[string]any {
	spec, _ := o.Object["spec"].(map[string]any)
	return list(spec["http"])
}

// destinations returns the destinations of a rule: those of its routes and mirrors.
func destinations(rule map[string]any) (out []map[string]any) {
	for _, field := range []string{"route", "mirrors"} {
		for _, item := range list(rule[field]) {
			if d, ok := item["destination"].(map[string]any); ok {
				out = append(out, d)
			}
		}
	}
	if d, ok := rule["mirror"].(map[string]any); ok {
		out = append(out, d)
	}
	return out
}
