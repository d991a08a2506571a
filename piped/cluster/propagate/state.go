package propagate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Times of nudges that fail.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
	// retryFor is how long after the change nudges are tried: by then the kubelet has
	// looked by itself.
	retryFor = 10 * time.Minute
)

// namesKept is how many pods an outcome names.
const namesKept = 20

// shown is how much of a hash an annotation holds.
const shown = 10

// secondAfter is the time from the first nudge to the second, if the last comes later.
// The kubelet's cache may have been behind at the first.
const secondAfter = time.Second

// Note returns p with what the content of its ConfigMaps and Secrets is now, by key of
// the object, and tells whether that is a change: it is also one for those that were
// restored, whose other content pods may have seen meanwhile. Objects that p did not know
// yet are taken as told. Nobody is told of it; see Begin.
func Note(p deploy.Propagation, configs map[string]string, restored map[string]bool) (_ deploy.Propagation, changed bool) {
	var keys []string
	for key, hash := range configs {
		if before, known := p.Configs[key]; known && (before != hash || restored[key]) {
			keys = append(keys, key)
		}
	}
	p.Configs = maps.Clone(configs)
	if len(keys) == 0 {
		return p, false
	}
	slices.Sort(keys)
	if p.Phase == deploy.PropagationNudge { // of an earlier change, which is told with this one
		keys = slices.Compact(slices.Sorted(slices.Values(append(keys, p.Changed...))))
	}
	p.Changed = keys
	return p, true
}

// Begin returns p so that the pods are told of its Configs, which changed at some time
// by the cluster's clock. If p.Off they are not.
func Begin(p deploy.Propagation, changedAt, now time.Time) deploy.Propagation {
	p.ChangedAt, p.Attempts, p.Outcome = changedAt, 0, deploy.NudgeOutcome{}
	if p.Off {
		p.Phase, p.NextAt = deploy.PropagationDone, time.Time{}
		return p
	}
	value := valueOf(p.Configs, time.Time{})
	if value == p.Value { // what was put back: a nudge with the value that pods have is none
		value = valueOf(p.Configs, changedAt)
	}
	p.Phase, p.NextAt, p.Value = deploy.PropagationNudge, now.Add(p.Settings.Delay), value
	return p
}

// Ref returns the ConfigMap or Secret of a key of Configs.
func Ref(key string) deploy.ObjectRef {
	parts := strings.SplitN(key, "/", 4) // the group is ""
	return deploy.ObjectRef{Kind: parts[1], Namespace: parts[2], Name: parts[3]}
}

// valueOf names contents, and a time at which they were there if it is not zero.
func valueOf(configs map[string]string, at time.Time) string {
	text, err := json.Marshal(configs) // sorts keys
	if err != nil {
		panic("propagate: hash of texts: " + err.Error()) // unreachable
	}
	if !at.IsZero() {
		text = at.UTC().AppendFormat(text, time.RFC3339Nano)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:shown]
}

// Passed returns p after its pods were told, with the outcome. What failed is tried
// again, later each time, until the kubelet has looked by itself.
func Passed(p deploy.Propagation, outcome deploy.NudgeOutcome, now time.Time) deploy.Propagation {
	if len(outcome.Names) > namesKept {
		outcome.Names = outcome.Names[:namesKept]
	}
	if p.Phase == deploy.PropagationNudge {
		p.Outcome = outcome
	}
	switch {
	case outcome.Problem != "" && now.Sub(p.ChangedAt) < retryFor:
		p.Attempts++
		p.NextAt = now.Add(min(longestRetry, firstRetry<<min(p.Attempts-1, 10)))
	case outcome.Problem == "" && p.Phase == deploy.PropagationNudge && p.Settings.RepeatAfter > secondAfter:
		p.Phase, p.Attempts, p.NextAt = deploy.PropagationSecond, 0, now.Add(secondAfter)
	case outcome.Problem == "" && p.Phase == deploy.PropagationNudge && p.Settings.RepeatAfter > 0:
		p.Phase, p.Attempts, p.NextAt = deploy.PropagationRepeat, 0, now.Add(p.Settings.RepeatAfter)
	case outcome.Problem == "" && p.Phase == deploy.PropagationSecond:
		p.Phase, p.Attempts, p.NextAt = deploy.PropagationRepeat, 0, now.Add(p.Settings.RepeatAfter-secondAfter)
	default:
		p.Phase, p.Attempts, p.NextAt = deploy.PropagationDone, 0, time.Time{}
	}
	return p
}

// Wanted returns the value of the annotation of pods that were nudged in p's phase. An
// equal value would be no change of the pod.
func Wanted(p deploy.Propagation) string {
	switch {
	case p.Phase == deploy.PropagationRepeat && p.Settings.RepeatAfter > secondAfter:
		return p.Value + ".3"
	case p.Phase == deploy.PropagationSecond || p.Phase == deploy.PropagationRepeat:
		return p.Value + ".2"
	}
	return p.Value
}
