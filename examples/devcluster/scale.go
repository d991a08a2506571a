package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/klog/v2"
)

// How often the autoscalers are reconciled: the annotated ones often enough for
// short flapping periods, the others as the real controller does.
const (
	scaleTick     = 200 * time.Millisecond
	scaleIdleTick = 15 * time.Second
)

// scaleWriter is the horizontal pod autoscaler controller without metrics: an
// annotation says what the metrics would. It is the only one that scales, as
// the real controller is left out of the cluster.
type scaleWriter struct {
	client     kubernetes.Interface
	mapper     *restmapper.DeferredDiscoveryRESTMapper
	scales     scale.ScalesGetter
	hpas       listers.HorizontalPodAutoscalerLister
	reconciled map[string]time.Time // by namespace/name
}

func newScaleWriter(config *rest.Config, client kubernetes.Interface) (*scaleWriter, error) {
	cached := memory.NewMemCacheClient(client.Discovery())
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(cached))
	if err != nil {
		return nil, fmt.Errorf("making a scale client: %w", err)
	}
	return &scaleWriter{client: client, mapper: mapper, scales: scales, reconciled: map[string]time.Time{}}, nil
}

// withInformer makes the writer read the autoscalers from factory.
func (w *scaleWriter) withInformer(factory informers.SharedInformerFactory) *scaleWriter {
	w.hpas = factory.Autoscaling().V2().HorizontalPodAutoscalers().Lister()
	return w
}

// run reconciles the autoscalers until ctx ends.
func (w *scaleWriter) run(ctx context.Context) {
	ticker := time.NewTicker(scaleTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.reconcileAll(ctx, now)
		}
	}
}

// reconcileAll reconciles every autoscaler that is due.
func (w *scaleWriter) reconcileAll(ctx context.Context, now time.Time) {
	all, err := w.hpas.List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Listing the autoscalers")
		return
	}
	for _, hpa := range all {
		key := hpa.Namespace + "/" + hpa.Name
		annotated := hpa.Annotations[scaleToKey] != "" || hpa.Annotations[scaleFlapKey] != ""
		if !annotated && now.Sub(w.reconciled[key]) < scaleIdleTick {
			continue
		}
		w.reconciled[key] = now
		if err := w.reconcile(ctx, hpa.DeepCopy(), now); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Scaling", "autoscaler", key)
			if meta.IsNoMatchError(err) {
				w.mapper.Reset() // the target's kind may be new
			}
		}
	}
}

// reconcile sets the target's scale to what the autoscaler wants.
func (w *scaleWriter) reconcile(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, now time.Time) error {
	ref := hpa.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return fmt.Errorf("reading the scale target: %w", err)
	}
	mapping, err := w.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: ref.Kind}, gv.Version)
	if err != nil {
		return fmt.Errorf("finding the kind of the scale target: %w", err)
	}
	target, err := w.scales.Scales(hpa.Namespace).Get(ctx, mapping.Resource.GroupResource(), ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the scale of %s %s: %w", ref.Kind, ref.Name, err)
	}
	current := target.Spec.Replicas
	desired, err := desiredReplicas(hpa, current, now)
	if err != nil {
		return err
	}
	if desired != current {
		target.Spec.Replicas = desired
		_, err := w.scales.Scales(hpa.Namespace).Update(ctx, mapping.Resource.GroupResource(), target, metav1.UpdateOptions{FieldManager: fieldManager})
		if apierrors.IsConflict(err) {
			return nil // another client wrote; the next tick sees it
		}
		if err != nil {
			return fmt.Errorf("scaling %s %s to %d: %w", ref.Kind, ref.Name, desired, err)
		}
	}
	return w.writeStatus(ctx, hpa, current, desired, now)
}

// desiredReplicas is what metrics would ask for, within the limits. Without an
// annotation that is the present number; a target at zero is switched off.
func desiredReplicas(hpa *autoscalingv2.HorizontalPodAutoscaler, current int32, now time.Time) (int32, error) {
	least := int32(1)
	if hpa.Spec.MinReplicas != nil {
		least = *hpa.Spec.MinReplicas
	}
	desired := current
	if to := hpa.Annotations[scaleToKey]; to != "" {
		n, err := strconv.ParseInt(to, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("reading annotation %s: %w; give a number", scaleToKey, err)
		}
		desired = int32(n)
	} else if flap := hpa.Annotations[scaleFlapKey]; flap != "" {
		var err error
		if desired, err = flapReplicas(flap, now); err != nil {
			return 0, err
		}
	} else if current == 0 && least > 0 {
		return 0, nil
	}
	return min(max(desired, least), hpa.Spec.MaxReplicas), nil
}

// flapReplicas reads "LOW,HIGH,PERIOD": one number for a period, then the other.
func flapReplicas(flap string, now time.Time) (int32, error) {
	var values [2]int64
	parts := strings.Split(flap, ",")
	if len(parts) != 3 {
		return 0, fmt.Errorf("annotation %s is %q; give two numbers and a period, like 2,5,1s", scaleFlapKey, flap)
	}
	for i := range values {
		var err error
		if values[i], err = strconv.ParseInt(strings.TrimSpace(parts[i]), 10, 32); err != nil {
			return 0, fmt.Errorf("reading annotation %s: %w; give two numbers and a period, like 2,5,1s", scaleFlapKey, err)
		}
	}
	period, err := time.ParseDuration(strings.TrimSpace(parts[2]))
	if err != nil || period <= 0 {
		return 0, fmt.Errorf("annotation %s has the period %q; give one like 1s", scaleFlapKey, parts[2])
	}
	return int32(values[now.UnixNano()/int64(period)%2]), nil
}

// writeStatus writes what the controller would, when it differs.
func (w *scaleWriter) writeStatus(ctx context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, current, desired int32, now time.Time) error {
	st := &hpa.Status
	if len(st.Conditions) > 0 && st.CurrentReplicas == current && st.DesiredReplicas == desired &&
		st.ObservedGeneration != nil && *st.ObservedGeneration == hpa.Generation {
		return nil
	}
	stamp := metav1.NewTime(now)
	if current != desired {
		st.LastScaleTime = &stamp
	}
	st.CurrentReplicas, st.DesiredReplicas, st.ObservedGeneration = current, desired, &hpa.Generation
	if len(st.Conditions) == 0 {
		st.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{
			{Type: autoscalingv2.AbleToScale, Status: corev1.ConditionTrue, LastTransitionTime: stamp, Reason: "ReadyForNewScale", Message: "recommended size matches current size"},
			{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionTrue, LastTransitionTime: stamp, Reason: "ValidMetricFound", Message: "the HPA was able to compute the replica count"},
			{Type: autoscalingv2.ScalingLimited, Status: corev1.ConditionFalse, LastTransitionTime: stamp, Reason: "DesiredWithinRange", Message: "the desired count is within the acceptable range"},
		}
	}
	_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(hpa.Namespace).UpdateStatus(ctx, hpa, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the autoscaler's status: %w", err)
	}
	return nil
}
