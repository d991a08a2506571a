package variant

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// meshOf is an application of two versions behind one Service, as Istio's own examples are, with a delegate.
const meshOf = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web-v1}
spec: {selector: {matchLabels: {app: web, version: v1}}, template: {metadata: {labels: {app: web, version: v1}}, spec: {containers: [{name: web, image: web:TAG}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-v2}
spec: {selector: {matchLabels: {app: web, version: v2}}, template: {metadata: {labels: {app: web, version: v2}}, spec: {containers: [{name: web, image: web:TAG}]}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web}
spec:
  host: web.shop.svc.cluster.local
  trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}
  subsets: [{name: one, labels: {version: v1}}, {name: two, labels: {version: v2}}, {name: canary, labels: {pipecd.dev/variant: canary}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [shop.example.com, web]
  gateways: [gateways/public, mesh]
  exportTo: ["*"]
  tcp: [{route: [{destination: {host: web}}]}]
  http:
    - name: old
      match: [{headers: {end-user: {exact: jason}}}]
      route: [{destination: {host: web, subset: one, port: {number: 80}}}]
    - name: more
      match: [{uri: {prefix: /more}}]
      delegate: {name: more}
    - name: all
      mirror: {host: web.shop.svc.cluster.local, subset: one}
      headers: {request: {set: {x-preview: none, a: b}, remove: [X-PREVIEW, c]}}
      route: [{destination: {host: web, subset: two}, weight: 90}, {destination: {host: web, subset: canary}, weight: 10}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: more}
spec:
  http:
    - name: other
      match: [{uri: {prefix: /more/other}}]
      route: [{destination: {host: other.bank.svc.cluster.local}}]
    - name: rest
      route: [{destination: {host: web.shop.svc.cluster.local}}]
`

// TestPreviewOfVirtualService: an application of Istio is reached by the host of the preview, with the rules of
// its VirtualServices, their delegates and its subsets.
func TestPreviewOfVirtualService(t *testing.T) {
	branch, merged := parsed(t, strings.ReplaceAll(meshOf, "TAG", "v1")), parsed(t, strings.ReplaceAll(meshOf, "TAG", "v2"))
	got, err := previewOf12.Make(branch, merged)
	if err != nil {
		t.Fatal(err)
	}
	var made []unstructured.Unstructured
	specs := map[string]any{}
	for _, o := range got.Objects {
		if isVirtualService(o) || isDestinationRule(o) {
			made = append(made, *o.Unstructured)
			specs[o.GetKind()+" "+o.GetName()] = o.Object["spec"]
		}
	}
	want := map[string]any{}
	for name, text := range map[string]string{
		"DestinationRule web-pr-12": `{host: web-pr-12.shop.svc.cluster.local, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}},
  subsets: [{name: one, labels: {version: v1-pr-12}}, {name: two, labels: {version: v2-pr-12}}]}`,
		"VirtualService web-pr-12": `
  hosts: [pr-12.preview.example.com]
  gateways: [gateways/public, mesh]
  exportTo: ["*"]
  http:
    - name: old
      match: [{headers: {end-user: {exact: jason}}}]
      headers: {request: {set: {X-Preview: pr-12-apps}}}
      route: [{destination: {host: web-pr-12, subset: one, port: {number: 80}}}]
    - name: more
      match: [{uri: {prefix: /more}}]
      delegate: {name: more-pr-12}
    - name: all
      mirror: {host: web-pr-12.shop.svc.cluster.local, subset: one}
      headers: {request: {set: {X-Preview: pr-12-apps, a: b}, remove: [c]}}
      route: [{destination: {host: web-pr-12, subset: two}, weight: 90}, {destination: {host: web-pr-12}, weight: 10}]`,
		"VirtualService more-pr-12": `
  http:
    - name: other
      match: [{uri: {prefix: /more/other}}]
      headers: {request: {set: {X-Preview: pr-12-apps}}}
      route: [{destination: {host: other.bank.svc.cluster.local}}]
    - name: rest
      headers: {request: {set: {X-Preview: pr-12-apps}}}
      route: [{destination: {host: web-pr-12.shop.svc.cluster.local}}]`,
	} {
		want[name] = parsed(t, "apiVersion: v1\nkind: Any\nmetadata: {name: any}\nspec: "+text+"\n")[0].Object["spec"]
	}
	if diff := cmp.Diff(want, specs); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	subsets, _, _ := unstructured.NestedSlice(made[0].Object, "spec", "subsets")
	for i, name := range []string{"web-v1-pr-12", "web-v2-pr-12"} {
		pods := typed[appsv1.Deployment](t, got.Objects, "Deployment", name).Spec.Template.Labels
		selector, _, _ := unstructured.NestedStringMap(subsets[i].(map[string]any), "labels")
		if !labels.SelectorFromSet(selector).Matches(labels.Set(pods)) {
			t.Errorf("subset %v does not select the pods of %s: %v", selector, name, pods)
		}
	}
	if got.ByHeader || got.Hostnames != nil || !got.OwnHost || len(got.Shared) > 0 {
		t.Errorf("by header: %t %v, own host: %t, shared: %v", got.ByHeader, got.Hostnames, got.OwnHost, got.Shared)
	}
}

// TestVirtualServiceTakesNoOtherRequests: gateways and visibility are those of the branch, whatever the pull request
// says, and a new VirtualService counts when it is merged.
func TestVirtualServiceTakesNoOtherRequests(t *testing.T) {
	merged := strings.NewReplacer("hosts: [shop.example.com, web]", "hosts: [bank.example.com]", "gateways: [gateways/public, mesh]", "gateways: [private]", `exportTo: ["*"]`, `exportTo: ["."]`).Replace(meshOf)
	merged += "---\napiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: new}\nspec: {hosts: [bank.example.com], gateways: [private], http: [{route: [{destination: {host: web}}]}]}\n"
	got, err := previewOf12.Make(parsed(t, meshOf), parsed(t, merged))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range got.Objects {
		if text := fmt.Sprint(o.Object["spec"]); isVirtualService(o) && (strings.Contains(text, "bank.example.com") || strings.Contains(text, "private") || strings.Contains(text, "exportTo:[.]")) {
			t.Errorf("%s: %s", o.GetName(), text)
		}
	}
	for _, want := range []string{"VirtualService new: a new route counts", "VirtualService web: its gateways and hosts are those of the branch"} {
		if !strings.Contains(strings.Join(got.Shared, "\n"), want) {
			t.Errorf("%q does not say %q", got.Shared, want)
		}
	}
}

// TestVirtualServiceIsRefused: the messages say why, and what to do.
func TestVirtualServiceIsRefused(t *testing.T) {
	onlyHeader := previewOf12
	onlyHeader.Host = ""
	for name, c := range map[string]struct {
		preview  Preview
		old, new string
		both     bool // on the branch, too
		says     string
	}{
		"by header":         {onlyHeader, "", "", true, "set spec.preview.host"},
		"only the mesh":     {previewOf12, "gateways: [gateways/public, mesh]", "gateways: [mesh]", true, "name a Gateway in spec.gateways"},
		"no gateway":        {previewOf12, "  gateways: [gateways/public, mesh]\n", "", true, "name a Gateway in spec.gateways"},
		"authority":         {previewOf12, "{uri: {prefix: /more}}", "{authority: {exact: shop.example.com}}", true, "matches requests by authority"},
		"another namespace": {previewOf12, "subset: canary}", "subset: canary}}, {destination: {host: admin.bank.svc.cluster.local}", false, "leads to admin.bank.svc.cluster.local in another namespace, which no VirtualService of the branch does"},
		"a mirror":          {previewOf12, "mirror: {host: web.shop.svc.cluster.local", "mirror: {host: web.bank.svc.cluster.local", false, "leads to web.bank.svc.cluster.local in another namespace"},
		"a delegate":        {previewOf12, "delegate: {name: more}", "delegate: {name: admin, namespace: bank}", false, "delegates to admin, which no VirtualService of the branch does"},
		"only a delegate":   {previewOf12, "hosts: [shop.example.com, web]", "hosts: []", true, "no HTTPRoute, GRPCRoute or VirtualService on the branch"},
	} {
		merged := strings.Replace(meshOf, c.old, c.new, 1)
		branch := meshOf
		if c.both {
			branch = merged
		}
		if _, err := c.preview.Make(parsed(t, branch), parsed(t, merged)); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// drawIstioRule returns a rule of a VirtualService to Service web or other.
func drawIstioRule(rt *rapid.T, n int) map[string]any {
	var matches []any
	for range rapid.IntRange(0, 2).Draw(rt, "matches") {
		match := map[string]any{}
		if path := rapid.SampledFrom([]string{"", "/", "/a", "/a/b"}).Draw(rt, "path"); path != "" {
			match["uri"] = map[string]any{rapid.SampledFrom([]string{"exact", "prefix"}).Draw(rt, "kind"): path}
		}
		for _, field := range []string{"headers", "queryParams"} {
			if rapid.Bool().Draw(rt, field) {
				match[field] = map[string]any{"a": map[string]any{"exact": "1"}}
			}
		}
		matches = append(matches, match)
	}
	host := rapid.SampledFrom([]string{"web", "web.shop.svc.cluster.local", "other"}).Draw(rt, "host")
	rule := map[string]any{"name": fmt.Sprintf("rule-%d", n), "route": []any{map[string]any{"destination": map[string]any{"host": host}}}}
	if matches != nil {
		rule["match"] = matches
	}
	return rule
}

// TestHostLeadsToPreview: for any VirtualService and any request, the rule that Istio applies to the host of
// the branch stays the same, and its copy is applied to the host of the preview, where it leads to the
// Service of the preview if it leads to a copied one.
func TestHostLeadsToPreview(t *testing.T) {
	objects := parsed(t, meshOf)[:3]
	rapid.Check(t, func(rt *rapid.T) {
		var rules []any
		for n := range rapid.IntRange(0, 5).Draw(rt, "rules") {
			rules = append(rules, drawIstioRule(rt, n))
		}
		rules = append(rules, map[string]any{"name": "last", "route": []any{map[string]any{"destination": map[string]any{"host": "web"}}}})
		host := rapid.SampledFrom([]string{"shop.example.com", "*.example.com", "*"}).Draw(rt, "hosts")
		virtualService := manifest.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": map[string]any{"name": "web", "namespace": "shop"},
			"spec": map[string]any{"hosts": []any{host}, "gateways": []any{"public"}, "http": rules},
		}}}
		all := append(manifest.Clone(objects), virtualService)
		made, err := previewOf12.Make(all, all)
		if err != nil {
			rt.Fatal(err)
		}
		created := metav1.NewTime(time.Unix(1000, 0))
		virtualService.SetCreationTimestamp(created)
		branch := []unstructured.Unstructured{*virtualService.Unstructured}
		both := branch
		for _, o := range made.Objects {
			if isVirtualService(o) {
				o.SetCreationTimestamp(metav1.NewTime(created.Add(time.Hour)))
				both = append(both, *o.Unstructured)
			}
		}
		r := httptest.NewRequest("GET", rapid.SampledFrom([]string{"/", "/a", "/a/b", "/a?a=1", "/b?a=1"}).Draw(rt, "url"), nil)
		if rapid.Bool().Draw(rt, "has header") {
			r.Header.Set("a", "1")
		}
		destination := func(rule map[string]any) string {
			return destinations(rule)[0]["host"].(string)
		}
		r.Host = "shop.example.com"
		was, is := clustertest.IstioRequest(branch, "shop/public", r), clustertest.IstioRequest(both, "shop/public", r)
		if is["name"] != was["name"] || destination(is) != destination(was) {
			rt.Fatalf("%s of the branch is answered by %v, before by %v", r.URL, is, was)
		}
		r.Host = "pr-12.preview.example.com"
		is = clustertest.IstioRequest(both, "shop/public", r)
		want := strings.Replace(destination(was), "web", "web-pr-12", 1)
		if is["name"] != was["name"] || destination(is) != want {
			rt.Fatalf("%s of the preview is answered by %v, want the copy of %v", r.URL, is, was)
		}
	})
}
