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

// Action is what is done with the pods of a workload when an object has changed.
type Action string

// The actions.
const (
	None    Action = "none"    // they keep what they have
	Nudge   Action = "nudge"   // the kubelet is made to look at once
	Restart Action = "restart" // the pod template gets a hash of the content
)

// Object is what is known of a ConfigMap or Secret that pods may use.
type Object struct {
	Immutable bool
	External  bool // it is not in Git
}

// Decision says what is done for one ConfigMap or Secret of a workload.
type Decision struct {
	Config manifest.Reference
	Action Action
	Why    string // for a person, of None and Restart
	// Follows says that pods see the change while they run, whatever is done.
	Follows  bool
	External bool
}

// Mode returns the mode of a workload: what its annotation says, else fallback, else
// auto. The error is of kind Invalid.
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

// Plan decides for each ConfigMap and Secret that reaches the pods of a workload, in the
// order of kind and name. Those that known does not know are left out.
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

// decide returns the decision for one object. Pods that do not roll cannot be restarted by
// another template: their files are nudged in mode restart, too.
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

// fixedBy says why pods that run do not see a change, "" if they do.
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
