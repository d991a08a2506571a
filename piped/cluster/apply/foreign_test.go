package apply

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/deploy"
)

// asKubectl creates the objects of the manifests as kubectl does, each modified by a
// change.
func (l *env) asKubectl(t *testing.T, manager, manifests string) {
	t.Helper()
	objs, err := l.Resolve(context.Background(), parse(t, "live.yaml", manifests), l.ns, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objs {
		resource, err := l.Resource(context.Background(), o.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.ResourceClient(resource, o.GetNamespace()).Create(context.Background(), o.Unstructured, metav1.CreateOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *env) foreign(t *testing.T, manifests string) []deploy.AdoptedObject {
	t.Helper()
	got, err := l.Foreign(context.Background(), ForeignRequest{
		ApplicationID: l.app, PipedID: "piped-1", VariantKey: "pipecd.dev/variant", VariantValue: "primary",
		Objects: parse(t, "app.yaml", manifests), Namespace: l.ns,
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

const everyKind = `apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {a: "1"}
---
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {a: secret}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:v1", envFrom: [{configMapRef: {name: c}}], ports: [{containerPort: 80}]}]}
`

// TestForeign: live objects that are not the application's are reported with their
// manager, and with whether an apply would change more than their ownership. Defaults of
// the API server are no change.
func TestForeign(t *testing.T) {
	for name, c := range map[string]struct {
		manager string
		live    func(string) string
		changes string // the kinds that an apply would change
	}{
		"as Git has it":                 {"kubectl-client-side-apply", nil, ""},
		"created with kubectl":          {"kubectl-create", nil, ""},
		"of another tool":               {"helm", nil, ""},
		"with a value that Git has not": {"helm", func(s string) string { return strings.ReplaceAll(s, `a: "1"`, `a: "2"`) }, "ConfigMap Deployment"}, // the Deployment restarts
		"with a field of kubectl": {"kubectl-client-side-apply", func(s string) string {
			return strings.ReplaceAll(s, "replicas: 1", "replicas: 1\n  minReadySeconds: 3")
		}, "Deployment"},
		"with a field of another tool": {"helm", func(s string) string {
			return strings.ReplaceAll(s, "replicas: 1", "replicas: 1\n  minReadySeconds: 3")
		}, ""}, // the additional field stays
		"with a list entry of kubectl": {"kubectl-client-side-apply", func(s string) string {
			return strings.ReplaceAll(s, "[{port: 80}]", "[{name: a, port: 80}, {name: b, port: 81}]")
		}, "Service"},
		"with a default that was written": {"kubectl-client-side-apply", func(s string) string {
			return strings.ReplaceAll(s, "replicas: 1", "replicas: 1\n  revisionHistoryLimit: 10")
		}, ""},
		"with another secret":       {"kubectl-client-side-apply", func(s string) string { return strings.ReplaceAll(s, "a: secret", "a: other") }, "Secret"},
		"with a key of a secret":    {"kubectl-client-side-apply", func(s string) string { return strings.ReplaceAll(s, "a: secret", "a: secret, b: more") }, "Secret"},
		"that could not be applied": {"helm", func(s string) string { return strings.ReplaceAll(s, "app: web", "app: other") }, "Service Deployment"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			live := everyKind
			if c.live != nil {
				live = c.live(live)
			}
			l.asKubectl(t, c.manager, live)
			before := l.versions(t)
			var changes, kinds []string
			for _, o := range l.foreign(t, everyKind+"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: absent}\n---\napiVersion: none.example.com/v1\nkind: Unknown\nmetadata: {name: x}\n") {
				kinds = append(kinds, o.Object.Kind)
				if o.Changes {
					changes = append(changes, o.Object.Kind)
				}
				if o.Object.Namespace != l.ns || o.OwnerApplicationID != "" || len(o.Managers) == 0 || o.Managers[0] != c.manager {
					t.Errorf("got %+v", o)
				}
			}
			if diff := cmp.Diff([]string{"ConfigMap", "Secret", "Service", "Deployment"}, kinds); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
			if got := strings.Join(changes, " "); got != c.changes {
				t.Errorf("an apply would change %q, want %q", got, c.changes)
			}
			if diff := cmp.Diff(before, l.versions(t)); diff != "" {
				t.Errorf("something was written (-before +after):\n%s", diff)
			}
		})
	}
}

// versions returns the generations and labels of the objects, which a write changes.
func (l *env) versions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for kind, name := range map[string]string{"ConfigMap": "c", "Secret": "s", "Service": "web"} {
		out[kind] = l.get(t, kind, name).GetResourceVersion()
	}
	return out
}

// TestForeignLeavesOutWhatIsOurs: objects that we applied are reported only after they
// are marked as another application's.
func TestForeignLeavesOutWhatIsOurs(t *testing.T) {
	l := newEnv(t)
	l.apply(t, everyKind)
	if got := l.foreign(t, everyKind); len(got) != 0 {
		t.Errorf("applied objects are reported as foreign: %+v", got)
	}
	patch := []byte(`{"metadata":{"annotations":{"pipecd.dev/application":"app-2"}}}`)
	if _, err := l.Typed().CoreV1().ConfigMaps(l.ns).Patch(context.Background(), "c", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	got := l.foreign(t, everyKind)
	if len(got) != 1 || got[0].Object.Name != "c" || got[0].OwnerApplicationID != "app-2" || got[0].Changes {
		t.Errorf("got %+v", got)
	}
}
