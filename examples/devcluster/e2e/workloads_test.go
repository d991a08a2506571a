package e2e

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testWorkloads checks the other kinds that make pods.
func testWorkloads(t *testing.T, c *testCluster) {
	template := func(app string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
			Spec:       corev1.PodSpec{RestartPolicy: restart, Containers: []corev1.Container{{Name: "main", Image: "web:v1"}}},
		}
	}
	meta := func(app string) (metav1.ObjectMeta, *metav1.LabelSelector) {
		return metav1.ObjectMeta{Name: app}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	replicas := int32(2)
	m, s := meta("daemon")
	ds := &appsv1.DaemonSet{ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Selector: s, Template: template("daemon", "Always")}}
	m, s = meta("ordered")
	sts := &appsv1.StatefulSet{ObjectMeta: m, Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: s, Template: template("ordered", "Always")}}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "once"}, Spec: batchv1.JobSpec{Template: template("once", "Never")}}
	ctx, opts := t.Context(), metav1.CreateOptions{}
	if _, err := c.client.AppsV1().DaemonSets("default").Create(ctx, ds, opts); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.AppsV1().StatefulSets("default").Create(ctx, sts, opts); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.BatchV1().Jobs("default").Create(ctx, job, opts); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		d, err := c.client.AppsV1().DaemonSets("default").Get(ctx, "daemon", metav1.GetOptions{})
		if err == nil && d.Status.NumberAvailable != 3 {
			err = fmt.Errorf("DaemonSet has %d of 3 available", d.Status.NumberAvailable)
		}
		return err
	})
	eventually(t, func(ctx context.Context) error {
		s, err := c.client.AppsV1().StatefulSets("default").Get(ctx, "ordered", metav1.GetOptions{})
		if err == nil && s.Status.AvailableReplicas != 2 {
			err = fmt.Errorf("StatefulSet has %d of 2 available", s.Status.AvailableReplicas)
		}
		return err
	})
	eventually(t, func(ctx context.Context) error {
		j, err := c.client.BatchV1().Jobs("default").Get(ctx, "once", metav1.GetOptions{})
		if err == nil && j.Status.Succeeded != 1 {
			err = fmt.Errorf("Job has %d of 1 succeeded", j.Status.Succeeded)
		}
		return err
	})
	if err := c.client.AppsV1().StatefulSets("default").Delete(ctx, "ordered", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		pods, err := c.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=ordered"})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods are still there", len(pods.Items))
		}
		return err
	})
}
