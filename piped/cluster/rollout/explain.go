package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// Trouble is one reason why a pod does not become ready, does not stop or cannot be created.
type Trouble struct {
	Pod       string `json:"pod,omitempty"` // "" if the pod cannot be created
	Container string `json:"container,omitempty"`
	Text      string `json:"text"`
	// Hard reports that waiting does not fix it (image, configuration, crash loop).
	Hard bool `json:"hard,omitempty"`
	// Refused reports that pods cannot be created.
	Refused bool `json:"refused,omitempty"`
}

// String returns the trouble in one line.
func (t Trouble) String() string {
	switch {
	case t.Pod == "":
		return t.Text
	case t.Container == "":
		return "pod " + t.Pod + ": " + t.Text
	}
	return "pod " + t.Pod + ", container " + t.Container + ": " + t.Text
}

// describe joins the first two troubles and the number of the others.
func describe(troubles []Trouble) string {
	const shown = 2
	var lines []string
	for _, t := range troubles[:min(shown, len(troubles))] {
		lines = append(lines, t.String())
	}
	if more := len(troubles) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

// crashLoop is the number of restarts from which a crash is Hard.
const crashLoop = 3

// slowStop is how long a pod may take to stop after its grace period.
const slowStop = 5 * time.Second

// Explain describes why pods do not become ready or do not stop: the most specific reason
// for each pod, Hard ones first. Events are those of the pods, and those since the rollout
// began of the object that creates the pods, in any order. Without events some reasons are
// less precise.
func Explain(pods []corev1.Pod, events []corev1.Event, now time.Time) []Trouble {
	troubles := refusals(events)
	for i := range pods {
		if t, ok := explainPod(&pods[i], events, now); ok {
			troubles = append(troubles, t)
		}
	}
	slices.SortStableFunc(troubles, func(a, b Trouble) int {
		if a.Hard != b.Hard {
			if a.Hard {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Pod, b.Pod)
	})
	return troubles
}

// refusals returns a trouble if the last attempt to create a pod failed, according to the
// events of the object that creates pods.
func refusals(events []corev1.Event) []Trouble {
	var last *corev1.Event
	for i := range events {
		e := &events[i]
		if e.InvolvedObject.Kind == "Pod" || e.Reason != "FailedCreate" && e.Reason != "SuccessfulCreate" {
			continue
		}
		newer := last == nil || eventTime(e).After(eventTime(last))
		if newer || eventTime(e).Equal(eventTime(last)) && e.Reason == "SuccessfulCreate" {
			last = e
		}
	}
	if last == nil || last.Reason != "FailedCreate" {
		return nil
	}
	return []Trouble{{Text: join("pods cannot be created", last.Message), Refused: true}}
}

// explainPod returns the most specific reason why a pod is not ready or does not stop, and
// whether there is one.
func explainPod(pod *corev1.Pod, events []corev1.Event, now time.Time) (Trouble, bool) {
	if pod.DeletionTimestamp != nil {
		return stopping(pod, now)
	}
	if Ready(pod) {
		return Trouble{}, false
	}
	for _, explain := range []func(*corev1.Pod, []corev1.Event) (Trouble, bool){
		waiting, crashed, unscheduled, unmounted, evicted, unready,
	} {
		if t, ok := explain(pod, events); ok {
			t.Pod = pod.Name
			return t, true
		}
	}
	return Trouble{}, false
}

// Ready reports whether the condition Ready of a pod is true.
func Ready(pod *corev1.Pod) bool {
	c := podCondition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// stopping explains a pod that is still running slowStop after its grace period. The
// deletion timestamp is the end of that period.
func stopping(pod *corev1.Pod, now time.Time) (Trouble, bool) {
	late := now.Sub(pod.DeletionTimestamp.Time)
	if late < slowStop {
		return Trouble{}, false
	}
	text := fmt.Sprintf("still stopping %s after its grace period ended", late.Round(time.Second))
	if len(pod.Finalizers) > 0 {
		text += ", held by finalizer " + strings.Join(pod.Finalizers, ", ")
	}
	return Trouble{Pod: pod.Name, Text: text}, true
}

// stoppingPods returns the number of terminating pods, and when the last of them should be
// gone by the cluster's clock: its grace period plus slowStop.
func stoppingPods(pods []corev1.Pod) (n int32, until time.Time) {
	for i := range pods {
		if at := pods[i].DeletionTimestamp; at != nil {
			n, until = n+1, latest(until, at.Add(slowStop))
		}
	}
	return n, until
}

// containers returns the statuses of all containers, init containers first: they must end
// before the others start.
func containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// imageReasons describes the waiting reasons of the kubelet that concern images.
var imageReasons = map[string]string{
	"ErrImagePull":              "the image cannot be pulled",
	"ImagePullBackOff":          "the image cannot be pulled",
	"InvalidImageName":          "the image name is not valid",
	"ErrImageNeverPull":         "the image is not on the node and its pull policy is Never",
	"ImageInspectError":         "the image cannot be inspected",
	"SignatureValidationFailed": "the image's signature is not valid",
	"RegistryUnavailable":       "the image registry cannot be reached",
}

// configReasons describes the waiting reasons that concern the configuration of a container.
// The status message names the missing ConfigMap, Secret, key or command.
var configReasons = map[string]string{
	"CreateContainerConfigError": "its configuration cannot be made",
	"CreateContainerError":       "the container cannot be created",
	"RunContainerError":          "the container cannot be started",
	"PreCreateHookError":         "the container cannot be created",
	"PostStartHookError":         "the postStart hook fails",
}

// waiting explains a container that the kubelet cannot start because of its image or
// configuration.
func waiting(pod *corev1.Pod, events []corev1.Event) (Trouble, bool) {
	for _, c := range containers(pod) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		what, image := imageReasons[w.Reason]
		if !image {
			what = configReasons[w.Reason]
		}
		if what == "" {
			continue
		}
		message := w.Message
		if image {
			message = pullMessage(pod, w.Message, events)
			what += " (" + c.Image + ")" + accessHint(message)
		}
		return Trouble{Container: c.Name, Text: join(w.Reason+": "+what, message), Hard: true}, true
	}
	return Trouble{}, false
}

// accessHint returns a hint at imagePullSecrets if the registry denied access, otherwise "".
// Many registries return the same error for an image that does not exist.
func accessHint(message string) string {
	message = strings.ToLower(message)
	for _, words := range []string{"unauthorized", "forbidden", "denied", "no basic auth credentials", "authentication required"} {
		if strings.Contains(message, words) {
			return ", the registry refuses access, check imagePullSecrets"
		}
	}
	return ""
}

// pullMessage returns why the kubelet cannot pull an image. During a back-off the status
// often contains only that fact, while the kubelet's event contains the cause.
func pullMessage(pod *corev1.Pod, message string, events []corev1.Event) string {
	if message != "" && !strings.HasPrefix(message, "Back-off pulling image") {
		return message
	}
	if strings.Contains(message, "ErrImagePull:") {
		return message
	}
	e := newest(pod, events, func(e corev1.Event) bool {
		return e.Reason == "Failed" && strings.HasPrefix(e.Message, "Failed to pull image")
	})
	if e == nil {
		return message
	}
	return e.Message
}

// unscheduled explains a pod without a node by the message of the scheduler.
func unscheduled(pod *corev1.Pod, _ []corev1.Event) (Trouble, bool) {
	c := podCondition(pod, corev1.PodScheduled)
	switch {
	case c == nil || c.Status == corev1.ConditionTrue:
		return Trouble{}, false
	case c.Reason == corev1.PodReasonSchedulingGated:
		return Trouble{Text: join("waits for its scheduling gates", c.Message)}, true
	}
	return Trouble{Text: join("cannot be scheduled", c.Message)}, true
}

// unmounted explains a pod without a started container by the events about its volumes and
// sandbox. The status does not contain these problems.
func unmounted(pod *corev1.Pod, events []corev1.Event) (Trouble, bool) {
	reasons := map[string]string{
		"FailedMount":            "a volume cannot be mounted",
		"FailedAttachVolume":     "a volume cannot be attached",
		"FailedMapVolume":        "a volume cannot be mapped",
		"FailedCreatePodSandBox": "the pod's sandbox cannot be created",
	}
	started := slices.ContainsFunc(containers(pod), func(c corev1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil
	})
	if started {
		return Trouble{}, false
	}
	e := newest(pod, events, func(e corev1.Event) bool { return reasons[e.Reason] != "" })
	if e == nil {
		return Trouble{}, false
	}
	return Trouble{Text: join(reasons[e.Reason], e.Message)}, true
}

// evicted explains a pod in phase Failed, such as an evicted one.
func evicted(pod *corev1.Pod, _ []corev1.Event) (Trouble, bool) {
	if pod.Status.Phase != corev1.PodFailed {
		return Trouble{}, false
	}
	what := "failed"
	if pod.Status.Reason != "" {
		what = pod.Status.Reason
	}
	return Trouble{Text: join(what, pod.Status.Message)}, true
}

// unready explains a container that runs but is not ready by the last failure of its probe.
// If all are ready, it explains a readiness gate.
func unready(pod *corev1.Pod, events []corev1.Event) (Trouble, bool) {
	for _, c := range containers(pod) {
		if c.State.Running == nil || c.Ready {
			continue
		}
		e := newest(pod, events, func(e corev1.Event) bool {
			return e.Reason == "Unhealthy" && aboutContainer(e, c.Name)
		})
		if e == nil {
			if slices.ContainsFunc(pod.Status.InitContainerStatuses, func(i corev1.ContainerStatus) bool { return i.Name == c.Name }) {
				return Trouble{Container: c.Name, Text: "init container is still running"}, true
			}
			return Trouble{Container: c.Name, Text: "runs but is not ready"}, true
		}
		return Trouble{Container: c.Name, Text: join("runs but is not ready", e.Message)}, true
	}
	return unmetGate(pod)
}

// unmetGate explains a pod that waits for a readiness gate.
func unmetGate(pod *corev1.Pod) (Trouble, bool) {
	for _, gate := range pod.Spec.ReadinessGates {
		c := podCondition(pod, gate.ConditionType)
		if c == nil {
			return Trouble{Text: fmt.Sprintf("waits for readiness gate %s", gate.ConditionType)}, true
		}
		if c.Status != corev1.ConditionTrue {
			return Trouble{Text: join(fmt.Sprintf("waits for readiness gate %s", gate.ConditionType), c.Message)}, true
		}
	}
	return Trouble{}, false
}

// aboutContainer reports whether an event concerns the named container or no specific one.
// The kubelet writes the field path spec.containers{name}.
func aboutContainer(e corev1.Event, name string) bool {
	path := e.InvolvedObject.FieldPath
	return path == "" || strings.HasSuffix(path, "{"+name+"}")
}

// newest returns the latest event of the pod that match accepts, or nil.
func newest(pod *corev1.Pod, events []corev1.Event, match func(corev1.Event) bool) *corev1.Event {
	var found *corev1.Event
	for i := range events {
		e := &events[i]
		if e.InvolvedObject.UID != "" && e.InvolvedObject.UID != pod.UID || e.InvolvedObject.Name != pod.Name || !match(*e) {
			continue
		}
		if found == nil || eventTime(e).After(eventTime(found)) {
			found = e
		}
	}
	return found
}

// eventTime returns the latest timestamp of an event. Which timestamps are set depends on
// the client that created the event.
func eventTime(e *corev1.Event) time.Time {
	return latest(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

// join appends a message of the cluster to text, on one line and limited to 400 characters.
func join(text, message string) string {
	const longest = 400
	message = strings.Join(strings.Fields(message), " ")
	if runes := []rune(message); len(runes) > longest {
		message = string(runes[:longest]) + "..."
	}
	if message == "" {
		return text
	}
	return text + ": " + message
}

// PodOwners returns the UIDs of all owners of the workload's pods, and as target the owner
// of the pods that roll out. For a Deployment the owners are its ReplicaSets, and target is
// "" until the new ReplicaSet exists. For other kinds the workload itself is the only owner.
func PodOwners(rec deploy.Rollout, s Snapshot) (target string, owners map[string]bool) {
	if s.Workload.Kind != KindDeployment {
		return s.Workload.UID, map[string]bool{s.Workload.UID: true}
	}
	owners = map[string]bool{}
	e := evaluation{rec: rec, s: s, w: s.Workload}
	found, others, _ := e.split()
	if found != nil {
		target = found.UID
		owners[found.UID] = true
	}
	for _, r := range others {
		owners[r.UID] = true
	}
	return target, owners
}
