package rollout

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Crash is a container that has ended where it should go on, or has failed: its
// log tells more than its status does.
type Crash struct {
	Namespace, Pod, Container string
	// Previous: the container has been started again since, and the log of what
	// ended is that of the instance before.
	Previous bool
	// Text says how it ended, such as "crashes (2 restarts), last exit code 1".
	Text string
}

// String says the crash in one line.
func (c Crash) String() string {
	return Trouble{Pod: c.Pod, Container: c.Container, Text: c.Text}.String()
}

// Crashes returns the containers of pods that crash, one of each name: replicas
// crash alike. Those that were started again most often come first. Pods that are
// being deleted are passed over: their containers have been told to end.
func Crashes(pods []corev1.Pod) []Crash {
	type found struct {
		Crash
		restarts int32
	}
	var all []found
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, c := range containers(pod) {
			end, crashes := crashOf(c)
			if !crashes || end == nil && c.RestartCount == 0 {
				continue
			}
			all = append(all, found{Crash{
				Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name, Previous: c.State.Terminated == nil, Text: crashText(c, end),
			}, c.RestartCount})
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.restarts, a.restarts) })
	var out []Crash
	for _, f := range all {
		if !slices.ContainsFunc(out, func(c Crash) bool { return c.Container == f.Container }) {
			out = append(out, f.Crash)
		}
	}
	return out
}

// crashed explains a container that ended and is started again and again.
func crashed(pod *corev1.Pod, _ []corev1.Event) (Trouble, bool) {
	for _, c := range containers(pod) {
		end, crashes := crashOf(c)
		if !crashes {
			continue
		}
		text := crashText(c, end)
		if end != nil {
			text = join(text, end.Message)
		}
		return Trouble{Container: c.Name, Text: text, Hard: c.RestartCount >= crashLoop}, true
	}
	return Trouble{}, false
}

// crashOf returns how a container ended last, nil if that is not known, and
// whether that was a crash.
func crashOf(c corev1.ContainerStatus) (end *corev1.ContainerStateTerminated, crashes bool) {
	end = c.LastTerminationState.Terminated
	if c.State.Terminated != nil {
		end = c.State.Terminated
	}
	switch {
	case c.Ready:
		return end, false
	case backsOff(c):
		return end, true
	}
	return end, end != nil && end.ExitCode != 0
}

func backsOff(c corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
}

func crashText(c corev1.ContainerStatus, end *corev1.ContainerStateTerminated) string {
	text := "crashes"
	if backsOff(c) {
		text = "CrashLoopBackOff: crashes again and again"
	}
	text += fmt.Sprintf(" (%s)", count(c.RestartCount, "restart"))
	if end != nil {
		text += ", last " + ending(end)
	}
	return text
}

func ending(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", t.ExitCode)
	switch {
	case t.Reason == "OOMKilled":
		text += ", OOMKilled: it used more memory than its limit"
	case t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed":
		text += ", " + t.Reason
	}
	return text
}
