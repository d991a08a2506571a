package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/manifest"
)

// controllerManager is the field manager of Kubernetes' own controllers, such as the
// horizontal pod autoscaler.
const controllerManager = "kube-controller-manager"

// scaleTarget identifies an object that an autoscaler in the same namespace scales.
type scaleTarget struct {
	kind      schema.GroupKind
	namespace string
	name      string
}

func scaleTargetOf(u *unstructured.Unstructured) scaleTarget {
	return scaleTarget{kind: u.GroupVersionKind().GroupKind(), namespace: u.GetNamespace(), name: u.GetName()}
}

// scaledBySet returns the objects that the HorizontalPodAutoscalers and KEDA's ScaledObjects
// among objects scale. KEDA creates HorizontalPodAutoscalers, but scales to zero itself, which
// leaves no owner of the replicas.
func scaledBySet(objects []*unstructured.Unstructured) map[scaleTarget]bool {
	targets := map[scaleTarget]bool{}
	for _, u := range objects {
		keda := u.GetKind() == "ScaledObject" && strings.HasPrefix(u.GetAPIVersion(), "keda.sh/")
		if u.GetKind() != "HorizontalPodAutoscaler" && !keda {
			continue
		}
		ref := map[string]string{}
		for _, key := range []string{"apiVersion", "kind", "name"} {
			ref[key], _, _ = unstructured.NestedString(u.Object, "spec", "scaleTargetRef", key)
		}
		if keda {
			ref["apiVersion"], ref["kind"] = cmp.Or(ref["apiVersion"], "apps/v1"), cmp.Or(ref["kind"], "Deployment")
		}
		gv, err := schema.ParseGroupVersion(ref["apiVersion"])
		if err != nil {
			continue // the API server refuses it with a better message
		}
		targets[scaleTarget{kind: gv.WithKind(ref["kind"]).GroupKind(), namespace: u.GetNamespace(), name: ref["name"]}] = true
	}
	return targets
}

// Autoscaled returns the live spec.replicas, by deploy.ObjectRef.Key, of the existing
// workloads among objects that an autoscaler scales. The autoscaler may be live or among
// objects.
func (c *Client) Autoscaled(ctx context.Context, objects []manifest.Object) (map[string]int32, error) {
	workloads, err := c.Workloads(ctx, objects)
	if err != nil {
		return nil, err
	}
	var set []*unstructured.Unstructured
	for _, o := range objects {
		set = append(set, o.Unstructured)
	}
	inSet, pods := scaledBySet(set), map[string]int32{}
	for key, live := range workloads {
		target, scaled := scaleTargetOf(live), false
		err := c.Retry(ctx, nil, func(ctx context.Context) (err error) {
			scaled, err = c.hasAutoscaler(ctx, target)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look for an autoscaler of %s %s: %w", live.GetKind(), live.GetName(), c.Classify(err))
		}
		if n, found, _ := unstructured.NestedInt64(live.Object, "spec", "replicas"); found && (scaled || inSet[target]) {
			pods[key] = int32(n)
		}
	}
	return pods, nil
}

// decideReplicas sets or removes spec.replicas in desired, which is applied over live, if an
// autoscaler scales the object. InSet are the objects that autoscalers of the set scale. If an
// autoscaler owns the field, decideReplicas removes it. If only the agent owns it, it sets the
// live value, even if Git no longer has the field, because the API server would reset a field
// without an owner to 1. It changes nothing if live is nil.
func (c *Client) decideReplicas(ctx context.Context, desired, live *unstructured.Unstructured, inSet map[scaleTarget]bool) error {
	if live == nil {
		return nil
	}
	target := scaleTargetOf(desired)
	owner := replicasOwner(live.GetManagedFields())
	if _, found, _ := unstructured.NestedFieldNoCopy(desired.Object, "spec", "replicas"); !found {
		if owner != "" || !ownsReplicas(live.GetManagedFields()) {
			return nil
		}
		return c.applyLiveReplicas(ctx, desired, live, inSet[target])
	}
	switch {
	case owner == controllerManager && !inSet[target]:
		scaled, err := c.hasAutoscaler(ctx, target)
		if err != nil {
			return err
		}
		if scaled {
			unstructured.RemoveNestedField(desired.Object, "spec", "replicas")
		}
	case owner != "":
		unstructured.RemoveNestedField(desired.Object, "spec", "replicas")
	case inSet[target]:
		return c.applyLiveReplicas(ctx, desired, live, true)
	}
	return nil
}

// applyLiveReplicas sets spec.replicas in desired to the live value if an autoscaler of the
// set (inSet) or a live one scales the object.
func (c *Client) applyLiveReplicas(ctx context.Context, desired, live *unstructured.Unstructured, inSet bool) error {
	n, found, _ := unstructured.NestedInt64(live.Object, "spec", "replicas")
	if !found {
		return nil
	}
	if !inSet {
		if scaled, err := c.hasAutoscaler(ctx, scaleTargetOf(desired)); err != nil || !scaled {
			return err
		}
	}
	return unstructured.SetNestedField(desired.Object, n, "spec", "replicas")
}

// ownsReplicas reports whether the agent owns spec.replicas, or inherits it. An apply without the field would then reset it.
func ownsReplicas(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(e metav1.ManagedFieldsEntry) bool { return (isOurs(e) || inherited(e)) && holdsReplicas(e) })
}

// holdsReplicas reports whether an entry of managed fields contains spec.replicas.
func holdsReplicas(e metav1.ManagedFieldsEntry) bool {
	var owned struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if e.FieldsV1 == nil || json.Unmarshal(e.FieldsV1.GetRawBytes(), &owned) != nil {
		return false
	}
	_, ok := owned.Spec["f:replicas"]
	return ok
}

// replicasOwner returns the field manager of the autoscaler or controller that owns
// spec.replicas, "" for none. It does not return kubectl: Git overrides `kubectl scale`.
func replicasOwner(fields []metav1.ManagedFieldsEntry) string {
	for _, e := range fields {
		scaler := e.Subresource == "scale" || e.Manager == controllerManager
		if scaler && !strings.HasPrefix(e.Manager, "kubectl") && holdsReplicas(e) {
			return e.Manager
		}
	}
	return ""
}

// hasAutoscaler reports whether a live HorizontalPodAutoscaler scales target. The owner of
// spec.replicas does not show it, because it remains after the autoscaler is deleted. Without
// the permission to list autoscalers, hasAutoscaler returns true.
func (c *Client) hasAutoscaler(ctx context.Context, target scaleTarget) (bool, error) {
	list, err := c.Typed().AutoscalingV1().HorizontalPodAutoscalers(target.namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, hpa := range list.Items {
		ref := hpa.Spec.ScaleTargetRef
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && ref.Name == target.name && gv.WithKind(ref.Kind).GroupKind() == target.kind {
			return true, nil
		}
	}
	return false, nil
}
