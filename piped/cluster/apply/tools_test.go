package apply

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/manifest"
)

// asTool creates or applies the objects of the manifests as another tool does, with the marks
// by which it knows them.
func (l *env) asTool(t *testing.T, manager string, serverSide bool, manifests string, mark func(*unstructured.Unstructured)) {
	t.Helper()
	objs, err := l.Resolve(context.Background(), parse(t, "live.yaml", manifests), l.ns, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objs {
		mark(o.Unstructured)
		resource, err := l.Resource(context.Background(), o.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		client := l.ResourceClient(resource, o.GetNamespace())
		if serverSide {
			_, err = client.Apply(context.Background(), o.GetName(), o.Unstructured, metav1.ApplyOptions{FieldManager: manager, Force: true})
		} else {
			_, err = client.Create(context.Background(), o.Unstructured, metav1.CreateOptions{FieldManager: manager})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// tools are the ways in which other tools apply objects and know them.
func tools(ns string) map[string]struct {
	manager    string
	serverSide bool
	mark       func(*unstructured.Unstructured)
	want       string
} {
	label := func(pairs map[string]string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) { u.SetLabels(pairs) }
	}
	type tool = struct {
		manager    string
		serverSide bool
		mark       func(*unstructured.Unstructured)
		want       string
	}
	tracking := func(u *unstructured.Unstructured) {
		group := u.GroupVersionKind().Group
		u.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "shop:" + group + "/" + u.GetKind() + ":" + ns + "/" + u.GetName(), "kubectl.kubernetes.io/last-applied-configuration": "{}"})
	}
	return map[string]tool{
		"Argo CD":             {"argocd-controller", false, tracking, "Argo CD (Application shop)"},
		"Argo CD server-side": {"argocd-controller", true, tracking, "Argo CD (Application shop)"},
		"Argo CD with labels": {"argocd-controller", false, label(map[string]string{"app.kubernetes.io/instance": "shop"}), "Argo CD (Application shop)"},
		"Kustomization": {"kustomize-controller", true, label(map[string]string{"kustomize.toolkit.fluxcd.io/name": "web", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}),
			"Flux (Kustomization flux-system/web)"},
		"HelmRelease": {"helm-controller", false, label(map[string]string{"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "shop", "app.kubernetes.io/managed-by": "Helm"}),
			"Flux (HelmRelease shop/web)"},
	}
}

// TestObjectsOfOtherToolsAreAdopted: the first apply takes the fields of Argo CD and Flux over,
// removes their marks, changes nothing else and warns. Later applies do not warn, and remove what
// is no longer in Git.
func TestObjectsOfOtherToolsAreAdopted(t *testing.T) {
	for name := range tools("") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			tool := tools(l.ns)[name]
			l.asTool(t, tool.manager, tool.serverSide, everyKind, tool.mark)
			for _, o := range l.foreign(t, everyKind) {
				if o.Changes {
					t.Errorf("taking over is said to change %s", o.Object)
				}
			}
			before := l.get(t, "Deployment", "web")
			l.apply(t, everyKind)
			after := l.get(t, "Deployment", "web")
			if diff := cmp.Diff(before.Object["spec"], after.Object["spec"]); diff != "" {
				t.Errorf("the Deployment is changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]string{"pipecd.dev/application": "app-1"}, after.GetLabels()); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			if left := manifest.OtherTool(after); left != "" || after.GetAnnotations()["argocd.argoproj.io/tracking-id"] != "" || after.GetAnnotations()["kubectl.kubernetes.io/last-applied-configuration"] != "" {
				t.Errorf("marks are left: %s, %v, %v", left, after.GetAnnotations(), managersOf(after))
			}
			warnings := func() (n int) {
				for _, line := range l.logged() {
					if strings.Contains(line, "warning: "+tool.want+" manages 4 of the objects, too: ") {
						n++
					}
				}
				return n
			}
			if warnings() != 1 {
				t.Errorf("expected one warning about %s:\n%s", tool.want, strings.Join(l.logged(), "\n"))
			}
			l.apply(t, strings.Replace(everyKind, `data: {a: "1"}`, `data: {b: "1"}`, 1))
			if data, _, _ := unstructured.NestedStringMap(l.get(t, "ConfigMap", "c").Object, "data"); !cmp.Equal(map[string]string{"b": "1"}, data) {
				t.Errorf("what is no longer in Git is left: %v", data)
			}
			if slices.ContainsFunc(l.logged(), func(line string) bool { return strings.Contains(line, "warning: ") }) && warnings() != 1 {
				t.Errorf("it warns again:\n%s", strings.Join(l.logged(), "\n"))
			}
		})
	}
}
