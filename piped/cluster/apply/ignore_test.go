package apply

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
)

// TestPointers: how the paths of rules are parsed, and which fields they select.
func TestPointers(t *testing.T) {
	web := declared(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {example.com/a~b: x}, finalizers: [example.com/hold]}
spec:
  template:
    spec:
      containers:
      - {name: web, image: "web:1", args: [a, b], volumeMounts: [{mountPath: /data, name: data}]}
      - {name: proxy, ports: [{containerPort: 80, protocol: TCP}, {containerPort: 80, protocol: UDP, name: dns}]}
`)
	for text, want := range map[string]struct {
		value any
		path  string
	}{
		"/metadata/name": {"web", "metadata.name"},
		"/metadata/annotations/example.com~1a~0b":          {"x", `metadata.annotations["example.com/a~b"]`},
		"/metadata/finalizers[=example.com~1hold]":         {"example.com/hold", "metadata.finalizers[=example.com/hold]"},
		"/spec/template/spec/containers[name=web]/image":   {"web:1", "spec.template.spec.containers[name=web].image"},
		"/spec/template/spec/containers/0/image":           {"web:1", "spec.template.spec.containers.0.image"},
		"/spec/template/spec/containers[name=web]/args/1":  {"b", "spec.template.spec.containers[name=web].args.1"},
		"/spec/template/spec/containers[name=other]/image": {nil, "spec.template.spec.containers[name=other].image"},
		"/spec/template/spec/containers[name=proxy]/ports[containerPort=80,protocol=UDP]/name": {"dns",
			"spec.template.spec.containers[name=proxy].ports[containerPort=80,protocol=UDP].name"},
		"/spec/template/spec/containers[name=web]/volumeMounts[mountPath=~1data]/name": {"data",
			"spec.template.spec.containers[name=web].volumeMounts[mountPath=/data].name"},
		"/spec/template/spec/containers/7": {nil, "spec.template.spec.containers.7"},
		"/metadata/name/more":              {nil, "metadata.name.more"},
	} {
		steps := pointer(text)
		got, ok := get(web.Object, steps)
		if diff := cmp.Diff(want.value, got); diff != "" || ok != (want.value != nil) {
			t.Errorf("%s leads to %v (%t), want %v", text, got, ok, want.value)
		}
		if got := pathOf(steps); got != want.path {
			t.Errorf("%s is %s, want %s", text, got, want.path)
		}
	}
}

// TestPut: the object after a value is put at a path.
func TestPut(t *testing.T) {
	type object = map[string]any
	for name, c := range map[string]struct {
		at    string
		to    any // nil removes the value
		want  object
		whole object
	}{
		"a field":                             {at: "/a/b", to: "2", whole: object{"a": object{"b": "1"}}, want: object{"a": object{"b": "2"}}},
		"a new field":                         {at: "/a/b/c", to: "2", whole: object{}, want: object{"a": object{"b": object{"c": "2"}}}},
		"nothing":                             {at: "/a/b", whole: object{"a": object{"b": "1", "c": "1"}}, want: object{"a": object{"c": "1"}}},
		"nothing where nothing is":            {at: "/a/b", whole: object{}, want: object{}},
		"an item":                             {at: "/l[n=x]", to: object{"n": "x", "v": "2"}, whole: object{"l": []any{object{"n": "x", "v": "1"}}}, want: object{"l": []any{object{"n": "x", "v": "2"}}}},
		"an item that is missing":             {at: "/l[n=y]", to: object{"n": "y"}, whole: object{"l": []any{object{"n": "x"}}}, want: object{"l": []any{object{"n": "x"}, object{"n": "y"}}}},
		"nothing instead of an item":          {at: "/l[n=x]", whole: object{"l": []any{object{"n": "w"}, object{"n": "x"}}}, want: object{"l": []any{object{"n": "w"}}}},
		"a field of an item that is missing":  {at: "/l[n=y]/v", to: "2", whole: object{"l": []any{object{"n": "x"}}}, want: object{"l": []any{object{"n": "x"}}}},
		"a field of a list that is missing":   {at: "/l[n=y]/v", to: "2", whole: object{}, want: object{}},
		"a field of what has no fields":       {at: "/a/b", to: "2", whole: object{"a": "1"}, want: object{"a": "1"}},
		"an item by its index":                {at: "/l/1", to: "z", whole: object{"l": []any{"x", "y"}}, want: object{"l": []any{"x", "z"}}},
		"an item by an index that is missing": {at: "/l/2", to: "z", whole: object{"l": []any{"x", "y"}}, want: object{"l": []any{"x", "y"}}},
	} {
		put(c.whole, pointer(c.at), c.to, c.to != nil)
		if diff := cmp.Diff(c.want, c.whole); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestIgnoredDrift: what PipeCD's ignoreFields and our ignoreRules exclude from a report,
// and what they do not.
func TestIgnoredDrift(t *testing.T) {
	const image = `Deployment web spec.template.spec.containers[name=web].image: "web:1" -> "web:2" by updater`
	const cpu = `Deployment web spec.template.spec.containers[name=web].resources.requests.cpu: "1" -> "2" by updater`
	const color = `ConfigMap settings data.color: "blue" -> "red" by painter`
	const owner = `ConfigMap settings metadata.annotations["example.com/owner"]: "shop" -> "else" by painter`
	l := newEnv(t)
	l.apply(t, shop)
	l.as("updater").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:2"},
		{"op":"replace","path":"/spec/template/spec/containers/0/resources/requests/cpu","value":"2"}]`)
	l.as("painter").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"red"},"metadata":{"annotations":{"example.com/owner":"else"}}}`)
	rule := func(r config.IgnoreRule) config.DriftDetection {
		return config.DriftDetection{IgnoreRules: []config.IgnoreRule{r}}
	}
	fields := func(f ...string) config.DriftDetection {
		for i := range f {
			f[i] = l.named(f[i])
		}
		return config.DriftDetection{IgnoreFields: f}
	}
	for name, c := range map[string]struct {
		ignore config.DriftDetection
		want   []string
	}{
		"nothing":                       {config.DriftDetection{}, []string{color, owner, image, cpu}},
		"a field":                       {fields("apps/v1:Deployment:NS:web#spec.template.spec.containers.0.image"), []string{color, owner, cpu}},
		"what is below a field":         {fields("apps/v1:Deployment:NS:web#spec.template"), []string{color, owner}},
		"a key with dots":               {fields("v1:ConfigMap:NS:settings#metadata.annotations.example.com/owner"), []string{color, image, cpu}},
		"of another object":             {fields("v1:ConfigMap:NS:other#data", "v1:ConfigMap:default:settings#data", "apps/v2:Deployment:NS:web#spec"), []string{color, owner, image, cpu}},
		"no prefix of a name":           {fields("v1:ConfigMap:NS:settings#data.col"), []string{color, owner, image, cpu}},
		"a path":                        {rule(config.IgnoreRule{Paths: []string{"/spec/template/spec/containers[name=web]/image", "/data/color"}}), []string{owner, cpu}},
		"a path of a kind":              {rule(config.IgnoreRule{Kind: "Deployment", Paths: []string{"/spec", "/data"}}), []string{color, owner}},
		"a path of a name":              {rule(config.IgnoreRule{Name: "settings", Paths: []string{"/spec", "/data", "/metadata/annotations/example.com~1owner"}}), []string{image, cpu}},
		"a manager":                     {rule(config.IgnoreRule{Managers: []string{"updater"}}), []string{color, owner}},
		"a path, of a manager":          {rule(config.IgnoreRule{Paths: []string{"/spec/template/spec/containers[name=web]/image", "/data"}, Managers: []string{"painter"}}), []string{owner, image, cpu}},
		"what of a path is a manager's": {rule(config.IgnoreRule{Paths: []string{"/spec/template/spec/containers[name=web]"}, Managers: []string{"updater"}}), []string{color, owner}},
		"what is left to others":        {rule(config.IgnoreRule{Paths: []string{"/data", "/metadata/annotations"}, Mode: config.IgnoreYield}), []string{image, cpu}},
	} {
		for how, confirm := range map[string]bool{"": false, ", confirmed": true} {
			got := l.found(l.compare(t, shop, func(r *CompareRequest) { r.Ignore, r.Confirm = c.ignore, confirm }))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s%s (-want +got):\n%s", name, how, diff)
			}
		}
	}
}

// TestObjectsThatAskNotToBeCompared: the annotation counts in Git and on the live object;
// such an object may be missing in either.
func TestObjectsThatAskNotToBeCompared(t *testing.T) {
	l := newEnv(t)
	asking := strings.Replace(shop, "example.com/owner: shop", "pipecd.dev/ignore-drift-detection: \"true\"", 1)
	l.apply(t, asking)
	l.as("somebody").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"red"}}`)
	l.as("somebody").patch(t, "v1", "Service", "web", `{"metadata":{"annotations":{"pipecd.dev/ignore-drift-detection":"true"}},"spec":{"selector":{"app":"other"}}}`)
	ignored := 0
	for _, c := range l.compare(t, asking) {
		if c.Ignored {
			ignored++
		}
	}
	if got := l.found(l.compare(t, asking)); len(got) > 0 || ignored != 2 {
		t.Errorf("%d are ignored, and found is %q", ignored, got)
	}
	l.drop(t, "v1", "ConfigMap", "settings")
	if got := l.found(l.compare(t, asking)); len(got) > 0 {
		t.Errorf("found %q", got)
	}
}

// TestFieldsLeftToOthers: a field that is left to others is applied when the object is
// created. Then it keeps its value until another manager takes it over; neither a change
// in Git nor a rollback changes it.
func TestFieldsLeftToOthers(t *testing.T) {
	const container = "/spec/template/spec/containers[name=web]"
	shopWith := func(image, cpu string) string {
		return strings.Replace(strings.Replace(shop, `"web:1"`, `"`+image+`"`, 1), "1000m", cpu, 1)
	}
	setUp := func(t *testing.T, rules ...config.IgnoreRule) (l *env, apply func(string)) {
		l = newEnv(t)
		apply = func(manifests string) {
			t.Helper()
			l.apply(t, manifests, func(r *Request) { r.Yield = rules })
			ignore := func(r *CompareRequest) { r.Ignore.IgnoreRules = rules }
			if got := l.found(l.compare(t, manifests, ignore, confirmed)); len(got) > 0 {
				t.Errorf("after an apply the comparison finds %q", got)
			}
		}
		return l, apply
	}
	web := func(t *testing.T, l *env) map[string]any {
		t.Helper()
		all, _, _ := unstructured.NestedSlice(l.get(t, "Deployment", "web").Object, "spec", "template", "spec", "containers")
		return all[0].(map[string]any)
	}
	yield := func(paths ...string) config.IgnoreRule {
		return config.IgnoreRule{Kind: "Deployment", Paths: paths, Mode: config.IgnoreYield}
	}
	t.Run("another manager takes it over", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t, yield(container+"/image"))
		apply(shop)
		if got := web(t, l)["image"]; got != "web:1" {
			t.Fatalf("created with image %v", got)
		}
		l.as("updater").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:7"}]`)
		apply(shopWith("web:2", "3"))
		apply(shop)
		if got := web(t, l)["image"]; got != "web:7" {
			t.Errorf("the image is %v", got)
		}
		if others, _ := leavesByOwner(l.get(t, "Deployment", "web")); owns(others, "spec.template.spec.containers[name=web].image") {
			t.Error("the image is still ours")
		}
	})
	t.Run("no manager takes it over", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t, yield(container+"/image", container+"/resources"))
		apply(shop)
		apply(shopWith("web:2", "3"))
		apply(strings.Replace(shop, "resources: {requests: {cpu: 1000m}}", "args: [a]", 1))
		got := web(t, l)
		if cpu, _, _ := unstructured.NestedString(got, "resources", "requests", "cpu"); got["image"] != "web:1" || cpu != "1" || got["args"] == nil {
			t.Errorf("the container is %v", got)
		}
	})
	t.Run("another manager takes part of it over", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t, yield(container))
		apply(shop)
		l.as("updater").apply(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"+
			"spec: {template: {spec: {containers: [{name: web, image: \"web:7\"}]}}}\n")
		apply(shopWith("web:2", "3"))
		got := web(t, l)
		if cpu, _, _ := unstructured.NestedString(got, "resources", "requests", "cpu"); got["image"] != "web:7" || cpu != "1" {
			t.Errorf("the container is %v", got)
		}
	})
	t.Run("what a manager owns", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t, config.IgnoreRule{Managers: []string{"updater"}, Mode: config.IgnoreYield})
		apply(shop)
		l.as("updater").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:7"}]`)
		apply(shopWith("web:2", "3"))
		got := web(t, l)
		if cpu, _, _ := unstructured.NestedString(got, "resources", "requests", "cpu"); got["image"] != "web:7" || cpu != "3" {
			t.Errorf("the container is %v", got)
		}
	})
	t.Run("what a manager applied, and so names the item of", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t, config.IgnoreRule{Managers: []string{"updater"}, Mode: config.IgnoreYield})
		apply(shop)
		l.as("updater").apply(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"+
			"spec: {template: {spec: {containers: [{name: web, image: \"web:7\"}]}}}\n")
		apply(shopWith("web:2", "3"))
		got := web(t, l)
		if cpu, _, _ := unstructured.NestedString(got, "resources", "requests", "cpu"); got["image"] != "web:7" || cpu != "3" {
			t.Errorf("the container is %v", got)
		}
	})
	t.Run("part of what is owned as one", func(t *testing.T) {
		t.Parallel()
		const ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec: {rules: [" +
			"{host: git.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n"
		l, apply := setUp(t, config.IgnoreRule{Kind: "Ingress", Paths: []string{"/spec/rules/0/host"}, Mode: config.IgnoreYield})
		apply(ingress)
		l.as("operator").patch(t, "networking.k8s.io/v1", "Ingress", "web", `[{"op":"replace","path":"/spec/rules/0/host","value":"live.example.com"}]`)
		apply(strings.Replace(ingress, "80", "81", 1))
		live, err := l.as("operator").object(t, "networking.k8s.io/v1", "Ingress").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(live.Object["spec"]); !strings.Contains(got, "host:live.example.com") || !strings.Contains(got, "number:81") {
			t.Errorf("the Ingress is %s", got)
		}
	})
	t.Run("of a ConfigMap, of which no more than its metadata is read else", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t, config.IgnoreRule{Name: "settings", Paths: []string{"/data/color"}, Mode: config.IgnoreYield})
		apply(shop)
		l.as("painter").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"red"}}`)
		apply(strings.NewReplacer("blue", "green", "large", "small").Replace(shop))
		if diff := cmp.Diff(map[string]any{"color": "red", "size": "small"}, l.get(t, "ConfigMap", "settings").Object["data"]); diff != "" {
			t.Errorf("the data (-want +got):\n%s", diff)
		}
	})
	t.Run("applied by kubectl before", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t, yield(container+"/image"))
		obj := parse(t, "app.yaml", shopWith("web:0", "1"))[2]
		if _, err := l.as("kubectl-client-side-apply").object(t, "apps/v1", "Deployment").Create(t.Context(), obj.Unstructured, createAs("kubectl-client-side-apply")); err != nil {
			t.Fatal(err)
		}
		apply(shop)
		if got := web(t, l)["image"]; got != "web:0" {
			t.Errorf("the image is %v", got)
		}
	})
	t.Run("the rule is new, or goes", func(t *testing.T) {
		t.Parallel()
		l, apply := setUp(t)
		apply(shop)
		l.as("updater").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:7"}]`)
		rules := []config.IgnoreRule{yield(container + "/image")}
		l.apply(t, shop, func(r *Request) { r.Yield = rules })
		if got := web(t, l)["image"]; got != "web:7" {
			t.Errorf("with the rule the image is %v", got)
		}
		if result := l.apply(t, shop, func(r *Request) { r.Yield = rules }); result.Written != 0 {
			t.Errorf("%d objects are sent although nothing changed", result.Written)
		}
		apply(shop)
		if got := web(t, l)["image"]; got != "web:1" {
			t.Errorf("without the rule the image is %v", got)
		}
	})
}

func owns(leaves []leaf, path string) bool {
	for _, l := range leaves {
		if l.path == path {
			return true
		}
	}
	return false
}
