package traffic

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Verdict is the status that gateways report for the current generation of a route. If
// neither Accepted nor Refused is set, at least one gateway has not processed it yet.
type Verdict struct {
	Accepted bool
	// Refused is set if a gateway has processed the current generation and does not apply
	// all of it.
	Refused bool
	// Reason is a human-readable text that names the parent and its condition; "" if the
	// route is accepted.
	Reason string
}

// Evaluate returns the verdict on the status of a live Gateway API route. The route is
// accepted if for every parentRef the conditions Accepted and ResolvedRefs are True for the
// route's current generation, and PartiallyInvalid is not True.
func Evaluate(route *unstructured.Unstructured) Verdict {
	refs, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
	answers, _, _ := unstructured.NestedSlice(route.Object, "status", "parents")
	pending := Verdict{Accepted: true}
	for _, r := range refs {
		ref, _ := r.(map[string]any)
		parent := parentOf(ref, route.GetNamespace())
		answered := false
		for _, a := range answers {
			answer, _ := a.(map[string]any)
			to, _ := answer["parentRef"].(map[string]any)
			if parentOf(to, route.GetNamespace()) != parent {
				continue
			}
			answered = true
			switch v := parentVerdict(parent, answer, route.GetGeneration()); {
			case v.Refused:
				return v
			case !v.Accepted:
				pending = v
			}
		}
		if !answered {
			pending = Verdict{Reason: fmt.Sprintf("%s has not reported a status yet", parent)}
		}
	}
	return pending
}

// parent identifies the object that a route is attached to, such as a Gateway listener.
type parent struct {
	group, kind, namespace, name, section string
	port                                  int64
}

func parentOf(ref map[string]any, namespace string) parent {
	port, _ := ref["port"].(int64)
	return parent{
		group: cmp.Or(text(ref, "group"), GatewayGroup), kind: cmp.Or(text(ref, "kind"), "Gateway"),
		namespace: cmp.Or(text(ref, "namespace"), namespace), name: text(ref, "name"), section: text(ref, "sectionName"), port: port,
	}
}

// String returns a human-readable name of the parent.
func (p parent) String() string {
	name := p.kind + " " + p.namespace + "/" + p.name
	if p.section != "" {
		name += " (" + p.section + ")"
	}
	if p.port != 0 {
		name += fmt.Sprintf(" port %d", p.port)
	}
	return name
}

// parentVerdict evaluates the conditions that one parent reports for a route of the given
// generation.
func parentVerdict(p parent, answer map[string]any, generation int64) Verdict {
	conditions := map[string]map[string]any{}
	list, _ := answer["conditions"].([]any)
	for _, v := range list {
		c, _ := v.(map[string]any)
		conditions[text(c, "type")] = c
	}
	waiting := Verdict{Accepted: true}
	for _, want := range []struct {
		kind   string
		status metav1.ConditionStatus
	}{{"Accepted", metav1.ConditionTrue}, {"ResolvedRefs", metav1.ConditionTrue}, {"PartiallyInvalid", metav1.ConditionFalse}} {
		c := conditions[want.kind]
		if c == nil && want.status == metav1.ConditionFalse {
			continue
		}
		seen, _ := c["observedGeneration"].(int64)
		status := metav1.ConditionStatus(text(c, "status"))
		switch {
		case c == nil || status == metav1.ConditionUnknown:
			waiting = Verdict{Reason: fmt.Sprintf("%s has not reported %s yet", p, want.kind)}
		case seen < generation && want.status == metav1.ConditionTrue:
			waiting = Verdict{Reason: fmt.Sprintf("%s has not processed the latest change yet (%s is of generation %d, the route has %d)", p, want.kind, seen, generation)}
		case seen >= generation && status != want.status:
			return Verdict{Refused: true, Reason: fmt.Sprintf("%s says %s is %s: %s: %s", p, want.kind, status, text(c, "reason"), text(c, "message"))}
		}
	}
	return waiting
}
