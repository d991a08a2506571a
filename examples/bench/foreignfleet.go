package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

const (
	foreignOld          = 10 // ReplicaSets of earlier templates that each Deployment has
	foreignPerNamespace = 100
	foreignWriters      = 16
)

// foreignFleet is a number of Deployments that no application has, with the ReplicaSets of
// their history. Those that roll out have pods, the others none.
type foreignFleet struct{ count int }

func newForeignFleet(count int) foreignFleet { return foreignFleet{count} }

func (f foreignFleet) namespace(i int) string {
	return fmt.Sprintf("bench-foreign-%02d", i/foreignPerNamespace)
}

func (f foreignFleet) namespaces() (names []string) {
	for i := 0; i < f.count; i += foreignPerNamespace {
		names = append(names, f.namespace(i))
	}
	return names
}

func (f foreignFleet) name(i int) string { return fmt.Sprintf("service-%04d", i) }

// create creates all of them.
func (f foreignFleet) create(ctx context.Context, client kubernetes.Interface) error {
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(foreignWriters)
	for i := range f.count {
		group.Go(func() error { return f.createOne(within, client, i) })
	}
	return group.Wait()
}

// awaitSeen waits until the controllers have seen all of them.
func (f foreignFleet) awaitSeen(ctx context.Context, client kubernetes.Interface) error {
	for {
		unseen, err := f.unseen(ctx, client)
		if err != nil || unseen == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(5 * time.Second):
		}
	}
}

// createOne creates a Deployment and its earlier ReplicaSets.
func (f foreignFleet) createOne(ctx context.Context, client kubernetes.Interface, i int) error {
	replicas := int32(0)
	if i < foreignRollouts {
		replicas = 2
	}
	name := f.name(i)
	labels := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "team": fmt.Sprintf("team-%d", i%20)}
	deployments := client.AppsV1().Deployments(f.namespace(i))
	d, err := createOnce(ctx, deployments.Create, deployments.Get, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, RevisionHistoryLimit: new(int32(foreignOld)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}},
			Template: foreignTemplate(labels, foreignOld+1),
		},
	}, "argocd-controller")
	if err != nil {
		return fmt.Errorf("create the Deployment %s: %w", name, err)
	}
	return createHistory(ctx, client, d, labels, i)
}

// createHistory creates ReplicaSets of earlier templates of a Deployment with a number, which has none
// but that of its template.
func createHistory(ctx context.Context, client kubernetes.Interface, d *appsv1.Deployment, labels map[string]string, i int) error {
	sets := client.AppsV1().ReplicaSets(d.Namespace)
	for n := range foreignOld {
		hash := fmt.Sprintf("%x", 0x5f8d0000+i*foreignOld+n)
		template := foreignTemplate(labels, n+1)
		template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		selector := maps.Clone(d.Spec.Selector.MatchLabels)
		selector[appsv1.DefaultDeploymentUniqueLabelKey] = hash
		set, err := createOnce(ctx, sets.Create, sets.Get, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Name: d.Name + "-" + hash, Labels: template.Labels, Annotations: map[string]string{"deployment.kubernetes.io/revision": strconv.Itoa(n - foreignOld)},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
			},
			Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: selector}, Template: template},
		}, "kube-controller-manager")
		if err == nil {
			status := fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, set.Generation)
			err = whileUnanswered(func() error {
				_, err := sets.Patch(ctx, set.Name, types.MergePatchType, status, metav1.PatchOptions{FieldManager: "kube-controller-manager"}, "status")
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("ReplicaSet %s of %s: %w", hash, d.Name, err)
		}
	}
	return nil
}

// createOnce creates an object. If the server has not answered, the object may be there.
func createOnce[T metav1.Object](ctx context.Context, create func(context.Context, T, metav1.CreateOptions) (T, error),
	get func(context.Context, string, metav1.GetOptions) (T, error), object T, manager string) (created T, err error) {
	err = whileUnanswered(func() (err error) {
		if created, err = create(ctx, object, metav1.CreateOptions{FieldManager: manager}); apierrors.IsAlreadyExists(err) {
			created, err = get(ctx, object.GetName(), metav1.GetOptions{})
		}
		return err
	})
	return created, err
}

// whileUnanswered repeats a request for some minutes while its server does not answer it: one that gets
// thousands at once resets streams.
func whileUnanswered(request func() error) error {
	pauses := wait.Backoff{Steps: 12, Duration: 100 * time.Millisecond, Factor: 2} // a Cap would end it early
	return retry.OnError(pauses, func(err error) bool {
		var answered apierrors.APIStatus
		return !errors.As(err, &answered) || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err)
	}, request)
}

// foreignTemplate returns a template as services usually have it.
func foreignTemplate(labels map[string]string, tag int) corev1.PodTemplateSpec {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels), Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "web", Image: fmt.Sprintf("registry.example/web:v%d", tag), ReadinessProbe: probe, LivenessProbe: probe,
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
			Env:   []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "DATABASE_URL", Value: "postgres://db.shop.svc/shop"}, {Name: "CACHE_URL", Value: "redis://cache.shop.svc"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
			}},
		}}},
	}
}

// unseen returns how many Deployments their controller has not seen yet.
func (f foreignFleet) unseen(ctx context.Context, client kubernetes.Interface) (n int, err error) {
	for _, namespace := range f.namespaces() {
		list, err := client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return 0, err
		}
		for _, d := range list.Items {
			if !isComplete(&d) || d.Generation == 0 {
				n++
			}
		}
	}
	return n, nil
}
