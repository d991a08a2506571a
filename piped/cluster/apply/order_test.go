package apply

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOrderOfApplying(t *testing.T) {
	shuffled := []string{
		"ValidatingWebhookConfiguration.admissionregistration.k8s.io", "Deployment.apps", "HTTPRoute.gateway.networking.k8s.io", "Service",
		"Widget.example.com", "RoleBinding.rbac.authorization.k8s.io", "Namespace", "Secret", "HorizontalPodAutoscaler.autoscaling",
		"Role.rbac.authorization.k8s.io", "CustomResourceDefinition.apiextensions.k8s.io", "StorageClass.storage.k8s.io", "Ingress.networking.k8s.io",
		"APIService.apiregistration.k8s.io", "ServiceAccount", "PodDisruptionBudget.policy", "Gateway.gateway.networking.k8s.io", "Pod",
		"MutatingWebhookConfiguration.admissionregistration.k8s.io", "PersistentVolumeClaim",
	}
	want := [][]string{
		{"Namespace", "CustomResourceDefinition.apiextensions.k8s.io"},
		{"Role.rbac.authorization.k8s.io", "StorageClass.storage.k8s.io", "ServiceAccount"},
		{"RoleBinding.rbac.authorization.k8s.io"},
		{"Service", "Secret", "PersistentVolumeClaim"},
		{"Deployment.apps", "Widget.example.com", "HorizontalPodAutoscaler.autoscaling", "PodDisruptionBudget.policy", "Gateway.gateway.networking.k8s.io", "Pod"},
		{"HTTPRoute.gateway.networking.k8s.io", "Ingress.networking.k8s.io", "APIService.apiregistration.k8s.io"},
		{"ValidatingWebhookConfiguration.admissionregistration.k8s.io", "MutatingWebhookConfiguration.admissionregistration.k8s.io"},
	}
	if diff := cmp.Diff(want, byLevel(shuffled, schema.ParseGroupKind)); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
	if got := byLevel(nil, schema.ParseGroupKind); len(got) != 0 {
		t.Errorf("levels of nothing: %v", got)
	}
}
