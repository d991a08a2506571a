package health

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster/traffic"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// liveRules returns the rules of Live for built-in kinds and Gateway API kinds. A rule returns
// the health of an object and, unless it is Healthy, the reason as text for users.
func liveRules(now time.Time) map[schema.GroupKind]func(*unstructured.Unstructured) (deploy.Health, string) {
	rules := map[schema.GroupKind]func(*unstructured.Unstructured) (deploy.Health, string){
		{Group: "apps", Kind: "Deployment"}:  workload,
		{Group: "apps", Kind: "StatefulSet"}: workload,
		{Group: "apps", Kind: "DaemonSet"}:   workload,
		{Group: "apps", Kind: "ReplicaSet"}:  typed(func(rs *appsv1.ReplicaSet) (deploy.Health, string) { return ReplicaSet(rs) }),
		{Kind: "Pod"}:                        typed(func(pod *corev1.Pod) (deploy.Health, string) { return Pod(pod, now) }),
		{Group: "batch", Kind: "Job"}:        typed(Job),
		{Group: "batch", Kind: "CronJob"}:    typed(cronJob),
		{Kind: "Service"}:                    typed(service),
		{Kind: "PersistentVolumeClaim"}:      typed(Claim),
		{Kind: "PersistentVolume"}:           typed(volume),
		{Kind: "Namespace"}:                  waited(namespace),

		{Group: "networking.k8s.io", Kind: "Ingress"}:                     ingress,
		{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}:           autoscaler,
		{Group: "policy", Kind: "PodDisruptionBudget"}:                    disruptionBudget,
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: definition,
		{Group: "apiregistration.k8s.io", Kind: "APIService"}:             waited(apiService),
		{Group: traffic.GatewayGroup, Kind: "Gateway"}:                    gateway,
	}
	for _, kind := range []string{"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"} {
		rules[schema.GroupKind{Group: traffic.GatewayGroup, Kind: kind}] = route
	}
	return rules
}

// ReadWhole reports whether Live needs whole objects of a kind. For other kinds, such as
// ConfigMap and Secret, the metadata is sufficient.
func ReadWhole(gvk schema.GroupVersionKind, checks []config.HealthCheck) bool {
	_, ok := liveRules(time.Time{})[gvk.GroupKind()]
	return ok || Has(gvk, checks)
}

// Live returns the present health of a live object of any kind and, unless it is Healthy, the
// reason for users. Of evaluates only whether an applied change is complete. A check for
// the object's kind replaces the rule of the kind. An object that is being deleted is
// Progressing. The health is "" (unknown) if the object cannot be parsed.
func Live(u *unstructured.Unstructured, checks []config.HealthCheck, now time.Time) (deploy.Health, string) {
	if u.GetDeletionTimestamp() != nil {
		return deploy.HealthProgressing, beingDeleted(u)
	}
	gvk := u.GroupVersionKind()
	if c := find(gvk, checks); c != nil {
		return waited(func(u *unstructured.Unstructured) (Status, string) { return byCheck(u, c) })(u)
	}
	if rule, ok := liveRules(now)[gvk.GroupKind()]; ok {
		return rule(u)
	}
	switch {
	case builtIn(gvk.Group):
		return deploy.Healthy, ""
	case strings.HasSuffix(gvk.Group, ".istio.io"):
		return istio(u)
	}
	return waited(byConditions)(u)
}

// beingDeleted returns the reason for an object that is being deleted: its finalizers and, for
// a Namespace, the conditions that explain what blocks the deletion.
func beingDeleted(u *unstructured.Unstructured) string {
	reason := deleted(u.GetFinalizers())
	if u.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Namespace"}) {
		return reason
	}
	for _, kind := range []string{
		"NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure", "NamespaceDeletionContentFailure",
		"NamespaceContentRemaining", "NamespaceFinalizersRemaining",
	} {
		if c, ok := conditionOf(u, kind); ok && c.status == "True" {
			reason = join(reason, c.message)
		}
	}
	return reason
}

// deleted returns the reason for an object that is being deleted and has these finalizers.
func deleted(finalizers []string) string {
	if len(finalizers) == 0 {
		return "it is being deleted"
	}
	return "it is being deleted and waits for " + strings.Join(finalizers, ", ")
}

// waited turns a rule of Of into a rule of Live.
func waited(rule func(*unstructured.Unstructured) (Status, string)) func(*unstructured.Unstructured) (deploy.Health, string) {
	return func(u *unstructured.Unstructured) (deploy.Health, string) {
		status, reason := rule(u)
		switch status {
		case Current:
			return deploy.Healthy, ""
		case Failed:
			return deploy.HealthDegraded, reason
		}
		return deploy.HealthProgressing, reason
	}
}

// typed turns a rule for a Go type into a rule for unstructured objects. The health is ""
// (unknown) if an object cannot be converted.
func typed[T any](rule func(*T) (deploy.Health, string)) func(*unstructured.Unstructured) (deploy.Health, string) {
	return func(u *unstructured.Unstructured) (deploy.Health, string) {
		var object T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &object); err != nil {
			return "", "it cannot be read: " + err.Error()
		}
		return rule(&object)
	}
}

func service(s *corev1.Service) (deploy.Health, string) {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		return deploy.HealthProgressing, "its load balancer has no address yet"
	}
	return deploy.Healthy, ""
}

func ingress(u *unstructured.Unstructured) (deploy.Health, string) {
	if addresses, _, _ := unstructured.NestedSlice(u.Object, "status", "loadBalancer", "ingress"); len(addresses) == 0 {
		return deploy.HealthProgressing, "no ingress controller has given it an address yet"
	}
	return deploy.Healthy, ""
}

// Claim is Live for a PersistentVolumeClaim, without health checks and deletion.
func Claim(c *corev1.PersistentVolumeClaim) (deploy.Health, string) {
	switch c.Status.Phase {
	case corev1.ClaimBound:
		return deploy.Healthy, ""
	case corev1.ClaimLost:
		return deploy.HealthDegraded, "its volume is lost"
	}
	return deploy.HealthProgressing, "it is not bound to a volume; some classes bind a claim when the first pod uses it"
}

func volume(v *corev1.PersistentVolume) (deploy.Health, string) {
	switch v.Status.Phase {
	case corev1.VolumeFailed:
		return deploy.HealthDegraded, join("its reclamation failed", v.Status.Message)
	case corev1.VolumePending, "":
		return deploy.HealthProgressing, "it is not available yet"
	}
	return deploy.Healthy, ""
}

// definition is the rule of a CustomResourceDefinition. One with a non-structural schema is
// degraded: it is served, but its objects are neither defaulted nor pruned.
func definition(u *unstructured.Unstructured) (deploy.Health, string) {
	if c, ok := conditionOf(u, "NonStructuralSchema"); ok && c.status == "True" {
		return deploy.HealthDegraded, c.String()
	}
	return waited(byConditions)(u)
}

// olderConditions is the annotation with the conditions in autoscaling/v1.
const olderConditions = "autoscaling.alpha.kubernetes.io/conditions"

// autoscaler is the rule of a HorizontalPodAutoscaler of autoscaling/v2 or v1.
func autoscaler(u *unstructured.Unstructured) (deploy.Health, string) {
	if text := u.GetAnnotations()[olderConditions]; text != "" {
		var list []any
		if json.Unmarshal([]byte(text), &list) == nil {
			u = &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": list}}}
		}
	}
	able, reported := conditionOf(u, "AbleToScale")
	active, _ := conditionOf(u, "ScalingActive")
	switch {
	case !reported:
		return deploy.HealthProgressing, "the autoscaler has not processed it yet"
	case able.status == "False":
		return deploy.HealthDegraded, able.String()
	case active.status == "False" && active.reason == "ScalingDisabled":
		return deploy.HealthSuspended, "what it scales has no replicas"
	case active.status == "False":
		return deploy.HealthDegraded, active.String()
	}
	return deploy.Healthy, ""
}

func disruptionBudget(u *unstructured.Unstructured) (deploy.Health, string) {
	if c, ok := conditionOf(u, "DisruptionAllowed"); ok && c.reason == "SyncFailed" {
		return deploy.HealthDegraded, c.String()
	}
	healthy, _, _ := unstructured.NestedInt64(u.Object, "status", "currentHealthy")
	desired, _, _ := unstructured.NestedInt64(u.Object, "status", "desiredHealthy")
	if healthy < desired {
		return deploy.HealthProgressing, fmt.Sprintf("%d of the %d pods that it demands are healthy", healthy, desired)
	}
	return deploy.Healthy, ""
}

// gateway is the rule of a Gateway of the Gateway API.
func gateway(u *unstructured.Unstructured) (deploy.Health, string) {
	for _, kind := range []string{"Accepted", "Programmed"} {
		switch c, ok := conditionOf(u, kind); {
		case !ok || !c.current || c.status == "Unknown":
			return deploy.HealthProgressing, "its controller has not reported " + kind + " yet"
		case c.status != "True" && c.reason == "Pending":
			return deploy.HealthProgressing, c.String()
		case c.status != "True":
			return deploy.HealthDegraded, c.String()
		}
	}
	return deploy.Healthy, ""
}

// route is the rule of a route of the Gateway API.
func route(u *unstructured.Unstructured) (deploy.Health, string) {
	v := traffic.Evaluate(u)
	switch {
	case v.Refused:
		return deploy.HealthDegraded, v.Reason
	case !v.Accepted:
		return deploy.HealthProgressing, v.Reason
	}
	parents, _, _ := unstructured.NestedSlice(u.Object, "status", "parents")
	for _, p := range parents { // some gateways set Programmed when the route is in effect
		said, _ := p.(map[string]any)
		parent := &unstructured.Unstructured{Object: map[string]any{"status": said}}
		if c, ok := conditionOf(parent, "Programmed"); ok && c.status != "True" {
			return deploy.HealthProgressing, c.String()
		}
	}
	return deploy.Healthy, ""
}

// istio is the rule of Istio's kinds. It evaluates the result of Istio's analysis, if that is
// enabled. Kstatus cannot evaluate them, because their observedGeneration is a string.
func istio(u *unstructured.Unstructured) (deploy.Health, string) {
	messages, _, _ := unstructured.NestedSlice(u.Object, "status", "validationMessages")
	for _, m := range messages {
		fields, _ := m.(map[string]any)
		if level := fmt.Sprint(fields["level"]); level != "ERROR" {
			continue
		}
		kind, _ := fields["type"].(map[string]any)
		return deploy.HealthDegraded, fmt.Sprintf("Istio finds a mistake in it: %v (%v), see %v", kind["name"], kind["code"], fields["documentationUrl"])
	}
	if c, ok := conditionOf(u, "Reconciled"); ok && c.status == "False" {
		return deploy.HealthProgressing, c.String()
	}
	return deploy.Healthy, ""
}

// join appends a message of the cluster, on one line, to a reason; nothing if it is empty.
func join(what, message string) string {
	if message = strings.Join(strings.Fields(message), " "); message == "" {
		return what
	}
	return what + ": " + message
}
