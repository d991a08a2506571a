package variant

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Workloads returns the objects that the references of spec.workloads match, in the order of
// objects; without references, every Deployment. A reference that matches nothing or has a
// kind that supports no variants is an error.
func Workloads(objects []manifest.Object, refs []kubernetes.Reference) ([]manifest.Object, error) {
	for _, r := range orDeployments(refs) {
		if !slices.Contains(kubernetes.VariantKinds(), r.Kind) {
			return nil, deploy.Errorf(deploy.Invalid, "a %s can have no canary and no baseline: name workloads of kind %s in spec.workloads", r.Kind, strings.Join(kubernetes.VariantKinds(), " or "))
		}
		if !slices.ContainsFunc(objects, func(o manifest.Object) bool { return names(r, o) }) {
			return nil, deploy.Errorf(deploy.Invalid, "the application has no %s%s to make a variant of: see spec.workloads", r.Kind, named(r.Name))
		}
	}
	return selected(objects, refs), nil
}

// selected is Workloads without the checks.
func selected(objects []manifest.Object, refs []kubernetes.Reference) (out []manifest.Object) {
	for _, o := range objects {
		if slices.ContainsFunc(orDeployments(refs), func(r kubernetes.Reference) bool { return names(r, o) }) {
			out = append(out, o)
		}
	}
	return out
}

// orDeployments returns refs, or a reference to every Deployment if refs is empty.
func orDeployments(refs []kubernetes.Reference) []kubernetes.Reference {
	if len(refs) == 0 {
		return []kubernetes.Reference{{Kind: "Deployment"}}
	}
	return refs
}

// names reports whether the reference selects the workload: without a name, it selects all
// of its kind.
func names(r kubernetes.Reference, o manifest.Object) bool {
	return isWorkload(o) && r.Kind == o.GetKind() && (r.Name == "" || r.Name == o.GetName())
}

// named returns " named " and the name, for error messages about an object that a reference
// may leave without a name; "" without one.
func named(name string) string {
	if name == "" {
		return ""
	}
	return " named " + name
}

func isWorkload(o manifest.Object) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == "apps" && (gvk.Kind == "Deployment" || gvk.Kind == "StatefulSet" || gvk.Kind == "DaemonSet")
}

// pods returns the number of replicas for the variant's copy of a workload.
func (v Variant) pods(workload manifest.Object) (int32, error) {
	if live, ok := v.Live[manifest.Ref(workload.Unstructured).Key()]; ok {
		return v.Replicas.Of(live), nil
	}
	declared, found, err := unstructured.NestedInt64(workload.Object, "spec", "replicas")
	if err != nil {
		return 0, deploy.Errorf(deploy.Invalid, "%s: %s %s: expected a number of replicas: %w", workload.Origin, workload.GetKind(), workload.GetName(), err)
	}
	if !found {
		declared = 1 // Kubernetes' default
	}
	return v.Replicas.Of(int32(min(declared, 1<<31-1))), nil
}

// usedConfigs returns the ConfigMaps and Secrets among objects that the pods of the
// workloads use.
func usedConfigs(objects, workloads []manifest.Object) (out []manifest.Object) {
	for _, o := range objects {
		if o.GetAPIVersion() != "v1" || o.GetKind() != "ConfigMap" && o.GetKind() != "Secret" {
			continue
		}
		own := manifest.Reference{Kind: o.GetKind(), Name: o.GetName()}
		if slices.ContainsFunc(workloads, func(w manifest.Object) bool {
			return w.GetNamespace() == o.GetNamespace() && slices.Contains(manifest.References(w.Unstructured), own)
		}) {
			out = append(out, o)
		}
	}
	return out
}

// renameUsed changes the references in a workload's copy to the copies of configs and, for a
// StatefulSet's serviceName, of services.
func (v Variant) renameUsed(workload manifest.Object, configs, services []manifest.Object) {
	copied := func(kind, name string) bool {
		return slices.ContainsFunc(slices.Concat(configs, services), func(o manifest.Object) bool {
			return o.GetKind() == kind && o.GetName() == name && o.GetNamespace() == workload.GetNamespace()
		})
	}
	manifest.RenameReferences(workload.Unstructured, func(r manifest.Reference) string {
		if copied(r.Kind, r.Name) {
			return v.name(r.Name)
		}
		return r.Name
	})
	if workload.GetKind() != "StatefulSet" {
		return
	}
	if name, _, _ := unstructured.NestedString(workload.Object, "spec", "serviceName"); copied("Service", name) {
		_ = unstructured.SetNestedField(workload.Object, v.name(name), "spec", "serviceName") // cannot fail: spec is a mapping
	}
}

// ownVolumes makes Kubernetes delete the volumes of a StatefulSet's copy together with it,
// because a variant's data is not needed afterwards. It does nothing if the StatefulSet has
// a persistentVolumeClaimRetentionPolicy.
func ownVolumes(made manifest.Object) error {
	if made.GetKind() != "StatefulSet" {
		return nil
	}
	spec, _ := made.Object["spec"].(map[string]any)
	if spec["volumeClaimTemplates"] == nil || spec["persistentVolumeClaimRetentionPolicy"] != nil {
		return nil
	}
	return setField(made, map[string]any{"whenDeleted": "Delete", "whenScaled": "Retain"}, "spec", "persistentVolumeClaimRetentionPolicy")
}
