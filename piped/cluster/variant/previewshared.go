package variant

import (
	"fmt"
	"slices"

	"github.com/c785c783/piped/piped/manifest"
)

// shared returns the changes that the preview does not have, each with the reason. What the pull request
// does not change is shared without a word.
func (c *copier) shared() (out []string) {
	for _, o := range c.merged {
		if !c.copied[manifest.Ref(o.Unstructured).Key()] && !c.unchanged(o) {
			out = append(out, fmt.Sprintf("%s %s: %s", o.GetKind(), o.GetName(), c.why(o)))
		}
	}
	for _, o := range c.merged {
		if was := find(c.branch, o); isEntry(o) && was != nil && c.copied[manifest.Ref(o.Unstructured).Key()] && !sameEntry(o, *was) {
			out = append(out, fmt.Sprintf("%s %s: its gateways and hosts are those of the branch until it is merged", o.GetKind(), o.GetName()))
		}
	}
	for _, o := range c.branch {
		if find(c.merged, o) == nil {
			out = append(out, fmt.Sprintf("%s %s: it is deleted when the pull request is merged", o.GetKind(), o.GetName()))
		}
	}
	return out
}

// isEntry reports whether an object leads requests of gateways to Services.
func isEntry(o manifest.Object) bool { return isRoute(o) || isVirtualService(o) }

// sameEntry reports whether two routes have the same gateways and hosts.
func sameEntry(a, b manifest.Object) bool {
	entry := func(o manifest.Object) string {
		spec, _ := o.Object["spec"].(map[string]any)
		return fmt.Sprint(spec["parentRefs"], spec["hostnames"], spec["gateways"], spec["hosts"], spec["exportTo"])
	}
	return entry(a) == entry(b)
}

// why returns why a preview has no copy of an object.
func (c *copier) why(o manifest.Object) string {
	switch kind := o.GetKind(); {
	case o.Hook.Phase != manifest.HookNone || slices.Contains([]string{"Job", "CronJob", "Pod"}, kind):
		return "it is not run for a preview"
	case slices.Contains([]string{"HorizontalPodAutoscaler", "VerticalPodAutoscaler", "ScaledObject", "PodDisruptionBudget"}, kind):
		return "a preview has none; it has the replicas of the manifest"
	case isPolicy(o):
		return "the preview has that of the branch until it is merged"
	case isWorkload(o) && kind == "Deployment" && len(c.Preview.Workloads) == 0:
		return "no Service selects its pods, and spec.workloads does not name it"
	case isWorkload(o):
		return "only Deployments that a Service selects are copied, or what spec.workloads names"
	case o.GetAPIVersion() == "v1" && (kind == "ConfigMap" || kind == "Secret"):
		return "no workload of the preview uses it"
	case isEntry(o) && find(c.branch, o) == nil:
		return "a new route counts when it is merged"
	case isEntry(o):
		return "it leads to no Service of the preview"
	case isService(o):
		return "it selects no pods of the preview"
	case isDestinationRule(o):
		return "it is about no Service of the preview"
	case kind == "Ingress":
		return "a preview gets its requests by HTTPRoutes, GRPCRoutes and VirtualServices"
	}
	return "it is shared with the branch, and changes when the pull request is merged"
}
