package propagate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Action is how a changed ConfigMap or Secret is propagated to the pods of a workload.
type Action string

// The actions.
const (
	None    Action = "none"    // nothing is done
	Nudge   Action = "nudge"   // an annotation of the pods makes the kubelet sync them at once
	Restart Action = "restart" // a hash of the content in the pod template rolls the pods
)

// Object describes a ConfigMap or Secret that pods may use.
type Object struct {
	Immutable bool
	External  bool // the object is not in Git
}

// Decision is the result of Plan for one ConfigMap or Secret of a workload.
type Decision struct {
	Config manifest.Reference
	Action Action
	Why    string // human-readable reason for None and Restart
	// Follows reports whether the kubelet updates the content in running pods eventually,
	// even without a nudge.
	Follows  bool
	External bool // as in Object
}

// Mode returns the propagation mode of a workload: the value of its annotation, else
// fallback, else auto. An unknown value is an error of kind Invalid.
func Mode(workload *unstructured.Unstructured, fallback kubernetes.PropagationMode) (kubernetes.PropagationMode, error) {
	mode := cmp.Or(fallback, kubernetes.PropagateAuto)
	text, ok := workload.GetAnnotations()[manifest.AnnotationConfigPropagation]
	if !ok {
		return mode, nil
	}
	if !slices.Contains(mode.Values(), text) {
		return mode, deploy.Errorf(deploy.Invalid, "the annotation %s of %s: expected one of %s, found %q",
			manifest.AnnotationConfigPropagation, manifest.Ref(workload), strings.Join(mode.Values(), ", "), text)
	}
	return kubernetes.PropagationMode(text), nil
}

// Plan returns one decision for each ConfigMap and Secret that the workload's pods use,
// sorted by kind and name. It skips objects for which known returns false.
func Plan(mode kubernetes.PropagationMode, workload *unstructured.Unstructured, known func(manifest.Reference) (Object, bool)) []Decision {
	var out []Decision
	rolls := slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, workload.GetKind())
	for _, use := range manifest.ConfigUses(workload) {
		if object, ok := known(use.Reference); ok {
			out = append(out, decide(mode, use, object, rolls))
		}
	}
	return out
}

// decide returns the decision for one object. If rolls is false, changing the pod template
// does not replace the workload's pods; mode restart then nudges mounted volumes instead.
func decide(mode kubernetes.PropagationMode, use manifest.Use, object Object, rolls bool) Decision {
	fixed := fixedBy(use, object)
	d := Decision{Config: use.Reference, Action: None, Why: fixed, Follows: fixed == "", External: object.External}
	restarts := rolls && (mode == kubernetes.PropagateRestart || mode == kubernetes.PropagateAuto && !d.Follows)
	switch {
	case mode == kubernetes.PropagateOff && fixed != "":
		d.Why += ", and configPropagation is off"
	case mode == kubernetes.PropagateOff:
		d.Why = "configPropagation is off"
	case restarts && object.External:
		d.Why = cmp.Or(fixed, "configPropagation is restart") + ", and pods are not restarted for what is not in Git"
	case restarts:
		d.Action, d.Why = Restart, cmp.Or(fixed, "configPropagation is restart")
	case d.Follows:
		d.Action = Nudge
	}
	return d
}

// fixedBy returns why running pods do not see a change of the object, "" if they do.
func fixedBy(use manifest.Use, object Object) string {
	if object.Immutable {
		return "it is immutable"
	}
	for _, way := range use.Ways {
		if way != manifest.ByVolume {
			return fmt.Sprintf("they read it by %s", way)
		}
	}
	return ""
}
