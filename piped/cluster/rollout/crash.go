package rollout

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Crash is a container that is not ready because it exited with an error or is in
// CrashLoopBackOff. Its log usually shows more than its status.
type Crash struct {
	Namespace, Pod, Container string
	// Previous reports that the crashed instance is not the current one, so that its log is
	// the previous log (kubectl logs --previous).
	Previous bool
	// Text describes how it ended, such as "crashes (2 restarts), last exit code 1".
	Text string
}

// String returns the crash in one line.
func (c Crash) String() string {
	return Trouble{Pod: c.Pod, Container: c.Container, Text: c.Text}.String()
}

// Crashes returns the crashed containers of pods that have a log, those with most restarts
// first. It returns one per container name, because replicas crash alike. It ignores pods
// that are being deleted, whose containers are expected to end.
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

// crashed explains a container that crashes. The trouble is Hard after crashLoop restarts.
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

// crashOf returns the last termination of a container, nil if unknown, and whether the
// container crashes: it is not ready, and is in CrashLoopBackOff or exited with a code other
// than 0.
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

// backsOff reports whether a container waits in CrashLoopBackOff.
func backsOff(c corev1.ContainerStatus) bool {
	return c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff"
}

// crashText describes a crash with its number of restarts and, if end is known, how the
// container ended.
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

// ending describes a termination by its exit code and reason.
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
