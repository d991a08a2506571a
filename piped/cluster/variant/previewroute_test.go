package variant

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/manifest"
)

// drawRule returns a rule of an HTTPRoute to Service web or other, with its number in its name.
func drawRule(rt *rapid.T, n int) map[string]any {
	var matches []any
	for range rapid.IntRange(0, 2).Draw(rt, "matches") {
		match := map[string]any{}
		if path := rapid.SampledFrom([]string{"", "/", "/a", "/a/b"}).Draw(rt, "path"); path != "" {
			match["path"] = map[string]any{"type": rapid.SampledFrom([]string{"Exact", "PathPrefix"}).Draw(rt, "kind"), "value": path}
		}
		if rapid.Bool().Draw(rt, "method") {
			match["method"] = "GET"
		}
		for _, field := range []string{"headers", "queryParams"} {
			var list []any
			for _, name := range []string{"a", "b"} {
				if rapid.Bool().Draw(rt, field+name) {
					list = append(list, map[string]any{"name": name, "value": "1"})
				}
			}
			if list != nil {
				match[field] = list
			}
		}
		matches = append(matches, match)
	}
	rule := map[string]any{"name": fmt.Sprintf("rule-%d", n), "backendRefs": []any{map[string]any{"name": rapid.SampledFrom([]string{"web", "other"}).Draw(rt, "service"), "port": int64(80)}}}
	if matches != nil {
		rule["matches"] = matches
	}
	return rule
}

// TestHeaderLeadsToPreview: for any route of the branch and any request, the rule that a gateway applies
// without the header is the one of the branch, and with it the preview's copy of the same rule, which
// leads to the Service of the preview if the rule leads to a copied one.
func TestHeaderLeadsToPreview(t *testing.T) {
	const rest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`
	objects := parsed(t, rest)
	rapid.Check(t, func(rt *rapid.T) {
		rules := []any{map[string]any{"name": "rule-0", "backendRefs": []any{map[string]any{"name": "web", "port": int64(80)}}}}
		for n := range rapid.IntRange(0, 5).Draw(rt, "rules") {
			rules = append(rules, drawRule(rt, n+1))
		}
		route := manifest.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": "web", "namespace": "shop"},
			"spec": map[string]any{"hostnames": []any{"shop.example.com"}, "rules": rules},
		}}}
		all := append(manifest.Clone(objects), route)
		made, err := previewOf12.Make(all, all)
		if err != nil {
			rt.Fatal(err)
		}
		created := metav1.NewTime(time.Unix(1000, 0))
		route.SetCreationTimestamp(created)
		branch := []unstructured.Unstructured{*route.Unstructured}
		both := branch
		for _, o := range made.Objects {
			if isRoute(o) {
				o.SetCreationTimestamp(metav1.NewTime(created.Add(time.Hour)))
				both = append(both, *o.Unstructured)
			}
		}

		r := httptest.NewRequest(rapid.SampledFrom([]string{"GET", "POST"}).Draw(rt, "verb"), rapid.SampledFrom([]string{"/", "/a", "/a/b", "/a/b/c"}).Draw(rt, "url"), nil)
		r.Host = "shop.example.com"
		query := r.URL.Query()
		for _, name := range []string{"a", "b"} {
			if rapid.Bool().Draw(rt, "has header "+name) {
				r.Header.Set(name, "1")
			}
			if rapid.Bool().Draw(rt, "has query "+name) {
				query.Set(name, "1")
			}
		}
		r.URL.RawQuery = query.Encode()

		expect := func(r *http.Request, wantRule any, route string, preview bool) {
			rule, of := clustertest.RouteRequest(both, r)
			if rule == nil || rule["name"] != wantRule || of.GetName() != route {
				rt.Fatalf("%s %s %v is answered by %v of %v, want %v of %s", r.Method, r.URL, r.Header, rule, of, wantRule, route)
			}
			for _, ref := range list(rule["backendRefs"]) {
				service := strings.TrimSuffix(ref["name"].(string), "-pr-12")
				if copied := service != ref["name"]; copied != (preview && service == "web") {
					rt.Fatalf("rule %v leads to %v", rule["name"], ref["name"])
				}
			}
		}
		shared, _ := clustertest.RouteRequest(branch, r)
		if shared == nil {
			rt.Fatal("the branch answers nothing, and rule-0 is for everything")
		}
		expect(r, shared["name"], "web", false)
		r.Header.Set("X-Preview", "pr-13-apps")
		expect(r, shared["name"], "web", false)
		r.Header.Set("X-Preview", "pr-12-apps")
		expect(r, shared["name"], "web-pr-12", true)
		r.Header.Del("X-Preview")
		r.Host = "pr-12.preview.example.com"
		expect(r, shared["name"], "web-host-pr-12", true)
	})
}

// TestHostSetsTheHeader: requests for the host of the preview have its header from then on, also if the
// route sets headers itself.
func TestHostSetsTheHeader(t *testing.T) {
	text := strings.ReplaceAll(shopOf, "TAG", "v1")
	text = strings.Replace(text, "filters: [", "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-preview, value: none}, {name: a, value: b}]}}, ", 1)
	got, err := previewOf12.Make(parsed(t, text), parsed(t, text))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range got.Objects {
		if o.GetName() != "web-host-pr-12" {
			continue
		}
		rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
		want := []string{"[map[name:a value:b] map[name:X-Preview value:pr-12-apps]]", "[map[name:X-Preview value:pr-12-apps]]"}
		for i, rule := range rules {
			var set []string
			for _, f := range list(rule.(map[string]any)["filters"]) {
				if m, ok := f["requestHeaderModifier"].(map[string]any); ok {
					set = append(set, fmt.Sprint(m["set"]))
				}
			}
			if len(set) != 1 || set[0] != want[i] {
				t.Errorf("rule %d sets %v, want %s", i, set, want[i])
			}
		}
		return
	}
	t.Error("there is no route for the host")
}
