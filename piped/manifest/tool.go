package manifest

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Field managers of other GitOps tools.
const (
	managerArgoCD    = "argocd-controller"
	managerKustomize = "kustomize-controller"
	managerHelm      = "helm-controller"
)

// Labels and annotations by which other GitOps tools know their objects.
const (
	argoTracking  = "argocd.argoproj.io/tracking-id"
	argoInstance  = "app.kubernetes.io/instance"
	fluxKustomize = "kustomize.toolkit.fluxcd.io/"
	fluxHelm      = "helm.toolkit.fluxcd.io/"
	helmManaged   = "app.kubernetes.io/managed-by"
)

// IsToolManager reports whether a field manager is that of Argo CD or Flux.
func IsToolManager(manager string) bool {
	return manager == managerArgoCD || manager == managerKustomize || manager == managerHelm
}

// OtherTool names the other GitOps tool that manages a live object, and its application; "" for
// none. Marks that were copied from another object do not count.
func OtherTool(live metav1.Object) string {
	labels := live.GetLabels()
	if app, object, ok := strings.Cut(live.GetAnnotations()[argoTracking], ":"); ok && strings.HasSuffix(object, "/"+live.GetName()) {
		return "Argo CD (Application " + app + ")"
	}
	for kind, prefix := range map[string]string{"Kustomization": fluxKustomize, "HelmRelease": fluxHelm} {
		if name := labels[prefix+"name"]; name != "" {
			return "Flux (" + kind + " " + labels[prefix+"namespace"] + "/" + name + ")"
		}
	}
	switch {
	case managedBy(live, managerArgoCD) && labels[argoInstance] != "":
		return "Argo CD (Application " + labels[argoInstance] + ")"
	case managedBy(live, managerArgoCD):
		return "Argo CD"
	case managedBy(live, managerKustomize), managedBy(live, managerHelm):
		return "Flux"
	}
	return ""
}

// managedBy reports whether a field manager owns fields of an object other than its status.
func managedBy(live metav1.Object, manager string) bool {
	return slices.ContainsFunc(live.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager && e.Subresource == "" })
}

// IsToolLabel reports whether a label of a live object is a mark of another GitOps tool, which
// the object loses when the agent takes it over, unless Git has it.
func IsToolLabel(live metav1.Object, key string) bool {
	switch key {
	case argoInstance:
		return managedBy(live, managerArgoCD)
	case helmManaged:
		return managedBy(live, managerHelm)
	}
	return strings.HasPrefix(key, fluxKustomize) || strings.HasPrefix(key, fluxHelm)
}
