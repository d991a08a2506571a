package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const prefix = "devcluster.piped.dev/"

// deploy creates a Deployment of one container, changed by change.
func deploy(t *testing.T, c *testCluster, name, image string, change func(*appsv1.Deployment)) {
	t.Helper()
	replicas := int32(1)
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
			},
		},
	}
	if change != nil {
		change(d)
	}
	if _, err := c.client.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// available waits until a Deployment has as many available pods.
func available(t *testing.T, c *testCluster, name string, want int32) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		d, err := c.client.AppsV1().Deployments("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.AvailableReplicas != want || d.Status.Replicas != want {
			return fmt.Errorf("%s: %d of %d pods available, want %d", name, d.Status.AvailableReplicas, d.Status.Replicas, want)
		}
		return nil
	})
}

// podOf returns the only pod of an application.
func podOf(ctx context.Context, c *testCluster, app string) (*corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%s has %d pods, want 1", app, len(list.Items))
	}
	return &list.Items[0], nil
}

// eventSays checks that a pod has an Event with the reason and text.
func eventSays(ctx context.Context, c *testCluster, pod *corev1.Pod, reason, text string) error {
	list, err := c.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
	if err != nil {
		return err
	}
	var seen []string
	for _, e := range list.Items {
		if e.Reason == reason && strings.Contains(e.Message, text) {
			return nil
		}
		seen = append(seen, e.Reason+": "+e.Message)
	}
	return fmt.Errorf("no event %s with %q; there are:\n%s", reason, text, strings.Join(seen, "\n"))
}

func podReady(pod *corev1.Pod) bool {
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

func testPods(t *testing.T, c *testCluster) {
	behave := func(behavior string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Spec.Template.Labels[prefix+"behavior"] = behavior }
	}
	deploy(t, c, "good", "web:v1", func(d *appsv1.Deployment) { *d.Spec.Replicas = 3 })
	deploy(t, c, "slow", "web:v1", func(d *appsv1.Deployment) { d.Spec.Template.Annotations[prefix+"ready-delay"] = "2s" })
	deploy(t, c, "pull-label", "web:v1", behave("image-pull-error"))
	deploy(t, c, "pull-tag", "images.example:5000/web:does-not-exist", nil)
	deploy(t, c, "crash-label", "web:v1", behave("crash-loop"))
	deploy(t, c, "crash-tag", "web:crash@sha256:"+strings.Repeat("0", 64), nil)
	deploy(t, c, "never-label", "web:v1", behave("never-ready"))
	deploy(t, c, "never-tag", "web:never-ready", nil)
	deploy(t, c, "spared", "web:crash", behave("ready"))
	deploy(t, c, "big", "web:v1", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("33")}
	})
	t.Run("ready", func(t *testing.T) {
		available(t, c, "good", 3)
		available(t, c, "spared", 1)
		available(t, c, "slow", 1)
		pod, err := podOf(t.Context(), c, "slow")
		if err != nil {
			t.Fatal(err)
		}
		for _, cond := range pod.Status.Conditions {
			if took := cond.LastTransitionTime.Sub(pod.Status.StartTime.Time); cond.Type == corev1.PodReady && took.Seconds() < 1 {
				t.Errorf("ready %s after its start, want 2s", took)
			}
		}
	})
	for app, image := range map[string]string{"pull-label": "web:v1", "pull-tag": "images.example:5000/web:does-not-exist"} {
		t.Run(app, func(t *testing.T) { imagePullError(t, c, app, image) })
	}
	for _, app := range []string{"crash-label", "crash-tag"} {
		t.Run(app, func(t *testing.T) { crashLoop(t, c, app) })
	}
	for _, app := range []string{"never-label", "never-tag"} {
		t.Run(app, func(t *testing.T) { neverReady(t, c, app) })
	}
	t.Run("unschedulable", func(t *testing.T) {
		eventually(t, func(ctx context.Context) error {
			pod, err := podOf(ctx, c, "big")
			if err != nil {
				return err
			}
			for _, cond := range pod.Status.Conditions {
				if cond.Type == corev1.PodScheduled && cond.Reason == corev1.PodReasonUnschedulable {
					return eventSays(ctx, c, pod, "FailedScheduling", "Insufficient cpu")
				}
			}
			return fmt.Errorf("big is not unschedulable: %v", pod.Status.Conditions)
		})
	})
	t.Run("image change fails and is undone", func(t *testing.T) { imageChange(t, c) })
}

func imagePullError(t *testing.T, c *testCluster, app, image string) {
	eventually(t, func(ctx context.Context) error {
		pod, err := podOf(ctx, c, app)
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodPending || len(pod.Status.ContainerStatuses) != 1 {
			return fmt.Errorf("phase %s with %d containers, want Pending with 1", pod.Status.Phase, len(pod.Status.ContainerStatuses))
		}
		w := pod.Status.ContainerStatuses[0].State.Waiting
		if w == nil || w.Reason != "ImagePullBackOff" || !strings.Contains(w.Message, image) {
			return fmt.Errorf("waiting %v, want ImagePullBackOff with the image", w)
		}
		if err := eventSays(ctx, c, pod, "Failed", fmt.Sprintf("Failed to pull image %q", image)); err != nil {
			return err
		}
		return eventSays(ctx, c, pod, "BackOff", "Back-off pulling image")
	})
}

func crashLoop(t *testing.T, c *testCluster, app string) {
	eventually(t, func(ctx context.Context) error {
		pod, err := podOf(ctx, c, app)
		if err != nil {
			return err
		}
		if len(pod.Status.ContainerStatuses) != 1 {
			return fmt.Errorf("%d containers, want 1", len(pod.Status.ContainerStatuses))
		}
		s := pod.Status.ContainerStatuses[0]
		if s.RestartCount < 2 || s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" {
			return fmt.Errorf("%d restarts, state %v, want 2 and CrashLoopBackOff", s.RestartCount, s.State)
		}
		if last := s.LastTerminationState.Terminated; last == nil || last.ExitCode != 1 || last.Reason != "Error" {
			return fmt.Errorf("last state %v, want terminated by Error with code 1", last)
		}
		return eventSays(ctx, c, pod, "BackOff", "Back-off restarting failed container main in pod "+pod.Name)
	})
	pod, err := podOf(t.Context(), c, app)
	if err != nil {
		t.Fatal(err)
	}
	lines := int64(2)
	log, err := c.client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{Previous: true, TailLines: &lines}).DoRaw(t.Context())
	want := fmt.Sprintf("main of pod %[1]s, the instance before: line 29 of 30\nmain of pod %[1]s, the instance before: line 30 of 30\n", pod.Name)
	if err != nil || string(log) != want {
		t.Errorf("log %q, %v; want %q", log, err, want)
	}
}

func neverReady(t *testing.T, c *testCluster, app string) {
	eventually(t, func(ctx context.Context) error {
		pod, err := podOf(ctx, c, app)
		if err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning || podReady(pod) {
			return fmt.Errorf("phase %s, ready %t, want Running and not ready", pod.Status.Phase, podReady(pod))
		}
		return eventSays(ctx, c, pod, "Unhealthy", "Readiness probe failed")
	})
}

// imageChange is a rollout as users see it fail: the old pods stay, the new
// one cannot start, and going back removes it.
func imageChange(t *testing.T, c *testCluster) {
	setImage := func(image string) {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
		_, err := c.client.AppsV1().Deployments("default").Patch(t.Context(), "good", "application/strategic-merge-patch+json", patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	setImage("web:bad-image")
	eventually(t, func(ctx context.Context) error {
		d, err := c.client.AppsV1().Deployments("default").Get(ctx, "good", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.UpdatedReplicas != 1 || d.Status.UnavailableReplicas != 1 || d.Status.AvailableReplicas != 3 {
			return fmt.Errorf("status %+v, want 1 updated, 1 unavailable, 3 available", d.Status)
		}
		return nil
	})
	setImage("web:v1")
	available(t, c, "good", 3)
}
