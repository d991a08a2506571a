package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// fromYAML decodes an object from YAML without checks.
func fromYAML(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// pod returns a Deployment with the given pod spec, in YAML flow style.
func pod(spec string) string {
	return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {template: {spec: " + spec + "}}}"
}

func TestDiff(t *testing.T) {
	const at = "spec.template.spec."
	tests := map[string]struct {
		before, after string
		want          []string // "path: before -> after"
	}{
		"nothing": {pod(`{a: 1}`), pod(`{a: 1}`), nil},
		"an image": {
			pod(`{containers: [{name: web, image: "foo:v1"}]}`), pod(`{containers: [{name: web, image: "foo:v2"}]}`),
			[]string{at + "containers[name=web].image: foo:v1 -> foo:v2"},
		},
		"containers in another order": {
			pod(`{containers: [{name: a, image: x}, {name: b, image: y}]}`), pod(`{containers: [{name: b, image: y}, {name: a, image: x}]}`), nil,
		},
		"init containers in another order": {
			pod(`{initContainers: [{name: a}, {name: b}]}`), pod(`{initContainers: [{name: b}, {name: a}]}`),
			[]string{at + "initContainers: in the order name=a, name=b -> in the order name=b, name=a"},
		},
		"a container more and one less": {
			pod(`{containers: [{name: a}, {name: b}]}`), pod(`{containers: [{name: c}, {name: a}]}`),
			[]string{at + "containers[name=b]: map[name:b] -> <nil>", at + "containers[name=c]: <nil> -> map[name:c]"},
		},
		"ports by number and protocol": {
			pod(`{containers: [{name: a, ports: [{containerPort: 80, protocol: TCP}, {containerPort: 53, protocol: UDP, name: dns}]}]}`),
			pod(`{containers: [{name: a, ports: [{containerPort: 53, protocol: UDP, name: domain}, {containerPort: 80, protocol: TCP}]}]}`),
			[]string{at + "containers[name=a].ports[containerPort=53,protocol=UDP].name: dns -> domain"},
		},
		"ports of a service": {
			`{apiVersion: v1, kind: Service, spec: {ports: [{port: 80, targetPort: 8080}, {port: 81}]}}`,
			`{apiVersion: v1, kind: Service, spec: {ports: [{port: 81}, {port: 80, targetPort: 8081}]}}`,
			[]string{"spec.ports[port=80,protocol=TCP].targetPort: 8080 -> 8081"},
		},
		"env by name": {
			pod(`{containers: [{name: a, env: [{name: X, value: "1"}, {name: Z, value: "2"}]}]}`),
			pod(`{containers: [{name: a, env: [{name: Z, value: "2"}, {name: X, value: "3"}]}]}`),
			[]string{at + "containers[name=a].env[name=X].value: 1 -> 3"},
		},
		"mounts by path":                   {pod(`{c: {volumeMounts: [{name: d, mountPath: /a}, {name: d, mountPath: /b}]}}`), pod(`{c: {volumeMounts: [{name: d, mountPath: /b}, {name: d, mountPath: /a}]}}`), nil},
		"two items with one key, by index": {pod(`{volumes: [{name: a}, {name: a, x: 1}]}`), pod(`{volumes: [{name: a}, {name: a, x: 2}]}`), []string{at + "volumes[1].x: 1 -> 2"}},
		"arguments in another order":       {pod(`{args: [a, b]}`), pod(`{args: [b, a]}`), []string{at + "args[0]: a -> b", at + "args[1]: b -> a"}},
		"an argument less":                 {pod(`{args: [a, b]}`), pod(`{args: [a]}`), []string{at + "args[1]: b -> <nil>"}},
		"an unknown list by name":          {pod(`{routes: [{name: a, w: 1}, {name: b}]}`), pod(`{routes: [{name: a, w: 2}, {name: b}]}`), []string{at + "routes[name=a].w: 1 -> 2"}},
		"an unknown list in another order": {pod(`{routes: [{name: a}, {name: b}]}`), pod(`{routes: [{name: b}, {name: a}]}`), []string{at + "routes: in the order name=a, name=b -> in the order name=b, name=a"}},
		"a number written otherwise":       {pod(`{a: 1}`), pod(`{a: 1.0}`), nil},
		"a number is no text":              {pod(`{a: 1}`), pod(`{a: "1"}`), []string{at + "a: 1 -> 1"}},
		"a quantity written otherwise":     {pod(`{resources: {requests: {cpu: 0.5, memory: 1Gi}}}`), pod(`{resources: {requests: {cpu: 500m, memory: 1024Mi}}}`), nil},
		"large numbers that differ by one": {pod(`{a: 9007199254740993}`), pod(`{a: 9007199254740992}`), []string{at + "a: 9007199254740993 -> 9007199254740992"}},
		"quantities of a LimitRange": {
			`{apiVersion: v1, kind: LimitRange, spec: {limits: [{max: {cpu: 1}, default: {cpu: 0.5}}]}}`,
			`{apiVersion: v1, kind: LimitRange, spec: {limits: [{max: {cpu: 1000m}, default: {cpu: 500m}}]}}`, nil,
		},
		"quantities of an autoscaler": {
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {metrics: [{object: {target: {value: 1k, averageValue: "1"}}}]}}`,
			`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {metrics: [{object: {target: {value: 1000, averageValue: 1000m}}}]}}`, nil,
		},
		"a text that only looks like a quantity": {pod(`{a: {max: {cpu: 500m}}}`), pod(`{a: {max: {cpu: "0.5"}}}`), []string{at + "a.max.cpu: 500m -> 0.5"}},
		"another quantity":                       {pod(`{resources: {limits: {cpu: 1}}}`), pod(`{resources: {limits: {cpu: "2"}}}`), []string{at + "resources.limits.cpu: 1 -> 2"}},
		"null is nothing":                        {pod(`{a: null}`), pod(`{}`), nil},
		"an empty mapping is something":          {pod(`{}`), pod(`{podSelector: {}}`), []string{at + "podSelector: <nil> -> map[]"}},
		"a mapping that became a list":           {pod(`{a: {b: 1}}`), pod(`{a: [1]}`), []string{at + "a: map[b:1] -> [1]"}},
		"labels that are no plain words":         {`{kind: X, metadata: {labels: {a.b/c: x}}}`, `{kind: X, metadata: {labels: {a.b/c: z}}}`, []string{`metadata.labels["a.b/c"]: x -> z`}},
		"what the server writes":                 {`{kind: X, metadata: {uid: a}, status: {a: 1}}`, `{kind: X, metadata: {generation: 2}}`, nil},
		"no annotations, however written":        {`{kind: X, metadata: {name: a, annotations: {}}}`, `{kind: X, metadata: {name: a}}`, nil},
		"another API version":                    {`{apiVersion: a/v1, kind: X}`, `{apiVersion: a/v2, kind: X}`, []string{"apiVersion: a/v1 -> a/v2"}},
		"a secret is masked":                     {`{apiVersion: v1, kind: Secret, data: {p: aHVudGVyMg==}}`, `{apiVersion: v1, kind: Secret, data: {p: c2VjcmV0, q: eA==}}`, []string{"data.p: (secret) -> (secret)", "data.q: <nil> -> (secret)"}},
		"a secret that is written badly": {
			`{apiVersion: v1, kind: Secret, stringData: {pin: 1234}, dat: {p: hunter2}}`, `{apiVersion: v1, kind: Secret, stringData: {pin: 1235}, type: Opaque}`,
			[]string{"dat: (secret) -> <nil>", "stringData.pin: (secret) -> (secret)", "type: <nil> -> Opaque"},
		},
		"a secret's labels may be shown":    {`{apiVersion: v1, kind: Secret, metadata: {labels: {a: b}}}`, `{apiVersion: v1, kind: Secret, metadata: {labels: {a: c}}}`, []string{"metadata.labels.a: b -> c"}},
		"a secret without data before":      {`{apiVersion: v1, kind: Secret}`, `{apiVersion: v1, kind: Secret, stringData: {p: x}}`, []string{"data: <nil> -> (secret)"}},
		"stringData is data":                {`{apiVersion: v1, kind: Secret, data: {p: eA==}}`, `{apiVersion: v1, kind: Secret, stringData: {p: x}}`, nil},
		"a config map's file":               {`{apiVersion: v1, kind: ConfigMap, data: {app.yaml: a}}`, `{apiVersion: v1, kind: ConfigMap, data: {app.yaml: b}}`, []string{`data["app.yaml"]: a -> b`}},
		"a copy of a secret in annotations": {`{apiVersion: v1, kind: Secret, metadata: {annotations: {last: hunter2}}}`, `{apiVersion: v1, kind: Secret, metadata: {annotations: {last: hunter3}}}`, []string{"metadata.annotations.last: (secret) -> (secret)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range Diff(fromYAML(t, tt.before), fromYAML(t, tt.after)) {
				got = append(got, fmt.Sprintf("%s: %v -> %v", c.Path, c.Before, c.After))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// anything draws a JSON value; keyed lists and odd types are likely.
func anything(depth int) *rapid.Generator[any] {
	scalar := rapid.OneOf(
		rapid.Just[any](nil), rapid.Map(rapid.Int64Range(0, 3), func(n int64) any { return n }),
		rapid.Map(rapid.SampledFrom([]string{"", "a", "b", "1"}), func(s string) any { return s }), rapid.Just[any](1.0), rapid.Just[any](true))
	if depth == 0 {
		return scalar
	}
	return rapid.OneOf(scalar,
		rapid.Map(rapid.SliceOfN(anything(depth-1), 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"name", "key", "a", "containers", "ports", "containerPort", "requests"}), anything(depth-1), 0, 4),
			func(m map[string]any) any { return m }))
}

// shuffled returns v with its lists of containers and volumes in another order.
func shuffled(rt *rapid.T, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, item := range v {
			out[k] = shuffled(rt, item)
			if list, ok := out[k].([]any); ok && (k == "containers" || k == "volumes") {
				out[k] = rapid.Permutation(list).Draw(rt, "order")
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = shuffled(rt, v[i])
		}
		return out
	}
	return v
}

func TestDiffProperties(t *testing.T) {
	draw := func(rt *rapid.T, label string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "X", "spec": anything(4).Draw(rt, label)}}
	}
	paths := func(changes []Change) []string {
		var out []string
		for _, c := range changes {
			out = append(out, c.Path)
		}
		return out
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b := draw(rt, "a"), draw(rt, "b")
		before := runtime.DeepCopyJSON(map[string]any{"a": a.Object, "b": b.Object})
		if got := Diff(a, a.DeepCopy()); got != nil {
			rt.Fatalf("a copy differs: %v", got)
		}
		forth, back := Diff(a, b), Diff(b, a)
		if diff := cmp.Diff(paths(forth), paths(back)); diff != "" {
			rt.Fatalf("paths forth and back (-forth +back):\n%s", diff)
		}
		if diff := cmp.Diff(before, map[string]any{"a": a.Object, "b": b.Object}); diff != "" {
			rt.Fatalf("an input changed:\n%s", diff)
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,3}`), 0, 5, rapid.ID[string]).Draw(rt, "names")
		var list []any
		for _, name := range names {
			list = append(list, map[string]any{"name": name, "image": anything(1).Draw(rt, "image")})
		}
		a := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"containers": list, "volumes": list}}}
		b := &unstructured.Unstructured{Object: shuffled(rt, a.Object).(map[string]any)}
		if got := Diff(a, b); got != nil {
			rt.Fatalf("another order of containers is a difference: %v", got)
		}
	})
}

// FuzzDiff: Diff never panics, and never returns a byte of a Secret's data.
func FuzzDiff(f *testing.F) {
	f.Add(`{"a":[{"name":1},{"name":"1"}]}`, `{"a":[{"name":1.0}]}`)
	f.Add(`{"data":{"x":"aHVudGVyMg=="}}`, `{"stringData":{"x":"hunter2"},"data":[]}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		before, after := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		if yaml.Unmarshal([]byte(a), &before.Object) != nil || yaml.Unmarshal([]byte(b), &after.Object) != nil || before.Object == nil || after.Object == nil {
			return
		}
		Diff(before, after)
		before.Object = map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"x": "hunter2-" + a}}
		after.Object = map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"x": "hunter3-" + b}}
		for _, c := range Diff(before, after) {
			if text := fmt.Sprint(c); strings.Contains(text, "hunter") {
				t.Errorf("a secret shows: %s", text)
			}
		}
	})
}
