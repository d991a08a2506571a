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

// Trouble is one reason why a pod does not become ready, or does not stop.
type Trouble struct {
	Pod       string `json:"pod,omitempty"` // "" when there is no pod: it cannot be created
	Container string `json:"container,omitempty"`
	Text      string `json:"text"`
	// Hard: it does not heal by waiting (image, configuration, crash loop).
	Hard bool `json:"hard,omitempty"`
	// Refused: pods cannot be created.
	Refused bool `json:"refused,omitempty"`
}

// String says the trouble in one line.
func (t Trouble) String() string {
	switch {
	case t.Pod == "":
		return t.Text
	case t.Container == "":
		return "pod " + t.Pod + ": " + t.Text
	}
	return "pod " + t.Pod + ", container " + t.Container + ": " + t.Text
}

// describe joins the first few troubles.
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

// crashLoop is how many restarts make a crash loop one that does not heal.
const crashLoop = 3

// slowStop is how long past its grace period a pod may take to stop.
const slowStop = 5 * time.Second

// Explain says why pods do not become ready or do not stop, in words: the most
// telling reason of each pod, those that do not heal first. Events are those of
// the pods, and of what creates them since the rollout began, in any order;
// without them some reasons are less precise.
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

// refusals reads from the events of what creates the pods that the last attempt
// to create one failed.
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

// Ready reports whether a pod is ready to serve.
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

// stopping explains a pod that takes longer to stop than it may. The deletion
// timestamp is the moment at which its grace period ends.
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

// stoppingPods returns how many pods are stopping, and when the grace period of the last
// of them ends, with the time that stopping may take on top.
func stoppingPods(pods []corev1.Pod) (n int32, until time.Time) {
	for i := range pods {
		if at := pods[i].DeletionTimestamp; at != nil {
			n, until = n+1, latest(until, at.Add(slowStop))
		}
	}
	return n, until
}

// containers returns the statuses of init containers first: they must end
// before the others start.
func containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// imageReasons are the kubelet's waiting reasons about images.
var imageReasons = map[string]string{
	"ErrImagePull":              "the image cannot be pulled",
	"ImagePullBackOff":          "the image cannot be pulled",
	"InvalidImageName":          "the image name is not valid",
	"ErrImageNeverPull":         "the image is not on the node and its pull policy is Never",
	"ImageInspectError":         "the image cannot be inspected",
	"SignatureValidationFailed": "the image's signature is not valid",
	"RegistryUnavailable":       "the image registry cannot be reached",
}

// configReasons are those about the container's configuration: the message
// names the missing ConfigMap, Secret or key, or the command that is not there.
var configReasons = map[string]string{
	"CreateContainerConfigError": "its configuration cannot be made",
	"CreateContainerError":       "the container cannot be created",
	"RunContainerError":          "the container cannot be started",
	"PreCreateHookError":         "the container cannot be created",
	"PostStartHookError":         "the postStart hook fails",
}

// waiting explains a container that the kubelet cannot start.
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

// accessHint says where to look when a registry refuses to give an image. Many
// refuse what does not exist with the same words.
func accessHint(message string) string {
	message = strings.ToLower(message)
	for _, words := range []string{"unauthorized", "forbidden", "denied", "no basic auth credentials", "authentication required"} {
		if strings.Contains(message, words) {
			return ", the registry refuses access, look at imagePullSecrets"
		}
	}
	return ""
}

// pullMessage prefers the kubelet's event about the pull, which says why, to
// the status, which in a back-off only says that there is one.
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

// unscheduled gives the scheduler's reason.
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

// unmounted explains a pod whose volumes or sandbox are not ready: only events
// say so.
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

// evicted explains a pod that has ended as a whole.
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

// unready explains a container that runs but is not ready, with what its probe
// said last.
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

// aboutContainer reports whether e names no container or the given one; the
// kubelet writes spec.containers{name}.
func aboutContainer(e corev1.Event, name string) bool {
	path := e.InvolvedObject.FieldPath
	return path == "" || strings.HasSuffix(path, "{"+name+"}")
}

// newest returns the latest of the pod's events that match, or nil.
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

func eventTime(e *corev1.Event) time.Time {
	return latest(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)
}

// join appends the cluster's own words, on one line.
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

// PodOwners returns the UIDs of the objects that own pods of the workload, and
// which of them the pods that roll out belong to.
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
