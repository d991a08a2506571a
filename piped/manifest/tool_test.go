package manifest

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestOtherTool tells marks of other tools apart from those that are copied or left over.
func TestOtherTool(t *testing.T) {
	for name, c := range map[string]struct {
		labels, annotations map[string]string
		manager, sub        string
		want                string
	}{
		"no marks":                         {manager: "kubectl"},
		"tracking ID":                      {annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:web/web"}, want: "Argo CD (Application shop)"},
		"tracking ID of another object":    {annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:web/api"}},
		"label of an instance and manager": {labels: map[string]string{"app.kubernetes.io/instance": "shop"}, manager: "argocd-controller", want: "Argo CD (Application shop)"},
		"label of an instance":             {labels: map[string]string{"app.kubernetes.io/instance": "shop"}, manager: "helm"},
		"manager of Argo CD":               {manager: "argocd-controller", want: "Argo CD"},
		"manager of a status":              {manager: "argocd-controller", sub: "status"},
		"Kustomization": {
			labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "web", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}, want: "Flux (Kustomization flux-system/web)",
		},
		"HelmRelease": {
			labels: map[string]string{"helm.toolkit.fluxcd.io/name": "web", "helm.toolkit.fluxcd.io/namespace": "shop"}, want: "Flux (HelmRelease shop/web)",
		},
		"manager of a Kustomization": {manager: "kustomize-controller", want: "Flux"},
		"manager of a HelmRelease":   {manager: "helm-controller", want: "Flux"},
	} {
		var u unstructured.Unstructured
		u.SetName("web")
		u.SetLabels(c.labels)
		u.SetAnnotations(c.annotations)
		u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: c.manager, Subresource: c.sub, Operation: metav1.ManagedFieldsOperationUpdate}})
		if got := OtherTool(&u); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
