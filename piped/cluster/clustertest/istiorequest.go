package clustertest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// IstioRequest returns the rule of the VirtualServices that the proxies of a Gateway ("namespace/name")
// apply to a request, as Istio does; nil if none matches. The most specific host counts. Rules count in
// their order; those of several VirtualServices for the host one after the other, the oldest first, but
// with rules for every request last. It knows delegates, exact URIs, prefixes, methods, headers and query
// parameters.
func IstioRequest(virtualServices []unstructured.Unstructured, gateway string, r *http.Request) map[string]any {
	bound := slices.DeleteFunc(slices.Clone(virtualServices), func(u unstructured.Unstructured) bool {
		names, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "gateways")
		return !slices.ContainsFunc(names, func(name string) bool { return name == gateway || u.GetNamespace()+"/"+name == gateway })
	})
	slices.SortStableFunc(bound, func(a, b unstructured.Unstructured) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName()))
	})
	host := bestHost(bound, r.Host)
	bound = slices.DeleteFunc(bound, func(u unstructured.Unstructured) bool {
		hosts, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "hosts")
		return !slices.Contains(hosts, host)
	})
	var first, last []istioRoute
	for i := range bound {
		for _, route := range istioRoutes(&bound[i], virtualServices) {
			if len(bound) > 1 && route.forAll() {
				last = append(last, route)
			} else {
				first = append(first, route)
			}
		}
	}
	for _, route := range slices.Concat(first, last) {
		if !slices.ContainsFunc(route.matches, func(m map[string]any) bool { return !istioMatches(m, r) }) {
			return route.rule
		}
	}
	return nil
}

// istioRoute is a rule with a match of it, and one of the rule that delegates to it.
type istioRoute struct {
	matches []map[string]any
	rule    map[string]any
}

// forAll reports whether a route is for every request.
func (r istioRoute) forAll() bool {
	for _, m := range r.matches {
		uri, _ := m["uri"].(map[string]any)
		if len(m) > 1 || len(m) == 1 && uri["prefix"] != "/" {
			return false
		}
	}
	return true
}

// istioRoutes returns the routes of a VirtualService with those of its delegates in their place.
func istioRoutes(u *unstructured.Unstructured, all []unstructured.Unstructured) (out []istioRoute) {
	rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "http")
	for _, v := range rules {
		rule, _ := v.(map[string]any)
		for _, match := range istioMatchesOf(rule) {
			delegate, ok := rule["delegate"].(map[string]any)
			if !ok {
				out = append(out, istioRoute{[]map[string]any{match}, rule})
				continue
			}
			at := slices.IndexFunc(all, func(o unstructured.Unstructured) bool {
				return o.GetName() == delegate["name"] && o.GetNamespace() == cmp.Or(delegate["namespace"], any(u.GetNamespace()))
			})
			if at < 0 {
				continue
			}
			for _, route := range istioRoutes(&all[at], all) {
				out = append(out, istioRoute{append(route.matches, match), route.rule})
			}
		}
	}
	return out
}

func istioMatchesOf(rule map[string]any) (out []map[string]any) {
	all, _ := rule["match"].([]any)
	if len(all) == 0 {
		return []map[string]any{{}}
	}
	for _, v := range all {
		match, _ := v.(map[string]any)
		out = append(out, match)
	}
	return out
}

// bestHost returns the most specific host of VirtualServices that matches, "" if none does.
func bestHost(bound []unstructured.Unstructured, host string) (best string) {
	for i := range bound {
		hosts, _, _ := unstructured.NestedStringSlice(bound[i].Object, "spec", "hosts")
		for _, h := range hosts {
			domain, wild := strings.CutPrefix(h, "*")
			switch {
			case h == host:
				return h
			case wild && strings.HasSuffix(host, domain) && len(h) > len(best):
				best = h
			}
		}
	}
	return best
}

// istioMatches reports whether a match of a rule applies to a request.
func istioMatches(match map[string]any, r *http.Request) bool {
	texts := func(field string) map[string]any { m, _ := match[field].(map[string]any); return m }
	query := r.URL.Query()
	for field := range match {
		switch field {
		case "name", "ignoreUriCase":
		case "uri":
			if !istioText(match[field], r.URL.Path, true) {
				return false
			}
		case "method":
			if !istioText(match[field], r.Method, true) {
				return false
			}
		case "authority":
			if !istioText(match[field], r.Host, true) {
				return false
			}
		case "headers":
			for name, want := range texts(field) {
				if !istioText(want, r.Header.Get(name), len(r.Header.Values(name)) > 0) {
					return false
				}
			}
		case "queryParams":
			for name, want := range texts(field) {
				if !istioText(want, query.Get(name), query.Has(name)) {
					return false
				}
			}
		default:
			panic(fmt.Sprintf("matches by %s are not known here", field))
		}
	}
	return true
}

func istioText(want any, value string, present bool) bool {
	m, _ := want.(map[string]any)
	for kind, v := range m {
		text, _ := v.(string)
		if kind == "exact" && value != text || kind == "prefix" && !strings.HasPrefix(value, text) {
			return false
		}
		if kind != "exact" && kind != "prefix" {
			panic(fmt.Sprintf("matches of type %s are not known here", kind))
		}
	}
	return present
}
