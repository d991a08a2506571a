package clustertest

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// RouteRequest returns the rule of the HTTPRoutes that a gateway applies to a request, with its route, by
// the rules of precedence of the Gateway API; nil if none matches. It knows exact paths, prefixes,
// methods, exact headers and exact query parameters.
func RouteRequest(routes []unstructured.Unstructured, r *http.Request) (rule map[string]any, of *unstructured.Unstructured) {
	var best *candidate
	for i := range routes {
		host, ok := hostRank(&routes[i], r)
		if !ok {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(routes[i].Object, "spec", "rules")
		for n, v := range rules {
			fields, _ := v.(map[string]any)
			for _, match := range matchesOf(fields) {
				rank, ok := matchRank(match, r)
				if !ok {
					continue
				}
				c := &candidate{rank: slices.Concat(host, rank), route: &routes[i], index: n, rule: fields}
				if best == nil || c.before(best) {
					best = c
				}
			}
		}
	}
	if best == nil {
		return nil, nil
	}
	return best.rule, best.route
}

// candidate is a match of a rule with a request.
type candidate struct {
	rank  []int // more is first, the first difference counts
	route *unstructured.Unstructured
	index int // of the rule
	rule  map[string]any
}

// before reports whether c takes precedence: by rank, then the older route, then the name, then the
// first rule.
func (c *candidate) before(other *candidate) bool {
	created := func(u *unstructured.Unstructured) time.Time { return u.GetCreationTimestamp().Time }
	return cmp.Or(
		-slices.Compare(c.rank, other.rank),
		created(c.route).Compare(created(other.route)),
		cmp.Compare(c.route.GetNamespace()+"/"+c.route.GetName(), other.route.GetNamespace()+"/"+other.route.GetName()),
		cmp.Compare(c.index, other.index),
	) < 0
}

// hostRank returns the lengths of the most specific hostname of a route that matches: of one without a
// wildcard, and of any.
func hostRank(route *unstructured.Unstructured, r *http.Request) ([]int, bool) {
	hosts, _, _ := unstructured.NestedStringSlice(route.Object, "spec", "hostnames")
	if len(hosts) == 0 {
		return []int{0, 0}, true
	}
	var best []int
	for _, host := range hosts {
		domain, wild := strings.CutPrefix(host, "*")
		switch {
		case !wild && strings.EqualFold(host, r.Host):
			return []int{len(host), len(host)}, true
		case wild && strings.HasSuffix(strings.ToLower(r.Host), domain) && len(r.Host) > len(domain):
			best = slices.MaxFunc([][]int{best, {0, len(host)}}, slices.Compare)
		}
	}
	return best, best != nil
}

func matchesOf(rule map[string]any) (out []map[string]any) {
	all, _ := rule["matches"].([]any)
	if len(all) == 0 {
		return []map[string]any{{}}
	}
	for _, v := range all {
		match, _ := v.(map[string]any)
		out = append(out, match)
	}
	return out
}

// matchRank returns whether a match applies to a request, and its rank: an exact path, the length of the
// prefix, a method, the number of headers, the number of query parameters.
func matchRank(match map[string]any, r *http.Request) ([]int, bool) {
	path, _ := match["path"].(map[string]any)
	value, _ := path["value"].(string)
	kind, _ := path["type"].(string)
	value, kind = cmp.Or(value, "/"), cmp.Or(kind, "PathPrefix")
	rank := make([]int, 5)
	switch kind {
	case "Exact":
		if r.URL.Path != value {
			return nil, false
		}
		rank[0] = 1
	case "PathPrefix":
		prefix := strings.TrimSuffix(value, "/")
		if r.URL.Path != prefix && !strings.HasPrefix(r.URL.Path, prefix+"/") {
			return nil, false
		}
		rank[1] = len(value)
	default:
		panic(fmt.Sprintf("paths of type %s are not known here", kind))
	}
	if method, ok := match["method"].(string); ok {
		if method != r.Method {
			return nil, false
		}
		rank[2] = 1
	}
	for i, list := range []struct {
		field string
		get   func(string) string
	}{{"headers", r.Header.Get}, {"queryParams", r.URL.Query().Get}} {
		items, _ := match[list.field].([]any)
		for _, v := range items {
			item, _ := v.(map[string]any)
			if kind, ok := item["type"].(string); ok && kind != "Exact" {
				panic(fmt.Sprintf("%s of type %s are not known here", list.field, kind))
			}
			if list.get(fmt.Sprint(item["name"])) != item["value"] {
				return nil, false
			}
		}
		rank[3+i] = len(items)
	}
	return rank, true
}
