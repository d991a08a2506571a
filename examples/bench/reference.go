package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// reference does with client-go what the agent's figures are held against.
type reference struct {
	dynamic dynamic.Interface
	typed   kubernetes.Interface
}

func newReference(kubeconfig string) (*reference, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	r := &reference{}
	if r.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	r.typed, err = clientOf(kubeconfig)
	return r, err
}

// resources are those of the kinds in the fleets, and the types behind them.
var resources = map[string]struct {
	schema.GroupVersionResource
	level int
	typed any
}{
	"ServiceAccount": {corev1.SchemeGroupVersion.WithResource("serviceaccounts"), 0, corev1.ServiceAccount{}},
	"ConfigMap":      {corev1.SchemeGroupVersion.WithResource("configmaps"), 1, corev1.ConfigMap{}},
	"Service":        {corev1.SchemeGroupVersion.WithResource("services"), 1, corev1.Service{}},
	"Deployment":     {appsv1.SchemeGroupVersion.WithResource("deployments"), 2, appsv1.Deployment{}},
}

func (r *reference) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	return r.dynamic.Resource(resources[u.GetKind()].GroupVersionResource).Namespace(u.GetNamespace())
}

// kubectl applies all objects as `kubectl apply -f` does, one after the other:
// a GET, then a POST, or a PATCH if there is anything to change. It returns how
// long it took until all rollouts were complete.
func (r *reference) kubectl(ctx context.Context, f fleet, tag string) (time.Duration, error) {
	all, err := f.objects(tag)
	if err != nil {
		return 0, err
	}
	w, err := watchRollouts(ctx, r.typed, f.namespace, tag, f.count)
	if err != nil {
		return 0, err
	}
	defer w.close()
	began := time.Now()
	for _, objects := range all {
		for _, u := range objects {
			if err := r.kubectlApply(ctx, u); err != nil {
				return 0, fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
			}
		}
	}
	err = w.wait(ctx)
	return time.Since(began), err
}

// kubectlApply applies one object by a three-way patch.
func (r *reference) kubectlApply(ctx context.Context, u *unstructured.Unstructured) error {
	modified, err := json.Marshal(u)
	if err != nil {
		return err
	}
	u = u.DeepCopy()
	u.SetAnnotations(map[string]string{corev1.LastAppliedConfigAnnotation: string(modified)})
	if modified, err = json.Marshal(u); err != nil {
		return err
	}
	live, err := r.of(u).Get(ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = r.of(u).Create(ctx, u, metav1.CreateOptions{FieldManager: "kubectl-client-side-apply"})
		return err
	}
	if err != nil {
		return err
	}
	current, err := json.Marshal(live)
	if err != nil {
		return err
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(resources[u.GetKind()].typed)
	if err != nil {
		return err
	}
	original := []byte(live.GetAnnotations()[corev1.LastAppliedConfigAnnotation])
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, modified, current, meta, true)
	if err != nil || string(patch) == "{}" {
		return err
	}
	_, err = r.of(u).Patch(ctx, u.GetName(), types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-client-side-apply"})
	return err
}

// loop dry-runs and applies the objects of all applications, as many at once and
// level by level as the agent does, and confirms the end of each rollout by
// reading it. It returns how long that took. Only objects of the kinds are sent:
// the agent does not send others, which did not change. Plain leaves out the dry
// runs and the reads.
func (r *reference) loop(ctx context.Context, f fleet, tag string, kinds []string, plain bool) (time.Duration, error) {
	all, err := f.objects(tag)
	if err != nil {
		return 0, err
	}
	for i := range all {
		all[i] = slices.DeleteFunc(all[i], func(u *unstructured.Unstructured) bool { return !slices.Contains(kinds, u.GetKind()) })
	}
	w, err := watchRollouts(ctx, r.typed, f.namespace, tag, f.count)
	if err != nil {
		return 0, err
	}
	defer w.close()
	began := time.Now()
	group, gctx := errgroup.WithContext(ctx)
	for i, objects := range all {
		group.Go(func() error {
			if plain {
				return r.applyLevels(gctx, objects)
			}
			if err := r.applyAll(gctx, objects, metav1.DryRunAll); err != nil {
				return err
			}
			if err := r.applyLevels(gctx, objects); err != nil {
				return err
			}
			if err := w.waitFor(gctx, f.name(i)); err != nil {
				return err
			}
			return r.confirm(gctx, f.namespace, f.name(i))
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	err = w.wait(ctx)
	return time.Since(began), err
}

// applyAll applies objects at once.
func (r *reference) applyAll(ctx context.Context, objects []*unstructured.Unstructured, dryRun ...string) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, u := range objects {
		group.Go(func() error {
			_, err := r.of(u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "loop", Force: true, DryRun: dryRun})
			return err
		})
	}
	return group.Wait()
}

// applyLevels applies objects in the order of what needs what.
func (r *reference) applyLevels(ctx context.Context, objects []*unstructured.Unstructured) error {
	for level := range 3 {
		var at []*unstructured.Unstructured
		for _, u := range objects {
			if resources[u.GetKind()].level == level {
				at = append(at, u)
			}
		}
		if err := r.applyAll(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// confirm reads a Deployment and its ReplicaSets.
func (r *reference) confirm(ctx context.Context, namespace, name string) error {
	if _, err := r.dynamic.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	_, err := r.dynamic.Resource(appsv1.SchemeGroupVersion.WithResource("replicasets")).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	return err
}
