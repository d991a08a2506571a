package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDigestOfDeclaration(t *testing.T) {
	const (
		configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v, l: w}\n"
		secret    = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
		policy    = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n"
	)
	tests := []struct {
		name, a, b string
		same       bool
	}{
		{"order of keys", configMap, "kind: ConfigMap\ndata: {l: w, k: v}\nmetadata: {name: a}\napiVersion: v1\n", true},
		{"a value", configMap, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v, l: x}\n", false},
		{"a label", configMap, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {x: z}}\ndata: {k: v, l: w}\n", false},
		{"what the server writes", configMap, `
apiVersion: v1
kind: ConfigMap
metadata:
  name: a
  uid: u
  resourceVersion: "3"
  generation: 2
  creationTimestamp: null
  selfLink: /x
  managedFields: [{manager: x}]
  annotations: {pipecd.dev/commit-hash: c}
data: {k: v, l: w}
status: {phase: x}
`, true},
		{"no labels in two ways", configMap, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {}, annotations: }\ndata: {k: v, l: w}\n", true},
		{"another annotation", configMap, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {pipecd.dev/piped: p}}\ndata: {k: v, l: w}\n", false},
		{"stringData", secret + "data: {a: YQ==, b: Yg==}\n", secret + "stringData: {a: a}\ndata: {b: Yg==}\n", true},
		{"stringData wins over data", secret + "data: {a: YQ==}\n", secret + "stringData: {a: a}\ndata: {a: Yg==}\n", true},
		{"stringData alone", secret + "data: {a: YQ==}\n", secret + "stringData: {a: a}\n", true},
		{"stringData of another kind", "apiVersion: example.com/v1\nkind: Secret\nmetadata: {name: a}\nstringData: {a: a}\n",
			"apiVersion: example.com/v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: YQ==}\n", false},
		{"an empty selector selects everything", policy + "spec: {ingress: [{from: [{podSelector: {a: b}}]}]}\n",
			policy + "spec: {ingress: [{from: [{podSelector: {a: b}, namespaceSelector: {}}]}]}\n", false},
		{"1 and \"1\"", configMap + "n: 1\n", configMap + "n: \"1\"\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, b := parseOne(t, tt.a), parseOne(t, tt.b)
			if same := Digest(a.Unstructured) == Digest(b.Unstructured); same != tt.same {
				t.Errorf("the digests are the same: %t, want %t", same, tt.same)
			}
		})
	}
}

// TestDigestIsStable: digests are stored, so they must not change between versions.
func TestDigestIsStable(t *testing.T) {
	o := parseOne(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: a, labels: {x: \"1\"}}\nstringData: {k: v}\ntype: Opaque\n")
	const want = "77bfede17e948eb6392b873f653abc4536ec5d9ab5187e5387cf31e890d582ee"
	if got := Digest(o.Unstructured); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestDigestChangesNothing(t *testing.T) {
	const text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, uid: u, annotations: {pipecd.dev/commit-hash: c}}\nstringData: {k: v}\ndata: {l: Yg==}\nstatus: {}\n"
	o := parseOne(t, text)
	Digest(o.Unstructured)
	if diff := cmp.Diff(parseOne(t, text).Object, o.Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestDigestOfBrokenSecretsIsTheirOwn(t *testing.T) {
	const head = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
	seen := map[string]string{}
	for _, body := range []string{"stringData: [a]\n", "stringData: {a: 1}\n", "stringData: {a: b}\ndata: text\n", ""} {
		d := Digest(parseOne(t, head+body).Unstructured)
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have the same digest", body, other)
		}
		seen[d] = body
	}
}
