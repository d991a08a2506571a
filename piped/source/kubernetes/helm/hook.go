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

// hooksOf returns the hooks of an object according to Helm's annotations: one for each phase
// (pre and post) in which it runs, or one of phase HookOther if it never runs. It returns nil
// for an object that is not a hook.
//
// The policy before-hook-creation needs no field: the object of an earlier deployment or phase
// is always deleted first.
func hooksOf(o manifest.Object) []manifest.Hook {
	annotations := o.GetAnnotations()
	events, ok := annotations[annotationHook]
	if !ok || strings.TrimSpace(events) == "crd-install" { // obsolete since Helm 3
		return nil
	}
	hook := manifest.Hook{Phase: manifest.HookOther}
	hook.Weight, _ = strconv.Atoi(strings.TrimSpace(annotations[annotationWeight])) // 0 if invalid, as in Helm
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

// words yields the items of a comma-separated list in lower case, without spaces around them.
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

// leavesOut reports whether NoHooks or NoTests excludes an object with the given hooks.
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
