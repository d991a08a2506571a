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

// hookOf returns when an object runs by Helm's annotations; zero for one that is
// no hook.
//
// Of several events those that a deployment has count; an object for both sides
// of a deployment runs before it. Without a policy, or with
// before-hook-creation, the object of an earlier deployment is deleted first,
// which always happens.
func hookOf(o manifest.Object) manifest.Hook {
	annotations := o.GetAnnotations()
	events, ok := annotations[annotationHook]
	if !ok || strings.TrimSpace(events) == "crd-install" { // obsolete since Helm 3
		return manifest.Hook{}
	}
	hook := manifest.Hook{Phase: manifest.HookOther}
	for event := range words(events) {
		side, what, _ := strings.Cut(event, "-")
		install, upgrade := what == "install", what == "upgrade"
		if !install && !upgrade {
			continue
		}
		switch {
		case side == "pre" && hook.Phase != manifest.HookPre:
			hook.Phase, hook.Install, hook.Upgrade = manifest.HookPre, install, upgrade
		case side == "pre", side == "post" && hook.Phase == manifest.HookPost:
			hook.Install, hook.Upgrade = hook.Install || install, hook.Upgrade || upgrade
		case side == "post" && hook.Phase == manifest.HookOther:
			hook.Phase, hook.Install, hook.Upgrade = manifest.HookPost, install, upgrade
		}
	}
	hook.Weight, _ = strconv.Atoi(strings.TrimSpace(annotations[annotationWeight])) // 0 if it is none, as for Helm
	for policy := range words(annotations[annotationDelete]) {
		hook.DeleteOnSuccess = hook.DeleteOnSuccess || policy == "hook-succeeded"
		hook.DeleteOnFailure = hook.DeleteOnFailure || policy == "hook-failed"
	}
	return hook
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
