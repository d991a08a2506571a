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

// Annotations of pods that the kubelet has from elsewhere than the API server.
const (
	annotationSource  = "kubernetes.io/config.source"
	annotationPresent = "api"
)

// Pods returns, of the running pods that the workload's selector matches, those that p
// is about, by name, and how many were left out because there are more than its
// settings allow. Not among them: pods of other workloads, those that are being
// deleted, static and mirror pods, and pods that were created after the change.
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

// Of reports whether a pod is a workload or is controlled by it. A Deployment
// controls pods through ReplicaSets, which it names after itself and the hash that their
// pods are labelled with; a CronJob does through Jobs, named after itself and a time.
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

// Told reports whether a pod has been told in p's phase.
func Told(pod *metav1.PartialObjectMetadata, p deploy.Propagation) bool {
	return pod.Annotations[manifest.AnnotationConfigSync] == Wanted(p)
}
