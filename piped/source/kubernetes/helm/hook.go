package helm

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/c785c783/piped/piped/manifest"
)

// Helm's annotations of hooks.
const (
	annotationHook   = "helm.sh/hook"
	annotationWeight = "helm.sh/hook-weight"
	annotationDelete = "helm.sh/hook-delete-policy"
)

// hooksOf returns when an object runs by Helm's annotations: one hook for each
// phase, before the objects of the chart and after them, or one that is never
// run; none for an object that is no hook.
//
// Without a policy, or with before-hook-creation, the object of an earlier
// deployment or phase is deleted first, which always happens.
func hooksOf(o manifest.Object) []manifest.Hook {
	annotations := o.GetAnnotations()
	events, ok := annotations[annotationHook]
	if !ok || strings.TrimSpace(events) == "crd-install" { // obsolete since Helm 3
		return nil
	}
	hook := manifest.Hook{Phase: manifest.HookOther}
	hook.Weight, _ = strconv.Atoi(strings.TrimSpace(annotations[annotationWeight])) // 0 if it is none, as for Helm
	for policy := range words(annotations[annotationDelete]) {
		hook.DeleteOnSuccess = hook.DeleteOnSuccess || policy == "hook-succeeded"
		hook.DeleteOnFailure = hook.DeleteOnFailure || policy == "hook-failed"
	}
	var hooks []manifest.Hook
	for _, phase := range []manifest.HookPhase{manifest.HookPre, manifest.HookPost} {
		at := hook
		at.Phase = phase
		for event := range words(events) {
			at.Install = at.Install || event == string(phase)+"-install"
			at.Upgrade = at.Upgrade || event == string(phase)+"-upgrade"
		}
		if at.Install || at.Upgrade {
			hooks = append(hooks, at)
		}
	}
	if len(hooks) == 0 {
		return []manifest.Hook{hook}
	}
	return hooks
}

// words yields the words of a list with commas.
func words(list string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for word := range strings.SplitSeq(list, ",") {
			if !yield(strings.ToLower(strings.TrimSpace(word))) {
				return
			}
		}
	}
}

// byHook orders hooks by phase and weight.
func byHook(a, b manifest.Hook) int {
	place := map[manifest.HookPhase]int{manifest.HookPre: 0, manifest.HookPost: 1, manifest.HookOther: 2}
	return cmp.Or(place[a.Phase]-place[b.Phase], cmp.Compare(a.Weight, b.Weight))
}

// leavesOut reports whether an object is a hook or test that is not wanted.
func (t *Template) leavesOut(o manifest.Object, hooks []manifest.Hook) bool {
	if len(hooks) == 0 {
		return false
	}
	test := false
	for event := range words(o.GetAnnotations()[annotationHook]) {
		test = test || event == "test" || event == "test-success"
	}
	return t.NoHooks || t.NoTests && test
}
