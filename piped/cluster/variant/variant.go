package variant

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Variant describes how a variant is created from an application's objects.
type Variant struct {
	Name   kubernetes.Variant // for error messages
	Suffix string             // appended to the names of the copies, after a dash
	Label  Label

	Workloads []kubernetes.Reference // the workloads to copy; empty: every Deployment
	Replicas  kubernetes.Replicas
	// Live is the current number of pods of workloads that an autoscaler scales, by
	// deploy.ObjectRef.Key. It takes precedence over the number in Git.
	Live map[string]int32

	CreateService bool
	Service       string // the Service to copy; "": every Service that selects a workload
	Patches       []kubernetes.Patch
}

// Make returns the variant's objects in the order ConfigMaps and Secrets, Services,
// workloads. The argument holds all rendered objects of the application.
func (v Variant) Make(objects []manifest.Object) ([]manifest.Object, error) {
	declared, err := Workloads(objects, v.Workloads)
	if err != nil {
		return nil, err
	}
	pods := map[string]int32{} // by the declared replicas, before patches
	for _, w := range declared {
		if pods[manifest.Ref(w.Unstructured).Key()], err = v.pods(w); err != nil {
			return nil, err
		}
	}
	objects, err = patch(objects, v.Patches)
	if err != nil {
		return nil, err
	}
	workloads, err := Workloads(objects, v.Workloads)
	if err != nil {
		return nil, err
	}
	configs := usedConfigs(objects, workloads)
	var services []manifest.Object
	if v.CreateService {
		if services, err = selectServices(objects, workloads, v); err != nil {
			return nil, err
		}
	}
	if err := v.checkPatches(slices.Concat(configs, services, workloads)); err != nil {
		return nil, err
	}
	made, err := v.copyAll(configs, services, workloads, pods)
	return made, errors.Join(err, v.checkFree(made, objects))
}

// checkFree returns an error for each copy that has the name of an application's object.
// Such a copy would overwrite the object, and removing the variant would delete it.
func (v Variant) checkFree(made, objects []manifest.Object) error {
	own := map[deploy.ObjectRef]manifest.Object{}
	for _, o := range objects {
		own[manifest.Ref(o.Unstructured)] = o
	}
	var problems []error
	for _, m := range made {
		if o, taken := own[manifest.Ref(m.Unstructured)]; taken {
			problems = append(problems, deploy.Errorf(deploy.Invalid, "%s: the copy of this %s for the %s would have the name %s, which another one has at %s: choose another suffix than %q for the stage, or another name",
				m.Origin, m.GetKind(), v.Name, m.GetName(), o.Origin, v.Suffix))
		}
	}
	return errors.Join(problems...)
}

// copyAll returns renamed copies of the given objects, in this order. The workloads' copies
// use the copies of configs and services; pods holds their replicas by key of the original.
func (v Variant) copyAll(configs, services, workloads []manifest.Object, pods map[string]int32) (out []manifest.Object, err error) {
	var problems []error
	add := func(o manifest.Object, make func(manifest.Object) error) {
		made := v.rename(o)
		if err := make(made); err != nil {
			problems = append(problems, err)
		}
		problems = append(problems, checkName(made, v.Suffix))
		out = append(out, made)
	}
	for _, o := range configs {
		add(o, func(manifest.Object) error { return nil })
	}
	for _, o := range services {
		add(o, func(made manifest.Object) error { return private(made, v.Label) })
	}
	for _, o := range workloads {
		add(o, func(made manifest.Object) error {
			v.renameUsed(made, configs, services)
			if err := errors.Join(v.Label.Add(made), ownVolumes(made)); err != nil {
				return err
			}
			return setField(made, int64(pods[manifest.Ref(o.Unstructured).Key()]), "spec", "replicas")
		})
	}
	return out, errors.Join(problems...)
}

// rename returns a copy of an object with the variant's name. It removes the annotation
// helm.sh/resource-policy, so that the copy is deleted even if the original is kept.
func (v Variant) rename(o manifest.Object) manifest.Object {
	made := o.Clone()
	made.SetName(v.name(o.GetName()))
	if annotations := made.GetAnnotations(); annotations[manifest.AnnotationResourcePolicy] != "" {
		delete(annotations, manifest.AnnotationResourcePolicy)
		made.SetAnnotations(annotations)
	}
	return made
}

func (v Variant) name(of string) string { return of + "-" + v.Suffix }

// limit returns the maximum length of a name of the kind. The name of a Service is a DNS
// label. The name of a StatefulSet, followed by a hash, is a label value of its pods.
func limit(kind string) int {
	switch kind {
	case "Service":
		return validation.DNS1035LabelMaxLength
	case "StatefulSet":
		return validation.DNS1123LabelMaxLength - len("-0123456789")
	}
	return validation.DNS1123SubdomainMaxLength
}

func checkName(made manifest.Object, suffix string) error {
	name, longest := made.GetName(), limit(made.GetKind())
	if len(name) <= longest {
		return nil
	}
	return deploy.Errorf(deploy.Invalid, "%s: the name %s of the %s has %d characters, and Kubernetes allows %d: choose a shorter suffix than %q for the stage, or a shorter name",
		made.Origin, name, made.GetKind(), len(name), longest, suffix)
}
