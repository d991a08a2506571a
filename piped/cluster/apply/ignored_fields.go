package apply

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
)

// dropInjected removes fields that controllers always set from a desired object: the CA
// bundles of webhooks, definitions and API services if Git has only a placeholder, and the
// rules of aggregated ClusterRoles.
func dropInjected(u *unstructured.Unstructured) {
	switch groupKind := u.GroupVersionKind().GroupKind(); groupKind {
	case schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"},
		schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:
		webhooks, _ := u.Object["webhooks"].([]any)
		for _, webhook := range webhooks {
			if fields, ok := webhook.(map[string]any); ok {
				dropPlaceholder(fields, "clientConfig", "caBundle")
			}
		}
	case cluster.CRDKind():
		dropPlaceholder(u.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	case schema.GroupKind{Group: "apiregistration.k8s.io", Kind: "APIService"}:
		dropPlaceholder(u.Object, "spec", "caBundle")
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:
		if rule, _ := u.Object["aggregationRule"].(map[string]any); len(rule) > 0 {
			delete(u.Object, "rules")
		}
	}
}

// dropPlaceholder removes an empty CA bundle, or one with only a line break, the conventional
// placeholder for an injected one.
func dropPlaceholder(fields map[string]any, path ...string) {
	if text, _, _ := unstructured.NestedString(fields, path...); text == "" || text == "Cg==" || text == "\n" {
		unstructured.RemoveNestedField(fields, path...)
	}
}

// ignoreRules returns the rules of Request.Yield for an object.
func (r *applyRun) ignoreRules(u *unstructured.Unstructured) []config.IgnoreRule {
	return slices.DeleteFunc(slices.Clone(r.req.Yield), func(rule config.IgnoreRule) bool { return !appliesTo(rule, u) })
}

// ignoreFields removes the fields not managed by Git from the desired object if another
// manager owns them. It sets fields that only the agent owns to their live values, because
// the API server removes or resets a field that its last owner omits.
func (r *applyRun) ignoreFields(t *target) {
	live := t.liveObject()
	if live == nil {
		return
	}
	for _, rule := range r.ignoreRules(t.desired) {
		ours, others := leavesByOwner(live)
		for _, steps := range meant(rule, live) {
			ignoreField(t.desired, live, steps, ours, others)
		}
	}
}

// sendComplete makes the desired object of a recreation complete: it restores the fields not
// managed by Git with their values in Git, and sets the live replicas if an autoscaler scales
// the object.
func (r *applyRun) sendComplete(ctx context.Context, t *target) error {
	if t.complete == nil {
		return nil
	}
	live, path := t.liveObject(), []string{"spec", "replicas"}
	if _, decided, _ := unstructured.NestedFieldNoCopy(t.desired.Object, path...); !decided {
		scaled := replicasOwner(live.GetManagedFields()) != "" || r.scaled[scaleTargetOf(live)]
		err := r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
			return r.cluster.applyLiveReplicas(ctx, t.desired, live, scaled)
		})
		if err != nil {
			return r.cluster.explain(t.source, "look for an autoscaler of", err)
		}
	}
	n, decided, _ := unstructured.NestedInt64(t.desired.Object, path...)
	hash := configHash(t.desired)
	t.desired, t.complete = t.complete, nil
	if decided {
		// It fails on a malformed spec, which the API server refuses.
		_ = unstructured.SetNestedField(t.desired.Object, n, path...)
	}
	if t.isWorkload() {
		setConfigHash(t.desired, hash)
	}
	return nil
}

// leavesByOwner returns the fields of a live object that the agent owns, and the fields that
// other managers own. Neither contains status, nor the inherited fields.
func leavesByOwner(live *unstructured.Unstructured) (ours, others []leaf) {
	for _, e := range live.GetManagedFields() {
		switch {
		case isOurs(e):
			ours = append(ours, leavesOf(e)...)
		case e.Subresource == "status", inherited(e):
		default:
			others = append(others, leavesOf(e)...)
		}
	}
	return ours, others
}

// ignoreField is ignoreFields for the field at steps. A part of a value that another manager
// owns as a whole, such as an atomic list, is set to its live value, because an apply of the
// value includes all its parts.
func ignoreField(desired, live *unstructured.Unstructured, steps []step, ours, others []leaf) {
	path := pathOf(steps)
	if (leaf{steps: steps}).isKey() {
		return // a list item needs its key
	}
	asLive := func(steps []step) {
		value, there := get(live.Object, steps)
		put(desired.Object, steps, runtime.DeepCopyJSONValue(value), there)
	}
	taken := map[string]bool{}
	for _, l := range others {
		switch {
		case l.path == path:
			put(desired.Object, steps, nil, false)
			return
		case covers(l.path, path):
			asLive(steps)
			return
		case covers(path, l.path) && !l.isKey():
			taken[l.path] = true
			put(desired.Object, l.steps, nil, false)
		}
	}
	known := false
	for _, l := range ours {
		switch {
		case covers(path, l.path) && !taken[l.path] && !l.isKey():
			asLive(l.steps)
		case !covers(l.path, path):
			continue
		case l.path != path:
			asLive(steps)
		}
		known = true
	}
	if _, inGit := get(desired.Object, steps); inGit && !known && len(taken) == 0 {
		if _, there := get(live.Object, steps); there {
			asLive(steps)
		}
	}
}

// isKey reports whether a field is part of the key of a list item.
func (l leaf) isKey() bool {
	if len(l.steps) < 2 {
		return false
	}
	last, item := l.steps[len(l.steps)-1], l.steps[len(l.steps)-2]
	return slices.ContainsFunc(item.item, func(f [2]string) bool { return f[0] == last.key })
}
