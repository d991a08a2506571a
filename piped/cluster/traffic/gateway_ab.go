package traffic

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/c785c783/piped/piped/config/kubernetes"
)

// RulePrefix is the name prefix of the rules that this package adds to routes.
const RulePrefix = "piped-"

// abRules returns rules that send all stable traffic of a rule to the canary if the request
// also matches one of abMatches. It returns nil if there is nothing to redirect.
func (g gateway) abRules(namespace string, rule map[string]any) ([]any, error) {
	if len(g.Route.ABMatches) == 0 {
		return nil, nil
	}
	matches, err := g.abMatches(rule)
	if err != nil || len(matches) == 0 {
		return nil, err
	}
	groups := [][]any{matches}
	if rewritesPrefix(rule) { // the Gateway API allows this only in rules with one match
		groups = nil
		for _, m := range matches {
			groups = append(groups, []any{m})
		}
	}
	var rules []any
	for _, group := range groups {
		ours := runtime.DeepCopyJSON(rule)
		var canary []any
		for _, ref := range g.stable(namespace, ours) {
			ref["name"] = g.Canary
			if ref["weight"] == int64(0) {
				continue
			}
			canary = append(canary, ref)
		}
		if len(canary) == 0 {
			return nil, nil // in Git, the stable Service has weight 0 in this rule
		}
		delete(ours, "name")
		ours["matches"], ours["backendRefs"] = group, canary
		rules = append(rules, ours)
	}
	return rules, nil
}

// abMatches returns the conjunction of each match of a rule with each of abMatches, without
// those that no request can satisfy.
func (g gateway) abMatches(rule map[string]any) (out []any, err error) {
	base, _ := rule["matches"].([]any)
	if len(base) == 0 {
		base = []any{map[string]any{}}
	}
	for _, b := range base {
		match, ok := b.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("a match is no mapping")
		}
		for i, ab := range g.Route.ABMatches {
			both, possible, err := g.both(match, ab)
			if err != nil {
				return nil, fmt.Errorf("spec.trafficRouting.httpRoute.abMatches[%d]: %w", i, err)
			}
			if possible {
				out = append(out, both)
			}
		}
	}
	return out, nil
}

// both returns the conjunction of a match and an ABMatch, and false if no request can
// satisfy both.
func (g gateway) both(match map[string]any, ab kubernetes.ABMatch) (map[string]any, bool, error) {
	if g.Method == kubernetes.GRPCRouteMethod && len(ab.QueryParams) > 0 {
		return nil, false, fmt.Errorf("a GRPCRoute cannot match queryParams; use headers")
	}
	if len(ab.Cookies) > 1 {
		return nil, false, fmt.Errorf("a route can match one cookie at a time; use one, or headers")
	}
	headers := exact(ab.Headers)
	for name, value := range ab.Cookies {
		pattern := `^(.*;\s*)?` + regexp.QuoteMeta(name) + "=" + regexp.QuoteMeta(value) + `(;.*)?$`
		headers = append(headers, map[string]any{"name": "Cookie", "type": "RegularExpression", "value": pattern})
	}
	both := runtime.DeepCopyJSON(match)
	for _, add := range []struct {
		field string
		items []any
	}{{"headers", headers}, {"queryParams", exact(ab.QueryParams)}} {
		all, possible, err := join(match, add.field, add.items)
		if err != nil || !possible {
			return nil, false, err
		}
		if len(all) > 0 {
			both[add.field] = all
		}
	}
	return both, true, nil
}

// exact returns matches for exact values, sorted by name.
func exact(values map[string]string) (out []any) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, map[string]any{"name": name, "type": "Exact", "value": values[name]})
	}
	return out
}

// join appends items to a list field of a match. The list may contain each name only once.
// For a name that is already there, equal exact values are merged, different exact values
// return possible == false, and all other combinations are an error.
func join(match map[string]any, field string, items []any) (all []any, possible bool, err error) {
	there, _ := match[field].([]any)
	all = slices.Clone(there)
	for _, v := range items {
		item := v.(map[string]any)
		i := slices.IndexFunc(there, func(t any) bool {
			fields, _ := t.(map[string]any)
			return strings.EqualFold(text(fields, "name"), text(item, "name"))
		})
		if i < 0 {
			all = append(all, item)
			continue
		}
		known := there[i].(map[string]any)
		kind := text(known, "type")
		switch {
		case (kind == "" || kind == "Exact") && text(item, "type") == "Exact" && text(known, "value") != text(item, "value"):
			return nil, false, nil
		case (kind == "" || kind == "Exact") && text(item, "type") == "Exact":
		default:
			return nil, false, fmt.Errorf("the rule matches %s %q already; use another one", field, text(item, "name"))
		}
	}
	return all, true, nil
}

// rewritesPrefix reports whether a rule or one of its backends replaces the path prefix.
func rewritesPrefix(rule map[string]any) bool {
	replaces := func(fields map[string]any) bool {
		filters, _ := fields["filters"].([]any)
		return slices.ContainsFunc(filters, func(f any) bool {
			filter, _ := f.(map[string]any)
			kind, _, _ := unstructured.NestedString(filter, "urlRewrite", "path", "type")
			return kind == "ReplacePrefixMatch"
		})
	}
	backends, _ := rule["backendRefs"].([]any)
	return replaces(rule) || slices.ContainsFunc(backends, func(b any) bool {
		ref, _ := b.(map[string]any)
		return replaces(ref)
	})
}

// mirror adds a filter to a rule that mirrors Mirror.Percent of its requests to the canary.
func (g gateway) mirror(namespace string, rule map[string]any) {
	percent := int64(g.Route.Mirror.Percent)
	if percent == 0 {
		return
	}
	to := map[string]any{"name": g.Canary}
	if port := g.stable(namespace, rule)[0]["port"]; port != nil {
		to["port"] = port
	}
	mirror := map[string]any{"backendRef": to}
	if percent < 100 { // percent is an extended feature that not every gateway supports
		mirror["percent"] = percent
	}
	filters, _ := rule["filters"].([]any)
	rule["filters"] = append(slices.Clone(filters), map[string]any{"type": "RequestMirror", "requestMirror": mirror})
}

// name sets the names of the added rules if NameRules is set. It returns an error if a rule
// in Git already uses RulePrefix.
func (g gateway) name(own, rules []any) error {
	if !g.NameRules {
		return nil
	}
	for _, v := range rules {
		if name := text(v.(map[string]any), "name"); len(own) > 0 && strings.HasPrefix(name, RulePrefix) {
			return fmt.Errorf("its rule %q has a name that begins with %q, as those do that are added to it; choose another", name, RulePrefix)
		}
	}
	for i, v := range own {
		v.(map[string]any)["name"] = fmt.Sprintf("%sab-%d", RulePrefix, i+1)
	}
	return nil
}
