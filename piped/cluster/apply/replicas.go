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

// controllerManager is the field manager of Kubernetes' own controllers, the
// horizontal pod autoscaler among them.
const controllerManager = "kube-controller-manager"

// scaleTarget names what an autoscaler scales, in its own namespace.
type scaleTarget struct {
	kind      schema.GroupKind
	namespace string
	name      string
}

func scaleTargetOf(u *unstructured.Unstructured) scaleTarget {
	return scaleTarget{kind: u.GroupVersionKind().GroupKind(), namespace: u.GetNamespace(), name: u.GetName()}
}

// scaledBySet returns what the HorizontalPodAutoscalers among objects scale, and
// KEDA's ScaledObjects, which make such autoscalers: those cannot scale to nothing, and
// what KEDA writes then has no owner.
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

// Autoscaled returns how many pods those workloads among objects have, by
// deploy.ObjectRef.Key, that are live and that an autoscaler scales, one among
// objects or one that is live.
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

// decideReplicas sets or removes spec.replicas of a workload that is applied over live. Once
// an autoscaler owns the field, it is removed. While only the agent owns it, the live value
// is applied instead, because a removed field would be reset to 1; this also holds if Git
// has left the field to the autoscaler already.
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

// applyLiveReplicas sets the live number of replicas if an autoscaler, in the set or live,
// scales the workload.
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

// ownsReplicas reports whether spec.replicas is ours, or kubectl's and so becomes
// ours: leaving the field out would take it away.
func ownsReplicas(fields []metav1.ManagedFieldsEntry) bool {
	managers := clientSideManagers()
	return slices.ContainsFunc(fields, func(e metav1.ManagedFieldsEntry) bool {
		clientSide := managers.Has(e.Manager) && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == ""
		return (isOurs(e) || clientSide) && holdsReplicas(e)
	})
}

// holdsReplicas reports whether spec.replicas is among the fields of an entry.
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

// replicasOwner returns the controller that owns spec.replicas, "" for none. A user's
// `kubectl scale` is no controller: Git overrides it.
func replicasOwner(fields []metav1.ManagedFieldsEntry) string {
	for _, e := range fields {
		scaler := e.Subresource == "scale" || e.Manager == controllerManager
		if scaler && !strings.HasPrefix(e.Manager, "kubectl") && holdsReplicas(e) {
			return e.Manager
		}
	}
	return ""
}

// hasAutoscaler reports whether a live autoscaler scales target. The owner of the field does
// not show it, because the field remains owned after an autoscaler is removed. Without the
// right to list autoscalers the answer is true.
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
