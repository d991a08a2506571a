package apply

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/manifest"
)

// hidesSecrets redacts two passwords.
type hidesSecrets struct{}

func (hidesSecrets) Text(s string) string {
	return strings.NewReplacer("hunter2", "[redacted]", "aHVudGVyMg==", "[redacted]").Replace(s)
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	objects, err := manifest.Parse("app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects[0].Unstructured
}

// TestPresent: secrets are masked wherever they are: in Secrets, decrypted into other objects,
// and as the former value of a field that Git fills with a secret.
func TestPresent(t *testing.T) {
	const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template: {spec: {containers: [{name: app, image: "web:1", args: [serve], env: [{name: PASSWORD, value: hunter2}]}]}}
`
	for name, c := range map[string]struct{ live, declared, want string }{
		"a Secret": {
			live: `{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: key, labels: {a: b}, annotations: {copy: c3RvbGVu}}, data: {password: c3RvbGVu}, stringData: {other: stolen}}`,
			want: "apiVersion: v1\ndata:\n  password: (secret)\nkind: Secret\nmetadata:\n  annotations:\n    copy: (secret)\n  labels:\n    a: b\n  name: key\nstringData:\n  other: (secret)\ntype: Opaque\n",
		},
		"a decrypted secret, also in base64": {
			live: `{apiVersion: v1, kind: ConfigMap, metadata: {name: web, managedFields: [{manager: kubectl}]}, data: {url: "db:hunter2@db", raw: aHVudGVyMg==, plain: text}}`,
			want: "apiVersion: v1\ndata:\n  plain: text\n  raw: (secret)\n  url: (secret)\nkind: ConfigMap\nmetadata:\n  name: web\n",
		},
		"a former secret in a workload": {
			live:     strings.ReplaceAll(strings.ReplaceAll(deployment, "hunter2", "hunter1"), "replicas: 2", "replicas: 5"),
			declared: deployment,
			want: "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 5\n  template:\n    spec:\n      containers:\n" +
				"      - args:\n        - serve\n        env:\n        - name: PASSWORD\n          value: (secret, as it is live)\n        image: web:1\n        name: app\n",
		},
		"a former secret in a pod": {
			live:     `{apiVersion: v1, kind: Pod, metadata: {name: web-1}, spec: {containers: [{name: app, image: "web:1", env: [{name: PASSWORD, value: hunter1}, {name: MODE, value: fast}]}]}}`,
			declared: deployment,
			want: "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-1\nspec:\n  containers:\n  - env:\n    - name: PASSWORD\n      value: (secret, as it is live)\n" +
				"    - name: MODE\n      value: fast\n    image: web:1\n    name: app\n",
		},
	} {
		var declared *unstructured.Unstructured
		if c.declared != "" {
			declared = object(t, c.declared)
		}
		if diff := cmp.Diff(c.want, Present(object(t, c.live), declared, hidesSecrets{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestManagers(t *testing.T) {
	fields := func(raw string) *metav1.FieldsV1 { return metav1.NewFieldsV1(raw) }
	at := func(s int64) *metav1.Time { return &metav1.Time{Time: metav1.Unix(s, 0).Time} }
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "piped", Operation: "Apply", Time: at(10), FieldsV1: fields(`{"f:data":{"f:b":{},"f:a":{},"f:hunter2":{}}}`)},
		{Manager: "controller", Operation: "Update", Subresource: "status", Time: at(20), FieldsV1: fields(`{"f:status":{"f:replicas":{}}}`)},
	})
	var got []string
	for _, m := range Managers(u, hidesSecrets{}) {
		got = append(got, m.Manager+" "+m.Operation+" "+m.Subresource+" "+m.ChangedAt.Format("05")+" "+strings.Join(m.Fields, ","))
	}
	want := []string{"controller Update status 20 status.replicas", "piped Apply  10 data.[redacted],data.a,data.b"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
