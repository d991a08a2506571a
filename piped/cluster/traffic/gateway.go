package traffic

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// GatewayGroup is the API group of Gateways and their routes.
const GatewayGroup = "gateway.networking.k8s.io"

// Limits of the Gateway API for a route.
const (
	maxWeight      = 1_000_000
	maxRules       = 16
	maxBackends    = 16  // per rule
	maxRuleMatches = 64  // per rule
	maxMatches     = 128 // per route
)

// gateway shares traffic by the weights of the Service backends of HTTPRoutes or GRPCRoutes.
type gateway struct{ Routing }

// Kind returns the kind of route to edit: GRPCRoute for method grpcroute, else HTTPRoute.
func (r Routing) Kind() string {
	if r.Method == kubernetes.GRPCRouteMethod {
		return "GRPCRoute"
	}
	return "HTTPRoute"
}

func (g gateway) find(objects []manifest.Object) ([]int, error) {
	if len(g.Route.Refs) > 0 {
		return g.findNamed(objects)
	}
	var at []int
	for i, o := range objects {
		if isKind(o, GatewayGroup, g.Kind()) && g.sharesAny(o.Unstructured) {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil, deploy.Errorf(deploy.Invalid, "the application has no %s with Service %q of its own namespace as a backend: declare one in Git, or name the routes in spec.trafficRouting.httpRoute.refs",
			g.Kind(), g.Service)
	}
	return at, nil
}

func (g gateway) findNamed(objects []manifest.Object) ([]int, error) {
	var at []int
	for _, ref := range g.Route.Refs {
		i := slices.IndexFunc(objects, func(o manifest.Object) bool {
			return isKind(o, GatewayGroup, g.Kind()) && o.GetName() == ref.Name && (ref.Namespace == "" || o.GetNamespace() == ref.Namespace)
		})
		if i < 0 {
			return nil, deploy.Errorf(deploy.Invalid, "the application has no %s %q, which spec.trafficRouting.httpRoute.refs names: declare it in Git", g.Kind(), ref.Name)
		}
		if !slices.Contains(at, i) {
			at = append(at, i)
		}
	}
	return at, nil
}

// sharesAny reports whether any rule of the route has the stable Service as a backend.
func (g gateway) sharesAny(u *unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "rules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		fields, _ := rule.(map[string]any)
		return len(g.stable(u.GetNamespace(), fields)) > 0
	})
}

// stable returns the backends of a rule that refer to the stable Service. They are not
// copies.
func (g gateway) stable(namespace string, rule map[string]any) (refs []map[string]any) {
	backends, _ := rule["backendRefs"].([]any)
	for _, b := range backends {
		ref, _ := b.(map[string]any)
		if v, ok := g.role(namespace, ref); ok && v == kubernetes.Primary {
			refs = append(refs, ref)
		}
	}
	return refs
}

// role returns the variant whose Service a backend refers to, and false for other backends.
// A backend outside the route's namespace belongs to no variant, because the route may lack
// the permission (ReferenceGrant) to reach the variants' Services there.
func (g gateway) role(namespace string, ref map[string]any) (kubernetes.Variant, bool) {
	if text(ref, "group") != "" || !slices.Contains([]string{"", "Service"}, text(ref, "kind")) ||
		!slices.Contains([]string{"", namespace}, text(ref, "namespace")) {
		return "", false
	}
	switch name := text(ref, "name"); {
	case name == "":
	case name == g.Service:
		return kubernetes.Primary, true
	case name == g.Canary:
		return kubernetes.Canary, true
	case name == g.Baseline:
		return kubernetes.Baseline, true
	}
	return "", false
}

func (g gateway) edit(u *unstructured.Unstructured, s Shares) error {
	if s.Canary > 0 && g.Canary == "" || s.Baseline > 0 && g.Baseline == "" {
		return fmt.Errorf("a variant without a Service cannot get traffic; set createService in the stage that rolls it out")
	}
	rules, _, err := unstructured.NestedSlice(u.Object, "spec", "rules")
	if err != nil {
		return err
	}
	var own []any
	names, edited := map[string]bool{}, 0
	for i, v := range rules {
		rule, ok := v.(map[string]any)
		if !ok {
			return fmt.Errorf("spec.rules[%d] is no mapping", i)
		}
		name := text(rule, "name")
		if len(g.Route.EditableRules) > 0 && !slices.Contains(g.Route.EditableRules, name) {
			continue
		}
		names[name] = true
		ours, ok, err := g.editRule(u.GetNamespace(), rule, s)
		if err != nil {
			return fmt.Errorf("spec.rules[%d]: %w", i, err)
		}
		if ok {
			edited++
		}
		own = append(own, ours...)
	}
	for _, name := range g.Route.EditableRules {
		if !names[name] {
			return fmt.Errorf("it has no rule named %q, which spec.trafficRouting.httpRoute.editableRules lists", name)
		}
	}
	if edited == 0 {
		return fmt.Errorf("no rule that may be edited sends traffic to Service %q of the namespace of the route", g.Service)
	}
	if err := g.name(own, rules); err != nil {
		return err
	}
	rules = append(own, rules...)
	if err := g.checkLimits(rules); err != nil {
		return err
	}
	return unstructured.SetNestedSlice(u.Object, rules, "spec", "rules")
}

// editRule writes the shares into one rule. It returns the rules to insert before it, and
// false if none of the rule's traffic goes to the stable Service.
func (g gateway) editRule(namespace string, rule map[string]any, s Shares) (own []any, ok bool, err error) {
	backends, _ := rule["backendRefs"].([]any)
	shared, err := g.dialect(namespace).split(backends, s)
	if err != nil || shared == nil {
		return nil, false, err
	}
	if s.Canary > 0 {
		if own, err = g.abRules(namespace, rule); err != nil {
			return nil, false, err
		}
		g.mirror(namespace, rule)
	}
	rule["backendRefs"] = shared
	return own, true, nil
}

func (g gateway) dialect(namespace string) dialect {
	names := map[kubernetes.Variant]string{kubernetes.Primary: g.Service, kubernetes.Canary: g.Canary, kubernetes.Baseline: g.Baseline}
	return dialect{
		most:   maxWeight,
		unset:  func(int) int { return 1 },
		role:   func(ref map[string]any) (kubernetes.Variant, bool) { return g.role(namespace, ref) },
		become: func(ref map[string]any, v kubernetes.Variant) { ref["name"] = names[v] },
		port:   func(ref map[string]any) any { return ref["port"] },
	}
}

// checkLimits returns an error if the rules exceed a limit of the Gateway API.
func (g gateway) checkLimits(rules []any) error {
	if len(rules) > maxRules {
		return fmt.Errorf("it would have %d rules, and at most %d are possible; use fewer abMatches, or fewer editableRules", len(rules), maxRules)
	}
	matches := 0
	for i, v := range rules {
		rule := v.(map[string]any)
		backends, _ := rule["backendRefs"].([]any)
		if len(backends) > maxBackends {
			return fmt.Errorf("rule %d would have %d backends, and at most %d are possible; move some to another route", i, len(backends), maxBackends)
		}
		n := g.countMatches(rule)
		if n > maxRuleMatches {
			return fmt.Errorf("rule %d would have %d matches, and at most %d are possible; use fewer abMatches", i, n, maxRuleMatches)
		}
		matches += n
	}
	if matches > maxMatches {
		return fmt.Errorf("it would have %d matches, and at most %d are possible; use fewer abMatches, or fewer editableRules", matches, maxMatches)
	}
	return nil
}

// countMatches returns the number of a rule's matches. A rule of an HTTPRoute without
// matches counts as one, because the API server adds a default match for every path.
func (g gateway) countMatches(rule map[string]any) int {
	matches, _ := rule["matches"].([]any)
	if len(matches) == 0 && g.Method == kubernetes.HTTPRouteMethod {
		return 1
	}
	return len(matches)
}

// text returns a string field, "" if it is missing or not a string.
func text(fields map[string]any, key string) string {
	s, _ := fields[key].(string)
	return s
}
