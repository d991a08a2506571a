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

// Backoff of failed nudges.
const (
	firstRetry   = time.Second
	longestRetry = time.Minute
	// retryFor is how long after the change failed nudges are retried. After that time the
	// kubelet has synced the pods on its own.
	retryFor = 10 * time.Minute
)

// namesKept is the maximum number of pod names in an outcome.
const namesKept = 20

// shown is the number of hex digits of the hash in an annotation.
const shown = 10

// secondAfter is the delay between the first and the second nudge. The second nudge is
// needed because the kubelet's cache may have been stale at the first. If
// Settings.RepeatAfter is not longer, it replaces this delay and there is no third nudge; if
// it is 0, there is only one nudge.
const secondAfter = time.Second

// Note records the current content hashes of p's ConfigMaps and Secrets, by key of the
// object. It reports whether a known object changed or was restored: pods may have read the
// other content before it was restored. Objects that are new to p are no change. Note
// schedules no nudge; Begin does.
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
	if p.Phase == deploy.PropagationNudge { // merge with an earlier change whose nudge is pending
		keys = slices.Compact(slices.Sorted(slices.Values(append(keys, p.Changed...))))
	}
	p.Changed = keys
	return p, true
}

// Begin schedules the first nudge for p.Configs at now + Settings.Delay; if p.Off, it marks p
// as done without a nudge. changedAt is the time of the change by the cluster's clock.
func Begin(p deploy.Propagation, changedAt, now time.Time) deploy.Propagation {
	p.ChangedAt, p.Attempts, p.Outcome = changedAt, 0, deploy.NudgeOutcome{}
	if p.Off {
		p.Phase, p.NextAt = deploy.PropagationDone, time.Time{}
		return p
	}
	value := valueOf(p.Configs, time.Time{})
	if value == p.Value { // restored content: an equal value would not change the pods
		value = valueOf(p.Configs, changedAt)
	}
	p.Phase, p.NextAt, p.Value = deploy.PropagationNudge, now.Add(p.Settings.Delay), value
	return p
}

// Ref returns the ConfigMap or Secret that a key of Propagation.Configs denotes.
func Ref(key string) deploy.ObjectRef {
	parts := strings.SplitN(key, "/", 4) // the group is ""
	return deploy.ObjectRef{Kind: parts[1], Namespace: parts[2], Name: parts[3]}
}

// valueOf returns the annotation value for contents: a hash of configs and, unless it is
// zero, of the time.
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

// Passed returns p after a round of nudges with the given outcome: in the next phase, or
// with a retry of this one. Failed nudges are retried with exponential backoff for retryFor.
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

// Wanted returns the annotation value of pods that were nudged in p's phase. It differs
// between phases, because an equal value does not change the pod.
func Wanted(p deploy.Propagation) string {
	switch {
	case p.Phase == deploy.PropagationRepeat && p.Settings.RepeatAfter > secondAfter:
		return p.Value + ".3"
	case p.Phase == deploy.PropagationSecond || p.Phase == deploy.PropagationRepeat:
		return p.Value + ".2"
	}
	return p.Value
}
