package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// kubeletEvents writes the Events a kubelet would about pods that fail. A pod
// that does well gets none: they would triple the writes per pod.
type kubeletEvents struct {
	broadcaster record.EventBroadcaster
	recorders   map[string]record.EventRecorder // by node
}

// newKubeletEvents registers on the pods; nothing is written before run.
func newKubeletEvents(client kubernetes.Interface, pods cache.SharedIndexInformer) *kubeletEvents {
	k := &kubeletEvents{broadcaster: record.NewBroadcaster(), recorders: map[string]record.EventRecorder{}}
	k.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	pods.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if !initial {
				k.compare(&corev1.Pod{}, obj.(*corev1.Pod))
			}
		},
		UpdateFunc: func(before, after any) { k.compare(before.(*corev1.Pod), after.(*corev1.Pod)) },
	})
	return k
}

// run ends the writing when ctx ends.
func (k *kubeletEvents) run(ctx context.Context) {
	<-ctx.Done()
	k.broadcaster.Shutdown()
}

// compare is called for one pod at a time, by the informer.
func (k *kubeletEvents) compare(before, after *corev1.Pod) {
	if after.DeletionTimestamp != nil || after.Spec.NodeName == "" {
		return
	}
	old := map[string]corev1.ContainerStatus{}
	for _, c := range before.Status.ContainerStatuses {
		old[c.Name] = c
	}
	for _, c := range after.Status.ContainerStatuses {
		k.compareContainer(after, old[c.Name], c)
	}
}

func (k *kubeletEvents) compareContainer(pod *corev1.Pod, before, after corev1.ContainerStatus) {
	say := func(kind, reason, format string, args ...any) {
		ref := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			ResourceVersion: pod.ResourceVersion, FieldPath: fmt.Sprintf("spec.containers{%s}", after.Name),
		}
		k.recorder(pod.Spec.NodeName).Eventf(ref, kind, reason, format, args...)
	}
	reason := waitingReason(after)
	switch {
	case reason == "ErrImagePull" && waitingReason(before) != reason:
		say("Normal", "Pulling", "Pulling image %q", after.Image)
		say("Warning", "Failed", "Failed to pull image %q: %s", after.Image, after.State.Waiting.Message)
		say("Warning", "Failed", "Error: ErrImagePull")
	case reason == "ImagePullBackOff" && waitingReason(before) != reason:
		say("Normal", "BackOff", "Back-off pulling image %q", after.Image)
		say("Warning", "Failed", "Error: ImagePullBackOff")
	case reason == "CrashLoopBackOff" && after.RestartCount > before.RestartCount:
		say("Normal", "Pulled", "Container image %q already present on machine", after.Image)
		say("Normal", "Created", "Container created")
		say("Normal", "Started", "Container started")
		say("Warning", "BackOff", "Back-off restarting failed container %s in pod %s_%s(%s)", after.Name, pod.Name, pod.Namespace, pod.UID)
	case after.State.Running != nil && !after.Ready && (before.State.Running == nil || before.Ready) && probed(pod, after):
		say("Warning", "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
	}
}

// probed reports whether a container that is not Ready fails a probe: its own,
// or the one it is asked to fail. Others are merely about to end.
func probed(pod *corev1.Pod, status corev1.ContainerStatus) bool {
	for _, c := range pod.Spec.Containers {
		if c.Name == status.Name && c.ReadinessProbe != nil {
			return true
		}
	}
	return pod.Labels[behaviorKey] == neverReady || strings.HasSuffix(status.Image, ":"+neverReady)
}

func waitingReason(c corev1.ContainerStatus) string {
	if c.State.Waiting == nil {
		return ""
	}
	return c.State.Waiting.Reason
}

func (k *kubeletEvents) recorder(node string) record.EventRecorder {
	if k.recorders[node] == nil {
		k.recorders[node] = k.broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: node})
	}
	return k.recorders[node]
}
