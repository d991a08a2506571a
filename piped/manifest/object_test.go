package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

func parse(t *testing.T, text string) []Object {
	t.Helper()
	objects, err := Parse("app.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func parseOne(t *testing.T, text string) Object {
	t.Helper()
	objects := parse(t, text)
	if len(objects) != 1 {
		t.Fatalf("got %d objects, want one", len(objects))
	}
	return objects[0]
}

func TestRefAndResourceKey(t *testing.T) {
	tests := []struct {
		name, text string
		ref        deploy.ObjectRef
		key        string
	}{
		{
			"namespaced", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}",
			deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
			"apps/v1:Deployment:shop:web",
		},
		{
			"core group, no namespace", "apiVersion: v1\nkind: Service\nmetadata: {name: web}",
			deploy.ObjectRef{Version: "v1", Kind: "Service", Name: "web"},
			"v1:Service:default:web",
		},
		{
			"cluster-scoped", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}",
			deploy.ObjectRef{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "r"},
			"rbac.authorization.k8s.io/v1:ClusterRole:default:r",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := parseOne(t, tt.text).Unstructured
			if diff := cmp.Diff(tt.ref, Ref(u)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if got := ResourceKey(u); got != tt.key {
				t.Errorf("got %s, want %s", got, tt.key)
			}
		})
	}
}

func TestCheckUnique(t *testing.T) {
	objects := parse(t, `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: other}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}}
`)
	if err := CheckUnique(objects); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	before, after := objects[2].Clone(), objects[2].Clone()
	before.Hook.Phase, after.Hook.Phase = HookPre, HookPost
	if err := CheckUnique([]Object{before, after}); err != nil {
		t.Errorf("a hook of two phases: %v", err)
	}
	for _, same := range [][]Object{{before, before}, {before, objects[2]}, {objects[2], after}, {before, after, before}} {
		if err := CheckUnique(same); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("hooks %v: got %v", same, err)
		}
	}
	again := parseOne(t, "\n\n{apiVersion: apps/v1beta1, kind: Deployment, metadata: {name: web}}")
	again.Origin.File = "other.yaml"
	err := CheckUnique(append(objects, again, objects[2]))
	want := "other.yaml:3: Deployment web is declared already at app.yaml:2; an application declares each object once\n" +
		"app.yaml:6: Service web is declared already at app.yaml:6; an application declares each object once"
	if err == nil || err.Error() != want || !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	objects := parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}")
	clone := Clone(objects)
	clone[0].Object["data"].(map[string]any)["k"] = "changed"
	if got := objects[0].Object["data"].(map[string]any)["k"]; got != "v" {
		t.Errorf("got %v, want v", got)
	}
	if clone[0].Origin != objects[0].Origin {
		t.Errorf("got origin %v, want %v", clone[0].Origin, objects[0].Origin)
	}
}

func TestOriginWithoutLine(t *testing.T) {
	if got := (Origin{File: "commit abc"}).String(); got != "commit abc" {
		t.Errorf("got %q", got)
	}
}

func TestAnnotate(t *testing.T) {
	o := parseOne(t, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations: {mine: kept, pipecd.dev/commit-hash: old}
  labels: {app: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}}
`)
	Annotate(o.Unstructured, Ownership{PipedID: "p", ApplicationID: "a", CommitHash: "c", VariantKey: "pipecd.dev/variant", Variant: "primary"})
	want := parseOne(t, `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  annotations:
    mine: kept
    pipecd.dev/managed-by: piped
    pipecd.dev/piped: p
    pipecd.dev/application: a
    pipecd.dev/variant: primary
    pipecd.dev/original-api-version: apps/v1
    pipecd.dev/resource-key: apps/v1:Deployment:default:web
    pipecd.dev/commit-hash: c
  labels: {app: web, pipecd.dev/application: a}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}}
`)
	if diff := cmp.Diff(want.Object, o.Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAnnotateAnObjectWithoutMetadataMaps(t *testing.T) {
	o := parseOne(t, "apiVersion: v1\nkind: Service\nmetadata: {name: web, annotations: , labels: }")
	Annotate(o.Unstructured, Ownership{ApplicationID: "a"})
	if got := o.GetAnnotations()[AnnotationApplication]; got != "a" {
		t.Errorf("got annotation %q, want a", got)
	}
	if _, ok := o.GetAnnotations()[""]; ok {
		t.Error("a variant annotation without a key was written")
	}
	if got := o.GetLabels()[LabelApplication]; got != "a" {
		t.Errorf("got label %q, want a", got)
	}
}
