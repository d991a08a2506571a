package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDiffLive: differences between a live object and a declaration, found without the
// API server.
func TestDiffLive(t *testing.T) {
	const declaration = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {team: shop}, annotations: {}}
spec:
  replicas: 2
  paused: false
  template:
    spec:
      securityContext: {}
      containers:
      - {name: web, image: "web:1", args: [a, b], resources: {requests: {cpu: 1000m, memory: 1024Mi}}, ports: [{containerPort: 80}], env: [{name: EMPTY, value: ""}]}
      - {name: proxy, image: "proxy:1"}
status: {replicas: 7}
`
	for name, c := range map[string]struct {
		live string
		want []Change
	}{
		"as it is declared": {declaration, nil},
		"as an API server returns it": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, uid: u, labels: {team: shop, more: "yes"}}
spec:
  replicas: 2
  strategy: {type: RollingUpdate}
  template:
    spec:
      containers:
      - {name: sidecar, image: "sidecar:1"}
      - {name: proxy, image: "proxy:1"}
      - {name: web, image: "web:1", args: [a, b], resources: {requests: {cpu: "1", memory: 1Gi}}, ports: [{containerPort: 80, protocol: TCP}], env: [{name: EMPTY}, {name: MORE, value: x}]}
status: {replicas: 2}
`, nil},
		"with other values": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {team: other}}
spec:
  replicas: "3"
  paused: true
  template:
    spec:
      containers:
      - {name: web, image: "web:2", args: [b, a], resources: {requests: {cpu: 1001m, memory: 1Gi}}, ports: [{containerPort: 81}], env: []}
`, []Change{
			{Path: "metadata.labels.team", Before: "shop", After: "other"},
			{Path: "spec.paused", Before: false, After: true},
			{Path: "spec.replicas", Before: int64(2), After: "3"},
			{Path: "spec.template.spec.containers[name=proxy]", Before: map[string]any{"name": "proxy", "image": "proxy:1"}},
			{Path: "spec.template.spec.containers[name=web].args[0]", Before: "a", After: "b"},
			{Path: "spec.template.spec.containers[name=web].args[1]", Before: "b", After: "a"},
			{Path: "spec.template.spec.containers[name=web].env[name=EMPTY]", Before: map[string]any{"name": "EMPTY", "value": ""}},
			{Path: "spec.template.spec.containers[name=web].image", Before: "web:1", After: "web:2"},
			{Path: "spec.template.spec.containers[name=web].ports[containerPort=80,protocol=TCP]", Before: map[string]any{"containerPort": int64(80)}},
			{Path: "spec.template.spec.containers[name=web].resources.requests.cpu", Before: "1000m", After: "1001m"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			git, live := fromYAML(t, declaration), fromYAML(t, c.live)
			if diff := cmp.Diff(c.want, DiffLive(git, live)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(DiffLive(git, live), DiffLive(git, Limited(git, live))); diff != "" {
				t.Errorf("what is limited differs in something else (-whole +limited):\n%s", diff)
			}
		})
	}
}

func TestSameLenient(t *testing.T) {
	for _, c := range []struct {
		declared, live any
		want           bool
	}{
		{"80", int64(80), true}, {"1000m", "1", true}, {"1Gi", "1024Mi", true}, {int64(2), "2", true}, {1.0, int64(1), true},
		{nil, "", true}, {map[string]any{}, nil, true}, {false, nil, true}, {int64(0), nil, true},
		{"true", true, false}, {"a", "b", false}, {"1", "2", false}, {"", "0", false}, {map[string]any{"a": "b"}, nil, false}, {"a", nil, false},
	} {
		if got := sameLenient(c.declared, c.live); got != c.want {
			t.Errorf("%#v and %#v: %t, want %t", c.declared, c.live, got, c.want)
		}
	}
}
