package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func testScale(t *testing.T, c *testCluster) {
	deploy(t, c, "scaled", "web:v1", nil)
	hpas := c.client.AutoscalingV2().HorizontalPodAutoscalers("default")
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "scaled", Annotations: map[string]string{prefix + "scale-to": "3"}},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "scaled"},
			MaxReplicas:    4,
		},
	}
	if _, err := hpas.Create(t.Context(), hpa, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	available(t, c, "scaled", 3)
	annotate := func(notes map[string]any) {
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hpas.Patch(t.Context(), "scaled", types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	annotate(map[string]any{prefix + "scale-to": "9"})
	available(t, c, "scaled", 4)
	d, err := c.client.AppsV1().Deployments("default").Get(t.Context(), "scaled", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	managers := map[string]bool{}
	for _, m := range d.ManagedFields {
		managers[m.Manager+"/"+m.Subresource] = true
	}
	if !managers["kube-controller-manager/scale"] {
		t.Errorf("the scale is managed by %v, want kube-controller-manager through scale", managers)
	}
	annotate(map[string]any{prefix + "scale-to": nil, prefix + "scale-flap": "1,2,500ms"})
	for _, want := range []int32{1, 2, 1} {
		eventually(t, func(ctx context.Context) error {
			s, err := c.client.AppsV1().Deployments("default").GetScale(ctx, "scaled", metav1.GetOptions{})
			if err == nil && s.Spec.Replicas != want {
				err = fmt.Errorf("scaled to %d, want %d", s.Spec.Replicas, want)
			}
			return err
		})
	}
}

const routeCRD = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {
    "name": "httproutes.gateway.networking.k8s.io",
    "annotations": {"api-approved.kubernetes.io": "unapproved, a minimal copy for a test"}
  },
  "spec": {
    "group": "gateway.networking.k8s.io", "scope": "Namespaced",
    "names": {"kind": "HTTPRoute", "listKind": "HTTPRouteList", "plural": "httproutes", "singular": "httproute"},
    "versions": [{
      "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
      "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
    }]
  }
}`

const route = `{
  "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "web"},
  "spec": {"parentRefs": [{"name": "outer"}, {"name": "inner"}]}
}`

func testRoutes(t *testing.T, c *testCluster) {
	parse := func(raw string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON([]byte(raw)); err != nil {
			t.Fatal(err)
		}
		return obj
	}
	crds := c.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Create(t.Context(), parse(routeCRD), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	routes := c.dynamic.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}).Namespace("default")
	eventually(t, func(ctx context.Context) error {
		_, err := routes.Create(ctx, parse(route), metav1.CreateOptions{})
		return err
	})
	says := func(accepted string, behind int64) {
		t.Helper()
		eventually(t, func(ctx context.Context) error {
			obj, err := routes.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			return routeSays(obj, accepted, obj.GetGeneration()-behind)
		})
	}
	patch := func(raw string) {
		t.Helper()
		if _, err := routes.Patch(t.Context(), "web", types.MergePatchType, []byte(raw), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says("True", 0)
	patch(`{"metadata": {"annotations": {"devcluster.piped.dev/route-status": "reject"}}}`)
	says("False", 0)
	patch(`{"metadata": {"annotations": {"devcluster.piped.dev/route-status": "stale"}}, "spec": {"hostnames": ["a.example"]}}`)
	says("True", 1)
	patch(`{"metadata": {"annotations": {"devcluster.piped.dev/route-status": "accept", "devcluster.piped.dev/route-status-delay": "1h"}}, "spec": {"hostnames": ["b.example"]}}`)
	says("True", 2)
	patch(`{"metadata": {"annotations": {"devcluster.piped.dev/route-status": "reject", "devcluster.piped.dev/route-status-delay": "1s"}}}`)
	says("False", 0)
}

// routeSays checks the Accepted condition of both parents.
func routeSays(obj *unstructured.Unstructured, accepted string, generation int64) error {
	parents, _, err := unstructured.NestedSlice(obj.Object, "status", "parents")
	if err != nil {
		return err
	}
	if len(parents) != 2 {
		return fmt.Errorf("%d parents answered, want 2", len(parents))
	}
	for _, p := range parents {
		conditions, _, err := unstructured.NestedSlice(p.(map[string]any), "conditions")
		if err != nil {
			return err
		}
		first := conditions[0].(map[string]any)
		if first["type"] != "Accepted" || first["status"] != accepted || first["observedGeneration"] != generation {
			return fmt.Errorf("the answer is %v, want Accepted %s at generation %d", first, accepted, generation)
		}
	}
	return nil
}
