package notify

import (
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Route selects events. An event matches if it meets at least one value of each condition that
// is set, has all Labels, and meets none of the ignore conditions. Conditions on applications
// and labels do not exclude events without an application or labels, such as PIPED_STARTED.
// These are PipeCD's rules.
//
// Events of previews of pull requests match only if the route asks for them: production routes
// do not report every push to a pull request.
//
// Rollouts and scalings of workloads without an application, which PipeCD does not have, match
// only routes without Apps and Labels: a route that names applications selects only those.
//
// Events that PipeCD does not have match only if the route names them or their group:
// a configuration written for PipeCD selects no new events.
type Route struct {
	Events, IgnoreEvents []deploy.EventType
	Groups, IgnoreGroups []deploy.EventGroup
	Apps, IgnoreApps     []string
	Labels, IgnoreLabels map[string]string
	// Previews are the events of previews: as well, or with OnlyPreviews no others.
	Previews, OnlyPreviews bool
}

// Matches reports whether the route selects n.
func (r Route) Matches(n Notice) bool {
	kind, group := n.Event.Type, n.Event.Type.Group()
	return group != "" && !r.ignores(n) && n.Details.Phase != deploy.RolloutNoRollout && // it has not begun
		(len(r.Events) == 0 || slices.Contains(r.Events, kind)) &&
		(len(r.Groups) == 0 || slices.Contains(r.Groups, group)) &&
		(!kind.IsExtension() || len(r.Events)+len(r.Groups) > 0) &&
		r.matchesPreview(n) && r.matchesApplication(n)
}

func (r Route) matchesPreview(n Notice) bool {
	if n.IsPreview() {
		return r.Previews || r.OnlyPreviews
	}
	return !r.OnlyPreviews
}

func (r Route) ignores(n Notice) bool {
	if slices.Contains(r.IgnoreEvents, n.Event.Type) || slices.Contains(r.IgnoreGroups, n.Event.Type.Group()) {
		return true
	}
	if app := n.ApplicationName(); app != "" && slices.Contains(r.IgnoreApps, app) {
		return true
	}
	labels := n.Labels()
	for name, value := range r.IgnoreLabels {
		if got, ok := labels[name]; ok && got == value {
			return true
		}
	}
	return false
}

func (r Route) matchesApplication(n Notice) bool {
	if n.Event.Type.Group() == deploy.GroupRollout && n.ofNoApplication() {
		return len(r.Apps)+len(r.Labels) == 0
	}
	if app := n.ApplicationName(); app != "" && len(r.Apps) > 0 && !slices.Contains(r.Apps, app) {
		return false
	}
	labels := n.Labels()
	if len(labels) == 0 {
		return true
	}
	for name, value := range r.Labels {
		if labels[name] != value {
			return false
		}
	}
	return true
}
