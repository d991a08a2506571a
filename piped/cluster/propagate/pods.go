package propagate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// The kubelet annotates pods with their source: "api" for pods of the API server, another
// value for static pods.
const (
	annotationSource  = "kubernetes.io/config.source"
	annotationPresent = "api"
)

// Pods returns the pods to nudge for p, sorted by name, and the number of pods that were
// left out because of Settings.MaxPods. The argument running holds the pods that the
// workload's selector matches. Pods skips pods of other workloads, terminating pods, static
// and mirror pods, and pods created after the change.
func Pods(running []metav1.PartialObjectMetadata, p deploy.Propagation) (pods []metav1.PartialObjectMetadata, over int) {
	for _, pod := range running {
		if pod.DeletionTimestamp == nil && !static(&pod) && Of(&pod, p.Workload) && !pod.CreationTimestamp.After(p.ChangedAt) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(a.Name, b.Name) })
	if most := p.Settings.MaxPods; most > 0 && len(pods) > most {
		pods, over = pods[:most], len(pods)-most
	}
	return pods, over
}

func static(pod *metav1.PartialObjectMetadata) bool {
	source := pod.Annotations[annotationSource]
	return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" || source != "" && source != annotationPresent
}

// Of reports whether a pod belongs to a workload: it is the workload itself (kind Pod), or
// the workload controls it. Indirect owners are recognized by name. A Deployment names its
// ReplicaSets <name>-<pod-template-hash>, a CronJob its Jobs <name>-<number>.
func Of(pod metav1.Object, workload deploy.ObjectRef) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case workload.Kind == "Pod":
		return pod.GetName() == workload.Name
	case owner == nil:
		return false
	case workload.Kind == "CronJob":
		time, ok := strings.CutPrefix(owner.Name, workload.Name+"-")
		return ok && owner.Kind == "Job" && strings.Trim(time, "0123456789") == ""
	case workload.Kind == "Deployment":
		return owner.Kind == "ReplicaSet" && owner.Name == workload.Name+"-"+pod.GetLabels()["pod-template-hash"]
	}
	return owner.Kind == workload.Kind && owner.Name == workload.Name
}

// Notified reports whether a pod already has the annotation value of p's phase.
func Notified(pod *metav1.PartialObjectMetadata, p deploy.Propagation) bool {
	return pod.Annotations[manifest.AnnotationConfigSync] == Wanted(p)
}
