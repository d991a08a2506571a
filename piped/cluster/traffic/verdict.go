package traffic

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Verdict is what the gateways of a route say of it as it is now.
type Verdict struct {
	Accepted bool
	// Refused: a gateway has looked at the route as it is now and will not do all of
	// what it says. Without Accepted and Refused, one has not looked yet.
	Refused bool
	// Reason says which parent says what, for a person; "" when it is accepted.
	Reason string
}

// Judge returns the verdict on a live route of the Gateway API. It is accepted when
// for every parentRef the conditions Accepted and ResolvedRefs are True and none
// says PartiallyInvalid, each for the generation the route has now.
func Judge(route *unstructured.Unstructured) Verdict {
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
			switch v := judgeParent(parent, answer, route.GetGeneration()); {
			case v.Refused:
				return v
			case !v.Accepted:
				pending = v
			}
		}
		if !answered {
			pending = Verdict{Reason: fmt.Sprintf("%s has not said anything of it yet", parent)}
		}
	}
	return pending
}

// parent is what a route is attached to.
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

// String names the parent for a person.
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

// judgeParent reads one parent's conditions.
func judgeParent(p parent, answer map[string]any, generation int64) Verdict {
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
			waiting = Verdict{Reason: fmt.Sprintf("%s has not said %s yet", p, want.kind)}
		case seen < generation && want.status == metav1.ConditionTrue:
			waiting = Verdict{Reason: fmt.Sprintf("%s has not looked at it since it was changed (%s is of generation %d, it has %d)", p, want.kind, seen, generation)}
		case seen >= generation && status != want.status:
			return Verdict{Refused: true, Reason: fmt.Sprintf("%s says %s is %s: %s: %s", p, want.kind, status, text(c, "reason"), text(c, "message"))}
		}
	}
	return waiting
}
