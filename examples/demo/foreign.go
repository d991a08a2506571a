package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// foreignName is a Deployment that belongs to no application.
const foreignName = "nobodys"

// foreign creates a Deployment that no repository has, and changes its image. The agent deploys
// neither, and records both rollouts.
func (d *demo) foreign(ctx context.Context) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	labels, image := map[string]string{"app": foreignName}, d.stage.images.at(d.stage.images.first)
	d.out.fact("by hand", fmt.Sprintf("kubectl -n %s create deployment %s --image %s", d.stage.namespace, foreignName, image))
	_, err = client.AppsV1().Deployments(d.stage.namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: foreignName}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}}},
	}}, metav1.CreateOptions{FieldManager: "kubectl-by-hand"})
	if err != nil {
		return fmt.Errorf("create Deployment %s/%s by hand: %w", d.stage.namespace, foreignName, err)
	}
	if err := d.awaitForeign(ctx, 1); err != nil {
		return err
	}
	if err := d.setImage(ctx, foreignName, d.stage.images.hand); err != nil {
		return err
	}
	if err := d.awaitForeign(ctx, 2); err != nil {
		return err
	}
	d.out.gap()
	return d.agent.pipectl(ctx, d.out, "rollout", "list", "--namespace", d.stage.namespace, "--workload", foreignName)
}

// awaitForeign waits until a number of rollouts of the Deployment without an application are
// complete.
func (d *demo) awaitForeign(ctx context.Context, count int) error {
	var rollouts []*modelv1.Rollout
	err := d.agent.Await(ctx, fmt.Sprintf("%d rollouts of %s to be complete", count, foreignName), waitTimeout, func(ctx context.Context) (bool, error) {
		resp, err := d.agent.Control.ListRollouts(ctx, &controlv1.ListRolloutsRequest{
			Workloads: []string{foreignName}, Outcomes: []modelv1.RolloutOutcome{modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE},
		})
		rollouts = resp.GetRollouts()
		return len(rollouts) >= count, err
	})
	if err != nil {
		return err
	}
	if r := rollouts[0]; r.ApplicationId != "" || r.DeploymentId != "" || r.CausedBy != "kubectl-by-hand" {
		d.differ("the rollout of %s is recorded as of application %q, deployment %q, by %q", foreignName, r.ApplicationId, r.DeploymentId, r.CausedBy)
	}
	return nil
}
