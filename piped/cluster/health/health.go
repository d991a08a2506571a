// Package health says whether a live object is as it should be. It is a pure
// function of the object, and answers two questions:
//
//   - Of: whether what was applied has come true, for whoever waits for it.
//     Deployments, StatefulSets and DaemonSets are not its business: package
//     rollout decides them. Objects that only describe something, such as
//     ConfigMaps, Services and roles, have no health there, and neither has what
//     depends on the world outside of the cluster, such as the address of an
//     Ingress.
//   - Live: how an object is now, of every kind, for whoever looks at it.
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

// Status is the health of an object.
type Status string

// The statuses. A Failed object does not become Current by waiting.
const (
	Current    Status = "Current"
	InProgress Status = "InProgress"
	Failed     Status = "Failed"
)

// rules are those of the kinds Kubernetes itself has. Their text says in words why
// an object is not Current.
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

// Has reports whether objects of the kind have health at all: the kinds above, those
// that checks name, and every kind that is not Kubernetes' own.
func Has(gvk schema.GroupVersionKind, checks []config.HealthCheck) bool {
	if find(gvk, checks) != nil {
		return true
	}
	if _, ok := rules()[gvk.GroupKind()]; ok {
		return true
	}
	return !builtIn(gvk.Group)
}

// builtIn reports whether a group is Kubernetes' own: such groups have no dot, or
// end in k8s.io. Gateway API, whose kinds have status, belongs to them by name
// only; what its conditions say is traffic routing's to judge.
func builtIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// Of returns the health of a live object, and why it is not Current, for a person.
// A check for the object's kind decides alone. A Job that has ended stays what it became
// while it is being deleted: that is what its ttlSecondsAfterFinished does.
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

// byConditions follows the conditions that most controllers set (kstatus): Ready,
// Reconciling and Stalled, and a status of the object's generation. An object whose
// controller has written nothing yet and never says so is Current.
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

// byCheck follows spec.healthChecks.
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

// job is done when it is complete: one that still runs has not done its work.
func job(u *unstructured.Unstructured) (Status, string) {
	if c, ok := conditionOf(u, "Failed"); ok && c.status == "True" {
		return Failed, fmt.Sprintf("it failed: %s: %s", c.reason, c.message)
	}
	if c, ok := conditionOf(u, "Complete"); ok && c.status == "True" {
		return Current, ""
	}
	if suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend"); suspended {
		return Current, "" // as Git says
	}
	active, _, _ := unstructured.NestedInt64(u.Object, "status", "active")
	succeeded, _, _ := unstructured.NestedInt64(u.Object, "status", "succeeded")
	failed, _, _ := unstructured.NestedInt64(u.Object, "status", "failed")
	if active+succeeded+failed == 0 {
		return InProgress, "no pod has been started"
	}
	return InProgress, fmt.Sprintf("pods: %d running, %d succeeded, %d failed", active, succeeded, failed)
}

// claim is bound to its volume. See AwaitsUse for those that may stay without.
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

// AwaitsUse returns the class of a claim that is not bound and that no scheduled
// pod uses. If volumes of that class are bound at first use, there is nothing to
// wait for: the rollout of what uses the claim tells the rest.
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

// pod is ready, or has done its work if it is one that runs once; one that failed is
// not Current as it is for kstatus.
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

// RunsOnce reports whether an object is a Pod that is not started again after it has
// done its work.
func RunsOnce(u *unstructured.Unstructured) bool {
	policy, _, _ := unstructured.NestedString(u.Object, "spec", "restartPolicy")
	return u.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Pod"} && (policy == "Never" || policy == "OnFailure")
}

// Working reports whether a live Job or Pod runs: nobody knows how long that takes,
// and it does not change meanwhile.
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
		return InProgress, "nobody has said that it is available"
	case c.status != "True":
		return InProgress, c.String()
	}
	return Current, ""
}

// condition is an entry of status.conditions.
type condition struct {
	kind, status, reason, message string
	current                       bool // it is about the object as it is now
}

// String returns the condition for a person.
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

// observed reports whether the status is about the object as it is now, as far as
// it says.
func observed(u *unstructured.Unstructured) bool {
	generation, found, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return !found || generation >= u.GetGeneration()
}
