package traffic

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestEvaluate: a route is accepted when every parent reports so for the route's current
// generation.
func TestEvaluate(t *testing.T) {
	const resolved = `{type: ResolvedRefs, status: "True", observedGeneration: 2, reason: ResolvedRefs, message: ok}`
	const accepted = `{type: Accepted, status: "True", observedGeneration: 2, reason: Accepted, message: ok}`
	const good = "conditions: [" + accepted + ", " + resolved + "]"
	const a, b = "parentRef: {name: a}", "parentRef: {name: b, namespace: infra, sectionName: web, port: 80}"
	const refs = "[{name: a}, {group: gateway.networking.k8s.io, kind: Gateway, name: b, namespace: infra, sectionName: web, port: 80}]"
	cases := []struct {
		name, refs, parents string
		want                Verdict
	}{
		{"no parents", "[]", "[]", Verdict{Accepted: true}},
		{"all accepted", refs, "[{" + a + ", " + good + "}, {" + b + ", " + good + "}]", Verdict{Accepted: true}},
		{"the namespace of the route written out", "[{name: a}]", "[{parentRef: {name: a, namespace: shop}, " + good + "}]", Verdict{Accepted: true}},
		{"one is silent", refs, "[{" + a + ", " + good + "}]", Verdict{Reason: "Gateway infra/b (web) port 80 has not reported a status yet"}},
		{"of another generation", "[{name: a}]", `[{` + a + `, conditions: [{type: Accepted, status: "True", observedGeneration: 1}, ` + resolved + `]}]`,
			Verdict{Reason: "Gateway shop/a has not processed the latest change yet (Accepted is of generation 1, the route has 2)"}},
		{"an old refusal", "[{name: a}]", `[{` + a + `, conditions: [{type: Accepted, status: "False", observedGeneration: 1}, ` + resolved + `]}]`,
			Verdict{Reason: "Gateway shop/a has not processed the latest change yet (Accepted is of generation 1, the route has 2)"}},
		{"without ResolvedRefs", "[{name: a}]", "[{" + a + ", conditions: [" + accepted + "]}]", Verdict{Reason: "Gateway shop/a has not reported ResolvedRefs yet"}},
		{"unknown", "[{name: a}]", `[{` + a + `, conditions: [{type: Accepted, status: Unknown, observedGeneration: 2}, ` + resolved + `]}]`,
			Verdict{Reason: "Gateway shop/a has not reported Accepted yet"}},
		{"refused", refs, `[{` + a + `, ` + good + `}, {` + b + `, conditions: [{type: Accepted, status: "False", observedGeneration: 2, reason: NotAllowedByListeners, message: denied}, ` + resolved + `]}]`,
			Verdict{Refused: true, Reason: "Gateway infra/b (web) port 80 says Accepted is False: NotAllowedByListeners: denied"}},
		{"unresolved, and another one is silent", refs, `[{` + a + `, conditions: [` + accepted + `, {type: ResolvedRefs, status: "False", observedGeneration: 3, reason: BackendNotFound, message: no web-canary}]}]`,
			Verdict{Refused: true, Reason: "Gateway shop/a says ResolvedRefs is False: BackendNotFound: no web-canary"}},
		{"partially invalid", "[{name: a}]", `[{` + a + `, conditions: [` + accepted + `, ` + resolved + `, {type: PartiallyInvalid, status: "True", observedGeneration: 2, reason: UnsupportedValue, message: dropped rule 1}]}]`,
			Verdict{Refused: true, Reason: "Gateway shop/a says PartiallyInvalid is True: UnsupportedValue: dropped rule 1"}},
		{"partially invalid before", "[{name: a}]", `[{` + a + `, conditions: [` + accepted + `, ` + resolved + `, {type: PartiallyInvalid, status: "True", observedGeneration: 1}]}]`, Verdict{Accepted: true}},
		{"two controllers of one parent, one refuses", "[{name: a}]", `[{` + a + `, ` + good + `}, {` + a + `, conditions: [` + accepted + `, {type: ResolvedRefs, status: "False", observedGeneration: 2, reason: RefNotPermitted, message: denied}]}]`,
			Verdict{Refused: true, Reason: "Gateway shop/a says ResolvedRefs is False: RefNotPermitted: denied"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			text := "{metadata: {name: web, namespace: shop, generation: 2}, spec: {parentRefs: " + c.refs + "}, status: {parents: " + c.parents + "}}"
			data, err := yaml.YAMLToJSON([]byte("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, " + text[1:]))
			if err != nil {
				t.Fatal(err)
			}
			route := &unstructured.Unstructured{}
			if err := route.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, Evaluate(route)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
