package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// The statuses and triggers the script expects.
const (
	success   = modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	failure   = modelv1.DeploymentStatus_DEPLOYMENT_FAILURE
	onCommit  = modelv1.TriggerKind_TRIGGER_KIND_ON_COMMIT
	onCommand = modelv1.TriggerKind_TRIGGER_KIND_ON_COMMAND
	onDrift   = modelv1.TriggerKind_TRIGGER_KIND_ON_OUT_OF_SYNC
)

// expectation names a deployment the script has caused.
type expectation struct {
	app, commit string
	trigger     modelv1.TriggerKind
}

func (e expectation) matches(d *modelv1.Deployment) bool {
	return e == expectation{d.ApplicationName, d.Trigger.Commit.Hash, d.TriggerKind}
}

func (e expectation) String() string {
	return fmt.Sprintf("the deployment of %s at commit %s (%s)", e.app, shortHash(e.commit), triggerName(e.trigger))
}

// differ notes that something is not as it should be; the story goes on.
func (d *demo) differ(format string, args ...any) {
	d.differences = append(d.differences, fmt.Sprintf(format, args...))
	d.out.bad(d.differences[len(d.differences)-1])
}

// expect waits until an application's deployment of the head commit has ended,
// printing what happens meanwhile, and returns it.
func (d *demo) expect(ctx context.Context, app string, trigger modelv1.TriggerKind, status modelv1.DeploymentStatus) (*modelv1.Deployment, error) {
	want := expectation{app, d.repo.Head(), trigger}
	d.expected = append(d.expected, want)
	var found *modelv1.Deployment
	err := d.agent.Await(ctx, want.String()+" to end", d.stage.timeout, func(ctx context.Context) (bool, error) {
		all, err := d.watch.poll(ctx)
		if i := slices.IndexFunc(all, want.matches); i >= 0 {
			found = all[i]
		}
		return found != nil && completed(found), err
	})
	if err == nil && found.Status != status {
		d.differ("%s ended as %s instead of %s: %s", want, statusName(found.Status), statusName(status), found.StatusReason)
	}
	return found, err
}

// expectRollback checks that a failed deployment says what is wrong with the
// image, and was rolled back.
func (d *demo) expectRollback(deployment *modelv1.Deployment) {
	if !strings.Contains(deployment.StatusReason, badTag) {
		d.differ("the reason of the failure does not name the image: %s", deployment.StatusReason)
	}
	rolledBack := slices.ContainsFunc(deployment.Stages, func(s *modelv1.PipelineStage) bool {
		return s.Rollback && s.Status == modelv1.StageStatus_STAGE_SUCCESS
	})
	if !rolledBack {
		d.differ("%s at commit %s was not rolled back", deployment.ApplicationName, shortHash(deployment.Trigger.Commit.Hash))
	}
}

// awaitApproval waits until a stage of an application's deployment of the head
// commit waits for approval, printing what happens meanwhile, and returns the
// deployment's ID.
func (d *demo) awaitApproval(ctx context.Context, app string) (id string, err error) {
	want := expectation{app, d.repo.Head(), onCommit}
	err = d.agent.Await(ctx, want.String()+" to wait for approval", d.stage.timeout, func(ctx context.Context) (bool, error) {
		all, err := d.watch.poll(ctx)
		i := slices.IndexFunc(all, want.matches)
		if i < 0 {
			return false, err
		}
		id = all[i].Id
		return slices.ContainsFunc(all[i].Stages, func(s *modelv1.PipelineStage) bool {
			return s.AvailableOperation == modelv1.ManualOperation_MANUAL_OPERATION_APPROVE
		}), err
	})
	return id, err
}

// client returns a client of the cluster.
func (d *demo) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", d.kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the cluster: %w", err)
	}
	return client, nil
}

// expectSecret checks that the cluster has the password that Git holds encrypted.
func (d *demo) expectSecret(ctx context.Context) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	live, err := client.CoreV1().Secrets(d.stage.namespace).Get(ctx, encrypted, metav1.GetOptions{})
	switch {
	case err != nil:
		d.differ("Secret %s/%s: %s", d.stage.namespace, encrypted, err)
	case string(live.Data["password"]) != password:
		d.differ("Secret %s/%s does not hold the decrypted password", d.stage.namespace, encrypted)
	default:
		d.out.good("seen in the cluster: Secret %s/%s holds it decrypted, %d characters", d.stage.namespace, encrypted, len(password))
	}
	return nil
}

// expectGreeting checks that the kustomized workload uses the generated ConfigMap
// with the changed greeting.
func (d *demo) expectGreeting(ctx context.Context) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	const workload = "kustomize-web"
	live, err := client.AppsV1().Deployments(d.stage.namespace).Get(ctx, workload, metav1.GetOptions{})
	if err != nil {
		d.differ("Deployment %s/%s: %s", d.stage.namespace, workload, err)
		return nil
	}
	name := live.Spec.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name
	config, err := client.CoreV1().ConfigMaps(d.stage.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		d.differ("ConfigMap %s/%s: %s", d.stage.namespace, name, err)
	case config.Data["greeting"] != nextGreeting:
		d.differ("ConfigMap %s/%s holds %q", d.stage.namespace, name, config.Data["greeting"])
	default:
		d.out.good("seen in the cluster: the pods of Deployment %s/%s use ConfigMap %s", d.stage.namespace, workload, name)
	}
	return nil
}

// expectImage checks in the cluster that all pods of an application run the
// image. Pods of the version before may still be ending for a moment.
func (d *demo) expectImage(ctx context.Context, app, tag string) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	image := d.stage.images.at(tag)
	err = d.agent.Await(ctx, "the pods of "+app+" to run "+image, waitTimeout, func(ctx context.Context) (bool, error) {
		err := runsOnly(ctx, client, d.stage.namespace, app, image)
		return err == nil, err
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		d.differ("%s", err)
	default:
		d.out.good("seen in the cluster: Deployment %s/%s and all its pods run %s", d.stage.namespace, app, image)
	}
	return nil
}

// runsOnly returns nil if an application's pods are complete, ready, and all of
// the image.
func runsOnly(ctx context.Context, client kubernetes.Interface, namespace, app, image string) error {
	live, err := client.AppsV1().Deployments(namespace).Get(ctx, app, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if got := live.Spec.Template.Spec.Containers[0].Image; got != image {
		return fmt.Errorf("the Deployment asks for %s", got)
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(live.Spec.Selector)})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if got := pod.Spec.Containers[0].Image; got != image || !ready(pod) {
			return fmt.Errorf("pod %s has %s, ready: %t", pod.Name, got, ready(pod))
		}
	}
	if len(pods.Items) != int(*live.Spec.Replicas) {
		return fmt.Errorf("there are %d pods instead of %d", len(pods.Items), *live.Spec.Replicas)
	}
	return nil
}

func ready(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func completed(d *modelv1.Deployment) bool { return d.Status >= success } // the final ones come last

func statusName(s modelv1.DeploymentStatus) string {
	return strings.TrimPrefix(s.String(), "DEPLOYMENT_")
}

func triggerName(k modelv1.TriggerKind) string {
	return strings.TrimPrefix(k.String(), "TRIGGER_KIND_")
}
