package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// awaitVariants waits until the canary and the baseline are ready for their traffic. It
// waits for the primary only if its share grows.
func (s *shift) awaitVariants(ctx context.Context, to traffic.Shares) error {
	for _, v := range []kubernetes.Variant{kubernetes.Canary, kubernetes.Baseline} {
		if to.Of(v) == 0 {
			continue
		}
		if err := s.awaitVariant(ctx, v); err != nil {
			return err
		}
	}
	if to.Primary > s.state.Shares.Primary {
		return s.awaitPrimary(ctx)
	}
	return nil
}

// awaitVariant waits for the workloads and endpoints of the canary or the baseline.
func (s *shift) awaitVariant(ctx context.Context, v kubernetes.Variant) error {
	workloads, threshold, err := s.rolledOut(ctx, v)
	if err != nil {
		return err
	}
	limit := verifyTimeout(s.routing)
	why, err := s.poll(ctx, limit, func(ctx context.Context) (string, error) {
		for _, ref := range workloads {
			if why, err := s.unready(ctx, ref, threshold); err != nil || why != "" {
				return why, err
			}
		}
		_, why, err := s.ready(ctx, v)
		return why, err
	})
	if err == nil && why != "" {
		err = &stageError{reason: fmt.Sprintf("the %s gets no traffic, because it was not ready for it within %s: %s", v, limit, why)}
	}
	return err
}

// rolledOut returns the workloads of a variant, and the percentage of their pods that must
// be available. It returns a stageError unless their rollouts have succeeded.
func (w *work) rolledOut(ctx context.Context, v kubernetes.Variant) (workloads []deploy.ObjectRef, threshold int, err error) {
	stage, options, err := w.rolloutOf(v)
	if err != nil {
		return nil, 0, err
	}
	if stage == nil || stage.Status != deploy.StageSuccess {
		return nil, 0, &stageError{reason: fmt.Sprintf("the %s gets no traffic, because no stage before this one has rolled it out", v)}
	}
	records, err := w.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: w.run.Deployment.ID, StageID: stage.ID})
	if err != nil {
		return nil, 0, err
	}
	for _, rec := range records {
		if rec.Phase != deploy.RolloutComplete && rec.Phase != deploy.RolloutNoRollout {
			return nil, 0, &stageError{reason: fmt.Sprintf("the %s gets no traffic, because the rollout of %s is %s", v, rec.Workload, rec.Phase)}
		}
		workloads = append(workloads, rec.Workload)
	}
	threshold = int(options.ReadyThreshold)
	if threshold == 0 {
		threshold = w.set.Spec.ReadyThreshold
	}
	return workloads, threshold, nil
}

// unready explains why a workload is not ready; "" if it is. It returns a stageError if the
// workload cannot become ready: it is gone, or its progress deadline is exceeded.
func (w *work) unready(ctx context.Context, ref deploy.ObjectRef, threshold int) (string, error) {
	live, err := w.workload(ctx, ref)
	if apierrors.IsNotFound(err) {
		return "", &stageError{reason: fmt.Sprintf("%s gets no traffic: it is gone", ref)}
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", ref, w.cluster.Classify(err))
	}
	why := unready(live, threshold)
	if why == "" {
		return "", nil
	}
	why = fmt.Sprintf("%s: %s%s", ref, why, w.explain(ctx, ref, live.Selector))
	if live.Progressing.Reason == deadlineExceeded {
		return "", &stageError{reason: why}
	}
	return why, nil
}

const deadlineExceeded = "ProgressDeadlineExceeded" // the reason of a Deployment's condition

// unready explains the first unmet condition of readiness; "" if all are met: the
// controller has observed the spec, no deadline is exceeded, every pod of the new version
// exists, no pod of the old version is left, and enough pods are available. threshold is a
// percentage.
func unready(w rollout.Workload, threshold int) string {
	need := (w.Replicas*int32(threshold) + 99) / 100
	switch {
	case w.ObservedGeneration < w.Generation:
		return "its controller has not observed the last change"
	case w.Progressing.Reason == deadlineExceeded:
		return "its progress deadline is exceeded: " + w.Progressing.Message
	case w.Updated < w.Replicas:
		return fmt.Sprintf("%d of %d new pods exist", w.Updated, w.Replicas)
	case w.Total > w.Updated:
		return fmt.Sprintf("%d of %d pods are still of the previous version", w.Total-w.Updated, w.Total)
	case w.Available < need:
		return fmt.Sprintf("%d of %d pods are available, %d are needed (readyThreshold %d%%)", w.Available, w.Replicas, need, threshold)
	}
	return ""
}

// workload reads a Deployment or StatefulSet.
func (w *work) workload(ctx context.Context, ref deploy.ObjectRef) (rollout.Workload, error) {
	apps := w.cluster.Typed().AppsV1()
	if ref.Kind == rollout.KindStatefulSet {
		s, err := apps.StatefulSets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return rollout.Workload{}, err
		}
		return rollout.FromStatefulSet(s), nil
	}
	d, err := apps.Deployments(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return rollout.Workload{}, err
	}
	return rollout.FromDeployment(d), nil
}

// explain returns the problem of the first pod that has one, as the end of a message; "" if
// there is none.
func (w *work) explain(ctx context.Context, ref deploy.ObjectRef, selector string) string {
	pods, err := w.cluster.Typed().CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 50})
	if err != nil {
		return ""
	}
	for _, trouble := range rollout.Explain(pods.Items, nil, w.Now()) {
		return "; " + trouble.String()
	}
	return ""
}

// awaitPrimary waits until as many pods of the primary are ready as when it last had all
// traffic. An autoscaler may have removed some, and may add them only when the traffic
// returns. So after the time limit one ready pod is enough.
func (s *shift) awaitPrimary(ctx context.Context) error {
	limit, ready := verifyTimeout(s.routing), 0
	why, err := s.poll(ctx, limit, func(ctx context.Context) (why string, err error) {
		if ready, why, err = s.ready(ctx, kubernetes.Primary); err != nil || why != "" {
			return why, err
		}
		if ready < s.state.Ready {
			return fmt.Sprintf("%d of the %d pods of the primary are ready that were when it had all the traffic", ready, s.state.Ready), nil
		}
		return "", nil
	})
	switch {
	case err != nil || why == "":
		return err
	case ready > 0:
		s.log.Infof("Continuing after %s: %s", limit, why)
		return nil
	}
	return &stageError{reason: fmt.Sprintf("the primary gets no more traffic, because it was not ready for it within %s: %s", limit, why)}
}

// countPrimary stores in the state how many pods of the primary are ready.
func (s *shift) countPrimary(ctx context.Context) {
	if ready, _, err := s.ready(ctx, kubernetes.Primary); err == nil {
		s.state.Ready = ready
	}
}

// ready returns how many pods of a variant can take traffic, or why none can. If no Service
// is known it returns 0 and "": then the workloads alone decide.
func (s *shift) ready(ctx context.Context, v kubernetes.Variant) (int, string, error) {
	if s.routing.Gateway() {
		return s.readyEndpoints(ctx, v)
	}
	service, selector := s.selected(v)
	if service == nil {
		return 0, "", nil
	}
	pods, err := s.cluster.Typed().CoreV1().Pods(service.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(selector).String()})
	if err != nil {
		return 0, "", fmt.Errorf("list the pods of the %s: %w", v, s.cluster.Classify(err))
	}
	n := 0
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			n++
		}
	}
	if n == 0 {
		return 0, fmt.Sprintf("no pod of the %s that %s selects (%s) is ready", v, manifest.Ref(service.Unstructured), labels.FormatLabels(selector)), nil
	}
	return n, "", nil
}

// selected returns the Service that gets the traffic, and the labels by which it, or the
// subset of the Istio host, selects the pods of a variant. It returns nil if Git has no
// such Service.
func (s *shift) selected(v kubernetes.Variant) (*manifest.Object, map[string]string) {
	values := map[kubernetes.Variant]string{
		kubernetes.Primary: s.routing.Label.PrimaryValue, kubernetes.Canary: s.routing.Label.CanaryValue, kubernetes.Baseline: s.routing.Label.BaselineValue,
	}
	subset := map[string]string{s.routing.Label.Key: values[v]}
	name := s.routing.Service
	if s.routing.Method == kubernetes.IstioMethod {
		name, _, _ = strings.Cut(s.routing.Istio.Host, ".")
		subset = s.subset(values[v], subset)
	}
	for _, o := range s.set.Objects {
		if !isService(o) || name != "" && o.GetName() != name {
			continue
		}
		selector := selectorOf(o)
		maps.Copy(selector, subset)
		return &o, selector
	}
	return nil, nil
}

// subset returns the labels of the named subset in the DestinationRule of the Istio host in
// Git. Without such a subset it returns otherwise.
func (s *shift) subset(name string, otherwise map[string]string) map[string]string {
	for _, o := range s.set.Objects {
		host, _, _ := unstructured.NestedString(o.Object, "spec", "host")
		if o.GetKind() != "DestinationRule" || host != s.routing.Istio.Host {
			continue
		}
		subsets, _, _ := unstructured.NestedSlice(o.Object, "spec", "subsets")
		for _, v := range subsets {
			subset, _ := v.(map[string]any)
			if found, ok, err := unstructured.NestedStringMap(subset, "labels"); ok && err == nil && subset["name"] == name {
				return found
			}
		}
	}
	return otherwise
}

// readyEndpoints counts the ready endpoints of a variant's Service in the namespace of each
// route, and returns the lowest count.
func (s *shift) readyEndpoints(ctx context.Context, v kubernetes.Variant) (fewest int, why string, err error) {
	names := map[kubernetes.Variant]string{kubernetes.Primary: s.routing.Service, kubernetes.Canary: s.routing.Canary, kubernetes.Baseline: s.routing.Baseline}
	routes, err := s.routing.Routes(s.set.Objects)
	if err != nil {
		return 0, "", err
	}
	for i, route := range routes {
		n, why, err := s.endpoints(ctx, route.GetNamespace(), names[v])
		if err != nil || why != "" {
			return 0, why, err
		}
		if i == 0 || n < fewest {
			fewest = n
		}
	}
	return fewest, "", nil
}

// endpoints counts the ready endpoints of a Service, and explains why there are none.
func (w *work) endpoints(ctx context.Context, namespace, name string) (n int, why string, err error) {
	service := deploy.ObjectRef{Version: "v1", Kind: "Service", Namespace: namespace, Name: name}
	slices, err := w.cluster.Typed().DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return 0, "", fmt.Errorf("list the endpoints of %s: %w", service, w.cluster.Classify(err))
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if ready := e.Conditions.Ready; ready == nil || *ready {
				n++
			}
		}
	}
	if n > 0 {
		return n, "", nil
	}
	if _, err := w.cluster.Typed().CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return 0, "", &stageError{reason: fmt.Sprintf("%s does not exist, so nothing can be sent to it: set createService: true in the stage that rolls out the variant, or declare it in Git", service)}
	}
	return 0, fmt.Sprintf("%s has no ready endpoint", service), nil
}

func isService(o manifest.Object) bool { return o.GetAPIVersion() == "v1" && o.GetKind() == "Service" }

// selectorOf returns a copy of a Service's selector.
func selectorOf(service manifest.Object) map[string]string {
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	if selector == nil {
		selector = map[string]string{}
	}
	return selector
}
