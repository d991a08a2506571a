package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/manifest"
)

func TestDesiredIsMarkedAndHoldsNothingOfAServer(t *testing.T) {
	owner := manifest.Ownership{PipedID: "piped-1", ApplicationID: "app-1", CommitHash: "c0ffee", VariantKey: "pipecd.dev/variant", Variant: "primary"}
	cases := map[string]struct{ manifest, want string }{
		"exported from a cluster": {
			manifest: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, uid: 1-2, resourceVersion: "7", generation: 3, creationTimestamp: null, labels: {team: a}}
spec:
  replicas: null
  selector: {matchLabels: {app: web}}
  template:
    metadata: {creationTimestamp: null, labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", resources: {}, env: null}], volumes: [{name: tmp, emptyDir: {}}]}
status: {replicas: 3}
`,
			want: `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels: {team: a, pipecd.dev/application: app-1}
  annotations:
    pipecd.dev/managed-by: piped
    pipecd.dev/piped: piped-1
    pipecd.dev/application: app-1
    pipecd.dev/original-api-version: apps/v1
    pipecd.dev/resource-key: apps/v1:Deployment:shop:web
    pipecd.dev/commit-hash: c0ffee
    pipecd.dev/variant: primary
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", resources: {}}], volumes: [{name: tmp, emptyDir: {}}]}
`,
		},
		"plain text of a Secret": {
			manifest: `
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: shop}
data: {a: b2xk, b: b2xk}
stringData: {a: new}
`,
			want: `
apiVersion: v1
kind: Secret
metadata:
  name: s
  namespace: shop
  labels: {pipecd.dev/application: app-1}
  annotations:
    pipecd.dev/managed-by: piped
    pipecd.dev/piped: piped-1
    pipecd.dev/application: app-1
    pipecd.dev/original-api-version: v1
    pipecd.dev/resource-key: v1:Secret:shop:s
    pipecd.dev/commit-hash: c0ffee
    pipecd.dev/variant: primary
data: {a: bmV3, b: b2xk}
`,
		},
		"null of a custom kind may mean something": {
			manifest: `
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: null}
`,
			want: `
apiVersion: example.com/v1
kind: Widget
metadata:
  name: w
  labels: {pipecd.dev/application: app-1}
  annotations:
    pipecd.dev/managed-by: piped
    pipecd.dev/piped: piped-1
    pipecd.dev/application: app-1
    pipecd.dev/original-api-version: example.com/v1
    pipecd.dev/resource-key: example.com/v1:Widget:default:w
    pipecd.dev/commit-hash: c0ffee
    pipecd.dev/variant: primary
spec: {size: null}
`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			obj := parse(t, "x.yaml", c.manifest)[0]
			before := obj.Clone()
			got, err := yaml.Marshal(desired(obj, owner).Object)
			if err != nil {
				t.Fatal(err)
			}
			want, err := yaml.Marshal(parse(t, "want.yaml", c.want)[0].Object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("desired (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Errorf("the object given was changed:\n%s", diff)
			}
		})
	}
}
