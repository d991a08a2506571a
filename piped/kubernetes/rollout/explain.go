package rollout

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Trouble is one reason why a pod does not become ready, or does not go.
type Trouble struct {
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Text      string `json:"text"`
	// Hard: it does not heal by waiting (image, configuration, crash loop).
	Hard bool `json:"hard,omitempty"`
}

// String says the trouble in one line.
func (t Trouble) String() string {
	if t.Container == "" {
		return "pod " + t.Pod + ": " + t.Text
	}
	return "pod " + t.Pod + ", container " + t.Container + ": " + t.Text
}

// describe joins the first few troubles.
func describe(troubles []Trouble) string {
	const shown = 2
	var lines []string
	for i, t := range troubles {
		if i == shown {
			break
		}
		lines = append(lines, t.String())
	}
	return strings.Join(lines, "; ")
}

// Explain says why pods do not become ready or do not stop, the most telling
// reason of each pod first. Events are those of the pods, in any order.
func Explain(pods []corev1.Pod, events []corev1.Event, now time.Time) []Trouble { return nil }
