package page

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// rolloutPart is one part of the time of a rollout.
type rolloutPart struct {
	name  string // of its class
	label string
	text  string
	ms    int64
}

// partsOf returns the parts of the time of a rollout that were measured. They are those of its
// slowest pods, so that their sum is not the time of the rollout.
func partsOf(r *modelv1.Rollout) []rolloutPart {
	var out []rolloutPart
	add := func(name, label, text string, ms *int64) {
		if ms != nil {
			out = append(out, rolloutPart{name, label, text, *ms})
		}
	}
	add("schedule", "scheduled", "from its creation until it had a node", r.ScheduleMs)
	add("pull", "pulled", "until its last container started: images and init containers", r.PullMs)
	add("ready", "ready", "from then until it was ready", r.ReadyMs)
	return out
}

// segment is a part as it is drawn, in percent of the whole.
type segment struct{ name, x, width string }

// segmentsOf returns the parts of a rollout beside one another; what is left is the time of pods
// that were replaced one after another.
func segmentsOf(r *modelv1.Rollout) []segment {
	parts := partsOf(r)
	whole := rolloutTook(r)
	var sum int64
	for _, p := range parts {
		sum += p.ms
	}
	if whole = max(whole, sum); whole == 0 {
		return nil
	}
	var out []segment
	var at int64
	for _, p := range parts {
		out = append(out, segment{p.name, percent(float64(at) / float64(whole)), percent(float64(p.ms) / float64(whole))})
		at += p.ms
	}
	return append(out, segment{"rest", percent(float64(at) / float64(whole)), percent(float64(whole-at) / float64(whole))})
}

// percent writes a share of a length in SVG.
func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', 3, 64) + "%" }

// rolloutTime says how long a rollout took, with its parts.
func rolloutTime(r *modelv1.Rollout, now time.Time) string {
	text := "began " + exact(now, r.StartedAtMs)
	if took := rolloutTook(r); took > 0 {
		text += ", took " + millis(took)
	}
	for i, p := range partsOf(r) {
		if i == 0 {
			text += "; slowest pods:"
		} else {
			text += ","
		}
		text += " " + p.label + " " + millis(p.ms)
	}
	return text
}

// rolloutTitle describes a rollout in a line.
func rolloutTitle(r *modelv1.Rollout, now time.Time) string {
	text := rolloutMark(r.Outcome).word + ": " + objectName(r.Workload)
	if r.Reason != "" && r.Outcome != modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE {
		text += " (" + r.Reason + ")"
	}
	return text + " " + rolloutTime(r, now)
}

// rolloutChange says what changed: the replicas of a scaling, else the images.
func rolloutChange(r *modelv1.Rollout) string {
	if r.Kind == modelv1.RolloutKind_ROLLOUT_KIND_SCALING {
		return fmt.Sprintf("%d → %s", r.FromReplicas, plural(r.ToReplicas, "replica", "replicas"))
	}
	return imageNames(r.Images)
}

// imageNames returns images without the paths of their registries.
func imageNames(images []string) string {
	names := make([]string, len(images))
	for i, image := range images {
		names[i] = image[strings.LastIndexByte(image, '/')+1:]
	}
	return strings.Join(names, ", ")
}

// rolloutChanged is rolloutChange with the images before, if they are known and others.
func rolloutChanged(r *modelv1.Rollout) string {
	after, before := rolloutChange(r), imageNames(r.ImagesBefore)
	if r.Kind == modelv1.RolloutKind_ROLLOUT_KIND_SCALING || before == "" || before == after {
		return after
	}
	return before + " → " + after
}

// placeOf describes a workload with its cluster.
func placeOf(o *modelv1.ObjectRef) string {
	if o.GetCluster() == "" {
		return objectName(o)
	}
	return objectName(o) + " on " + o.GetCluster()
}

// rolloutBy says who caused a rollout that no deployment caused.
func rolloutBy(r *modelv1.Rollout) string {
	return cmp.Or(r.CausedBy, "unknown")
}
