package variant

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Services returns only the Service copies that createService adds for the variant. It is
// for the primary, whose workloads are not copied.
func (v Variant) Services(objects []manifest.Object) ([]manifest.Object, error) {
	services, err := selectServices(objects, selected(objects, v.Workloads), v)
	if err != nil {
		return nil, err
	}
	made, err := v.copyAll(nil, services, nil, nil)
	return made, errors.Join(err, v.checkFree(made, objects))
}

func isService(o manifest.Object) bool { return o.GetAPIVersion() == "v1" && o.GetKind() == "Service" }

// selectServices returns the Services to copy: those named v.Service or, if that is "", every
// Service that selects pods of the workloads. It returns an error if there is none.
func selectServices(objects, workloads []manifest.Object, v Variant) (out []manifest.Object, err error) {
	name := v.Service
	for _, o := range objects {
		if !isService(o) || name != "" && o.GetName() != name {
			continue
		}
		if name != "" || slices.ContainsFunc(workloads, func(w manifest.Object) bool { return selects(o, w, v.Label.Key) }) {
			out = append(out, o)
		}
	}
	switch {
	case len(out) > 0:
		return out, nil
	case name != "":
		return nil, deploy.Errorf(deploy.Invalid, "createService: the application has no Service named %s, which spec.service.name is", name)
	}
	return nil, deploy.Errorf(deploy.Invalid, "createService: the application has no Service that selects the pods of its workloads: add one, or leave createService out")
}

// Reached reports whether a Service selects the pods of a workload among objects. Unlike
// selectServices, it does not ignore the variant label.
func Reached(service manifest.Object, objects []manifest.Object) bool {
	return slices.ContainsFunc(objects, func(o manifest.Object) bool { return isWorkload(o) && selects(service, o, "") })
}

// selects reports whether a Service selects the pods of a workload in its namespace. It
// ignores the label variantKey, so the variant of the pods does not matter.
func selects(service, workload manifest.Object, variantKey string) bool {
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	labels, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "template", "metadata", "labels")
	for key, value := range selector {
		if key != variantKey && labels[key] != value {
			return false
		}
	}
	return len(selector) > 0 && service.GetNamespace() == workload.GetNamespace()
}

// private turns the copy of a Service into a ClusterIP Service that selects by label. It
// removes addresses and node ports that belong to the original. A headless Service remains
// headless.
func private(made manifest.Object, label Label) error {
	spec, ok := made.Object["spec"].(map[string]any)
	if !ok {
		return deploy.Errorf(deploy.Invalid, "%s: Service %s has no spec that is a mapping", made.Origin, made.GetName())
	}
	headless := spec["clusterIP"] == "None"
	for _, field := range []string{
		"clusterIP", "clusterIPs", "externalIPs", "externalName", "externalTrafficPolicy", "healthCheckNodePort",
		"loadBalancerIP", "loadBalancerSourceRanges", "loadBalancerClass", "allocateLoadBalancerNodePorts",
	} {
		delete(spec, field)
	}
	if headless {
		spec["clusterIP"] = "None"
	}
	spec["type"] = "ClusterIP"
	ports, _ := spec["ports"].([]any)
	for _, port := range ports {
		if port, ok := port.(map[string]any); ok {
			delete(port, "nodePort")
		}
	}
	return setField(made, label.Value, "spec", "selector", label.Key)
}
