// Package health evaluates the health of live objects. It sends no requests. It has two
// evaluations:
//
//   - Of decides whether the cluster has completed an applied change, for a stage that waits
//     for it. Objects without a process to wait for, such as ConfigMaps, Services and roles,
//     are Current at once, and so are objects that depend on systems outside of the cluster,
//     such as Ingresses. Package rollout evaluates Deployments, StatefulSets and DaemonSets.
//   - Live returns the present health of an object of any kind, for display and alerts.
//
// A Pulse turns the health of an application over time into few, debounced notifications.
package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	config "github.com/c785c783/piped/piped/config/kubernetes"
)

// Status is the progress of an object towards its applied state, as returned by Of.
type Status string

// The statuses. Waiting does not make a Failed object Current.
const (
	Current    Status = "Current"
	InProgress Status = "InProgress"
	Failed     Status = "Failed"
)

// rules returns the rules of Of for built-in kinds. A rule returns the status of an object
// and, unless it is Current, the reason as text for users.
func rules() map[schema.GroupKind]func(*unstructured.Unstructured) (Status, string) {
	return map[schema.GroupKind]func(*unstructured.Unstructured) (Status, string){
		{Group: "batch", Kind: "Job"}:       job,
		{Kind: "PersistentVolumeClaim"}:     claim,
		{Kind: "Namespace"}:                 namespace,
		{Kind: "Pod"}:                       pod,
		{Group: "apps", Kind: "ReplicaSet"}: byConditions,
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: byConditions,
		{Group: "apiregistration.k8s.io", Kind: "APIService"}:             apiService,
	}
}

// Has reports whether Of evaluates the status of objects of the kind: a check names the kind,
// it has a rule, or it is not built in. Of returns Current for objects of other kinds.
func Has(gvk schema.GroupVersionKind, checks []config.HealthCheck) bool {
	if find(gvk, checks) != nil {
		return true
	}
	if _, ok := rules()[gvk.GroupKind()]; ok {
		return true
	}
	return !builtIn(gvk.Group)
}

// builtIn reports whether an API group is built into Kubernetes: its name has no dot or ends
// in .k8s.io. That includes the Gateway API, which is not built in: package traffic evaluates
// the conditions of its routes.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// Of returns the status of a live object and, unless it is Current, the reason for users. A
// check for the object's kind replaces the rule of the kind. An object that is being deleted
// is InProgress, except a finished Job, which its ttlSecondsAfterFinished deletes.
func Of(u *unstructured.Unstructured, checks []config.HealthCheck) (Status, string) {
	gvk := u.GroupVersionKind()
	if u.GetDeletionTimestamp() != nil && !jobEnded(u) {
		return InProgress, "it is being deleted"
	}
	if c := find(gvk, checks); c != nil {
		return byCheck(u, c)
	}
	if rule, ok := rules()[gvk.GroupKind()]; ok {
		return rule(u)
	}
	if builtIn(gvk.Group) {
		return Current, ""
	}
	return byConditions(u)
}

// find returns the first check for the kind, nil without one. A check without an apiVersion
// is for all groups and versions.
func find(gvk schema.GroupVersionKind, checks []config.HealthCheck) *config.HealthCheck {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	i := slices.IndexFunc(checks, func(c config.HealthCheck) bool {
		return c.Kind == kind && (c.APIVersion == "" || c.APIVersion == apiVersion)
	})
	if i < 0 {
		return nil
	}
	return &checks[i]
}

// byConditions is the rule of kstatus: it evaluates the conditions Ready, Reconciling and
// Stalled, and status.observedGeneration. An object without any of these is Current, also
// while its controller has not written a status yet.
func byConditions(u *unstructured.Unstructured) (Status, string) {
	result, err := status.Compute(u)
	switch {
	case err != nil:
		return InProgress, "its status cannot be read: " + err.Error()
	case result.Status == status.CurrentStatus:
		return Current, ""
	case result.Status == status.FailedStatus:
		return Failed, result.Message
	}
	return InProgress, result.Message
}

// byCheck evaluates a check of spec.healthChecks: one failed condition makes the object
// Failed, and all healthy conditions make it Current.
func byCheck(u *unstructured.Unstructured, c *config.HealthCheck) (Status, string) {
	for _, want := range c.Failed {
		if found, ok := conditionOf(u, want.Type); ok && found.status == string(want.Status) && found.current {
			return Failed, found.String()
		}
	}
	if !observed(u) {
		return InProgress, "its controller has not seen the change yet"
	}
	for _, want := range c.Healthy {
		found, ok := conditionOf(u, want.Type)
		switch {
		case !ok:
			return InProgress, fmt.Sprintf("it has no condition %s yet", want.Type)
		case found.status != string(want.Status) || !found.current:
			return InProgress, found.String()
		}
	}
	return Current, ""
}

// jobEnded reports whether u is a Job that is complete or has failed.
func jobEnded(u *unstructured.Unstructured) bool {
	if u.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "batch", Kind: "Job"}) {
		return false
	}
	complete, _ := conditionOf(u, "Complete")
	failed, _ := conditionOf(u, "Failed")
	return complete.status == "True" || failed.status == "True"
}

// job is the rule of a Job: it is Current when it is complete or suspended.
func job(u *unstructured.Unstructured) (Status, string) {
	if c, ok := conditionOf(u, "Failed"); ok && c.status == "True" {
		return Failed, fmt.Sprintf("it failed: %s: %s", c.reason, c.message)
	}
	if c, ok := conditionOf(u, "Complete"); ok && c.status == "True" {
		return Current, ""
	}
	if suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); suspended {
		return Current, "" // as declared
	}
	active, _, _ := unstructured.NestedInt64(u.Object, "status", "active")
	succeeded, _, _ := unstructured.NestedInt64(u.Object, "status", "succeeded")
	failed, _, _ := unstructured.NestedInt64(u.Object, "status", "failed")
	if active+succeeded+failed == 0 {
		return InProgress, "no pod has been started"
	}
	return InProgress, fmt.Sprintf("pods: %d running, %d succeeded, %d failed", active, succeeded, failed)
}

// claim is the rule of a PersistentVolumeClaim: it is Current when it is bound. See AwaitsUse
// for claims that may remain unbound.
func claim(u *unstructured.Unstructured) (Status, string) {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	switch phase {
	case "Bound":
		return Current, ""
	case "Lost":
		return Failed, "its volume is lost"
	}
	return InProgress, "it is not bound to a volume"
}

// AwaitsUse returns the storage class of an unbound PersistentVolumeClaim that no scheduled
// pod uses; ok is false for other objects and without a class. If the class binds volumes at
// first use, the caller need not wait: the rollout of the claim's user covers it.
func AwaitsUse(u *unstructured.Unstructured) (class string, ok bool) {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	if u.GetKind() != "PersistentVolumeClaim" || phase != "Pending" || u.GetAnnotations()["volume.kubernetes.io/selected-node"] != "" {
		return "", false
	}
	class, _, _ = unstructured.NestedString(u.Object, "spec", "storageClassName")
	return class, class != ""
}

func namespace(u *unstructured.Unstructured) (Status, string) {
	if phase, _, _ := unstructured.NestedString(u.Object, "status", "phase"); phase != "Active" {
		return InProgress, "it is not active"
	}
	return Current, ""
}

// pod is the rule of a Pod: it is Current when it is ready or, if it runs once, when it has
// succeeded. A failed pod is Failed; kstatus would return Current.
func pod(u *unstructured.Unstructured) (Status, string) {
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	switch {
	case phase == "Failed":
		message, _, _ := unstructured.NestedString(u.Object, "status", "message")
		return Failed, strings.TrimSuffix("it failed: "+message, ": ")
	case phase == "Succeeded":
		return Current, ""
	case RunsOnce(u):
		return InProgress, "it is " + phase
	}
	return byConditions(u)
}

// RunsOnce reports whether an object is a Pod that runs to completion: its restart policy is
// Never or OnFailure.
func RunsOnce(u *unstructured.Unstructured) bool {
	policy, _, _ := unstructured.NestedString(u.Object, "spec", "restartPolicy")
	return u.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Pod"} && (policy == "Never" || policy == "OnFailure")
}

// Working reports whether a live Job has a ready pod, or a Pod that runs once is running.
// Such an object may run for any time without a change of its status.
func Working(u *unstructured.Unstructured) bool {
	switch u.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		ready, _, _ := unstructured.NestedInt64(u.Object, "status", "ready")
		return ready > 0
	case schema.GroupKind{Kind: "Pod"}:
		phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
		return RunsOnce(u) && phase == "Running"
	}
	return false
}

func apiService(u *unstructured.Unstructured) (Status, string) {
	c, ok := conditionOf(u, "Available")
	switch {
	case !ok:
		return InProgress, "the condition Available is not reported yet"
	case c.status != "True":
		return InProgress, c.String()
	}
	return Current, ""
}

// condition is an entry of status.conditions.
type condition struct {
	kind, status, reason, message string
	current                       bool // it is for the object's present generation, or has none
}

// String formats the condition for users: "Ready is False (Reason): message".
func (c condition) String() string {
	text := c.kind + " is " + c.status
	if c.reason != "" {
		text += " (" + c.reason + ")"
	}
	if c.message != "" {
		text += ": " + strings.Join(strings.Fields(c.message), " ")
	}
	return text
}

// conditionOf returns the condition of an object with the given type.
func conditionOf(u *unstructured.Unstructured, kind string) (condition, bool) {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		if fields["type"] != kind {
			continue
		}
		text := func(name string) string { s, _ := fields[name].(string); return s }
		generation, has := fields["observedGeneration"].(int64)
		return condition{
			kind: kind, status: text("status"), reason: text("reason"), message: text("message"),
			current: !has || generation >= u.GetGeneration(),
		}, true
	}
	return condition{}, false
}

// observed reports whether the status is of the object's present generation, which is assumed
// without an observedGeneration.
func observed(u *unstructured.Unstructured) bool {
	generation, found, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return !found || generation >= u.GetGeneration()
}
