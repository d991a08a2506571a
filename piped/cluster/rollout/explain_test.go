package rollout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestExplain reads one file per reason: a pod and events as a kubelet and a scheduler
// write them, the explanation, and the crashed containers.
func TestExplain(t *testing.T) {
	files, err := filepath.Glob("testdata/explain/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Pods   []corev1.Pod   `json:"pods"`
				Events []corev1.Event `json:"events"`
				Want   []string       `json:"want"` // hard ones begin with "!"

				Crashes []string `json:"crashes"` // containers whose logs contain more
			}
			if err := yaml.UnmarshalStrict(data, &c); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, trouble := range Explain(c.Pods, c.Events, epoch) {
				line := trouble.String()
				if trouble.Hard {
					line = "!" + line
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.Want, got); diff != "" {
				t.Errorf("explained (-want +got):\n%s", diff)
			}
			got = nil
			for _, crash := range Crashes(c.Pods) {
				line := crash.Pod + "/" + crash.Container
				if crash.Previous {
					line += ", the instance before"
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.Crashes, got); diff != "" {
				t.Errorf("crashed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDescribeNamesTheFirstFew(t *testing.T) {
	troubles := []Trouble{{Pod: "a", Text: "x"}, {Pod: "b", Container: "app", Text: "y"}, {Pod: "c", Text: "z"}, {Pod: "d", Text: "z"}}
	if got, want := describe(troubles), "pod a: x; pod b, container app: y; and 2 more"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
	if got := describe(nil); got != "" {
		t.Errorf("an empty list is described as %q", got)
	}
}
