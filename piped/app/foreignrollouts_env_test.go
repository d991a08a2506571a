package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// foreignEnv is a namespace with workloads that belong to no application, and the functions
// by which other tools change them at random.
type foreignEnv struct {
	namespace string
	kube      kubernetes.Interface
	random    *rand.Rand
	targets   []*foreignTarget
	tags      int // how many images were made
}

// foreignTarget is one workload, whether it exists at present or not.
type foreignTarget struct {
	name, kind string
	delay      string // until a pod is ready
	strategy   appsv1.DeploymentStrategyType
	history    int32 // of revisions
	minReady   int32 // in seconds
	images     []string
}

// foreignTargets returns workloads of all kinds and shapes in turn.
func foreignTargets(n int) (targets []*foreignTarget) {
	shapes := []foreignTarget{
		{kind: "Deployment", strategy: appsv1.RollingUpdateDeploymentStrategyType, history: 10},
		{kind: "StatefulSet", history: 10},
		{kind: "Deployment", strategy: appsv1.RollingUpdateDeploymentStrategyType, history: 2, delay: "1s"},
		{kind: "DaemonSet", history: 10},
		{kind: "Deployment", strategy: appsv1.RecreateDeploymentStrategyType, history: 10},
		{kind: "Deployment", strategy: appsv1.RollingUpdateDeploymentStrategyType, history: 10, minReady: 1},
		{kind: "StatefulSet", history: 2, delay: "1s"},
	}
	for i := range n {
		f := shapes[i%len(shapes)]
		f.name = fmt.Sprintf("%s-%02d", strings.ToLower(f.kind), i)
		targets = append(targets, &f)
	}
	return targets
}

// image returns a new image, whose pods become ready, or do not.
func (w *foreignEnv) image(sound bool) string {
	w.tags++
	if sound {
		return fmt.Sprintf("registry.example/c:v%d", w.tags)
	}
	return fmt.Sprintf("registry.example/c:v%d-%s", w.tags, []string{"never-ready", "does-not-exist", "crash"}[w.random.IntN(3)])
}

// soundImage reports whether the pods of an image become ready.
func soundImage(image string) bool { return !strings.Contains(image, "-") }

// create creates a workload that does not exist. It does nothing while one is being deleted.
func (w *foreignEnv) create(ctx context.Context, f *foreignTarget, replicas int32) error {
	image := w.image(true)
	labels := map[string]string{"app": f.name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)), Containers: []corev1.Container{{Name: "c", Image: image}},
	}}
	if f.delay != "" {
		template.Annotations = map[string]string{"devcluster.piped.dev/ready-delay": f.delay}
	}
	meta, selector := metav1.ObjectMeta{Name: f.name}, &metav1.LabelSelector{MatchLabels: labels}
	by := metav1.CreateOptions{FieldManager: "helm"}
	var err error
	switch apps := w.kube.AppsV1(); f.kind {
	case "Deployment":
		_, err = apps.Deployments(w.namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: selector, Template: template, RevisionHistoryLimit: &f.history, MinReadySeconds: f.minReady,
			ProgressDeadlineSeconds: deadlineOf(image), Strategy: appsv1.DeploymentStrategy{Type: f.strategy},
		}}, by)
	case "StatefulSet":
		_, err = apps.StatefulSets(w.namespace).Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: selector, Template: template, RevisionHistoryLimit: &f.history,
		}}, by)
	case "DaemonSet":
		_, err = apps.DaemonSets(w.namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{
			Selector: selector, Template: template, RevisionHistoryLimit: &f.history,
		}}, by)
	}
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	f.images = append(f.images, image)
	return err
}

// deadlineOf returns the progress deadline of a Deployment: short if it is meant to fail.
func deadlineOf(image string) *int32 {
	if soundImage(image) {
		return new(int32(120))
	}
	return new(int32(2))
}

// edit updates a workload as a tool does that reads it first. paused is nil unless it is a
// Deployment. A workload that does not exist is left alone.
func (w *foreignEnv) edit(ctx context.Context, f *foreignTarget, manager string, change func(o metav1.Object, t *corev1.PodTemplateSpec, paused *bool)) error {
	by := metav1.UpdateOptions{FieldManager: manager}
	err := retry.RetryOnConflict(wait.Backoff{Steps: 1000, Duration: 10 * time.Millisecond}, func() error {
		switch apps := w.kube.AppsV1(); f.kind {
		case "Deployment":
			d, err := apps.Deployments(w.namespace).Get(ctx, f.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(d, &d.Spec.Template, &d.Spec.Paused)
			d.Spec.ProgressDeadlineSeconds = deadlineOf(d.Spec.Template.Spec.Containers[0].Image)
			_, err = apps.Deployments(w.namespace).Update(ctx, d, by)
			return err
		case "StatefulSet":
			s, err := apps.StatefulSets(w.namespace).Get(ctx, f.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(s, &s.Spec.Template, nil)
			_, err = apps.StatefulSets(w.namespace).Update(ctx, s, by)
			return err
		default:
			d, err := apps.DaemonSets(w.namespace).Get(ctx, f.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			change(d, &d.Spec.Template, nil)
			_, err = apps.DaemonSets(w.namespace).Update(ctx, d, by)
			return err
		}
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// setImage changes the image. A StatefulSet replaces no pod while one is not ready: the pods
// of the images that are meant to fail are deleted, as its operator has to.
func (w *foreignEnv) setImage(ctx context.Context, f *foreignTarget, manager, image string) error {
	err := w.edit(ctx, f, manager, func(_ metav1.Object, t *corev1.PodTemplateSpec, _ *bool) { t.Spec.Containers[0].Image = image })
	if err != nil || f.kind != "StatefulSet" {
		return err
	}
	pods, err := w.kube.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + f.name})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if at := pod.Spec.Containers[0].Image; at == image || soundImage(at) {
			continue
		}
		if err := w.kube.CoreV1().Pods(w.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// act changes a workload at random.
func (w *foreignEnv) act(ctx context.Context) error {
	f := w.targets[w.random.IntN(len(w.targets))]
	managers := []string{"helm", "kubectl-set", "argocd-controller"}
	manager := managers[w.random.IntN(len(managers))]
	switch chance := w.random.IntN(100); {
	case chance < 36 || chance < 48 && len(f.images) < 2:
		image := w.image(true)
		f.images = append(f.images, image)
		return w.setImage(ctx, f, manager, image)
	case chance < 48:
		return w.setImage(ctx, f, "kubectl-rollout", f.images[w.random.IntN(len(f.images))])
	case chance < 56:
		return w.setImage(ctx, f, manager, w.image(false))
	case chance < 62:
		w.tags++
		at := fmt.Sprint(w.tags)
		return w.edit(ctx, f, "kubectl-rollout", func(_ metav1.Object, t *corev1.PodTemplateSpec, _ *bool) {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, kubernetesRestartedAt, at)
		})
	case chance < 78:
		return w.scale(ctx, f)
	case chance < 82: // which raises the generation of a Deployment
		value := fmt.Sprint(w.random.Int())
		return w.edit(ctx, f, "kubectl-annotate", func(o metav1.Object, _ *corev1.PodTemplateSpec, _ *bool) {
			annotations := o.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations["example.com/note"] = value
			o.SetAnnotations(annotations)
		})
	case chance < 86: // the update of a controller that resyncs
		return w.edit(ctx, f, "helm", func(metav1.Object, *corev1.PodTemplateSpec, *bool) {})
	case chance < 92:
		return w.edit(ctx, f, "kubectl-rollout", func(_ metav1.Object, _ *corev1.PodTemplateSpec, paused *bool) {
			if paused != nil {
				*paused = !*paused
			}
		})
	case chance < 95:
		return w.remove(ctx, f)
	default:
		return w.create(ctx, f, 1+w.random.Int32N(3))
	}
}

// scale scales a workload as an autoscaler does.
func (w *foreignEnv) scale(ctx context.Context, f *foreignTarget) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, 1+w.random.IntN(4))
	by := metav1.PatchOptions{FieldManager: "kube-controller-manager"}
	var err error
	switch apps := w.kube.AppsV1(); f.kind {
	case "Deployment":
		_, err = apps.Deployments(w.namespace).Patch(ctx, f.name, types.MergePatchType, patch, by, "scale")
	case "StatefulSet":
		_, err = apps.StatefulSets(w.namespace).Patch(ctx, f.name, types.MergePatchType, patch, by, "scale")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// remove deletes a workload with its revisions and pods.
func (w *foreignEnv) remove(ctx context.Context, f *foreignTarget) error {
	options := metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}
	var err error
	switch apps := w.kube.AppsV1(); f.kind {
	case "Deployment":
		err = apps.Deployments(w.namespace).Delete(ctx, f.name, options)
	case "StatefulSet":
		err = apps.StatefulSets(w.namespace).Delete(ctx, f.name, options)
	case "DaemonSet":
		err = apps.DaemonSets(w.namespace).Delete(ctx, f.name, options)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// rest resumes what is paused and mends what fails, so that every rollout can end soon: a
// progress deadline does not count for half a minute after the agent's start.
func (w *foreignEnv) rest(ctx context.Context) error {
	for _, f := range slices.DeleteFunc(slices.Clone(w.targets), func(f *foreignTarget) bool { return f.kind != "Deployment" }) {
		if err := w.edit(ctx, f, "kubectl-rollout", func(_ metav1.Object, _ *corev1.PodTemplateSpec, paused *bool) { *paused = false }); err != nil {
			return err
		}
	}
	for _, f := range w.targets {
		if err := w.edit(ctx, f, "helm", func(_ metav1.Object, t *corev1.PodTemplateSpec, _ *bool) {
			if c := &t.Spec.Containers[0]; f.kind == "Deployment" && !soundImage(c.Image) {
				c.Image = w.image(true)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}
