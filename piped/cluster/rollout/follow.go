package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// keepsChanging is the number of followed restarts from which a template counts as
// constantly changing.
const keepsChanging = 3

// otherTemplate handles a live template that is not the awaited one. It follows a restart;
// any other template supersedes the rollout. An external rollout follows only restarts by
// its own field manager. otherTemplate returns true if the rollout has ended.
func (e *evaluation) otherTemplate() bool {
	if e.w.Template.Digest == e.waitsFor() {
		return false
	}
	manager := e.manager()
	if manager != e.p.FieldManager && restarted(e.rec, e.w) && (!e.rec.External() || manager == e.rec.ChangedBy) {
		e.follow()
		return false
	}
	if e.s.Confirmed {
		e.rec.SupersededBy = manager
	}
	if manager == e.p.FieldManager {
		return e.end(deploy.RolloutSuperseded, "%s was given a newer template by this agent before the rollout ended", e.rec.Workload)
	}
	return e.end(deploy.RolloutSuperseded, "%s changed %s of %s before the rollout ended", called(manager), e.changed(), e.rec.Workload)
}

// manager returns the field manager that last wrote the template, "" if unknown. A manager
// that only removes annotations leaves no trace in managedFields: the newest entry is then
// still the agent's, with the time of its apply.
func (e *evaluation) manager() string {
	gone := slices.DeleteFunc(changedAnnotations(e.rec, e.w), func(name string) bool { return e.w.Annotations[name] != "" })
	if len(gone) > 0 && e.w.Template.Base == e.rec.TemplateBase && !e.w.TemplateManagedAt.After(e.rec.ServerAppliedAt) &&
		e.w.TemplateManager == e.p.FieldManager {
		return ""
	}
	return e.w.TemplateManager
}

// changed describes which part of the template differs from the applied one. It names
// annotations if nothing else differs.
func (e *evaluation) changed() string {
	if names := changedAnnotations(e.rec, e.w); len(names) > 0 && e.w.Template.Base == e.rec.TemplateBase {
		return "annotation " + strings.Join(names, ", ") + " of the pod template"
	}
	return "the pod template"
}

// called returns the description of a field manager for messages.
func called(manager string) string {
	if manager == "" {
		return "someone else"
	}
	return fmt.Sprintf("field manager %q", manager)
}

// waitsFor returns the digest of the awaited template: the followed one if there is one,
// otherwise the applied one.
func (e *evaluation) waitsFor() string {
	if e.rec.FollowedDigest != "" {
		return e.rec.FollowedDigest
	}
	return e.rec.TemplateDigest
}

// follow awaits the template of a restart instead of the current one. The deadlines restart
// if a pod has been available since the first apply; for a constantly changing template,
// since the deadlines last restarted. Otherwise they run on, so that a rollout whose pods
// never start fails in time.
func (e *evaluation) follow() {
	e.rec.FollowedDigest, e.rec.FollowedBy = e.w.Template.Digest, e.w.TemplateManager
	e.rec.FollowedAt = e.w.TemplateManagedAt
	if e.rec.FollowedAt.IsZero() {
		e.rec.FollowedAt = e.now
	}
	e.rec.Followed++
	e.rec.TargetUID, e.rec.TargetName = "", ""
	if !e.rec.External() { // the ID of an external record has its number
		e.rec.Revision = 0
	}
	e.rec.Generation = e.w.Generation // ignore snapshots from before the restart
	e.rec.Phase = deploy.RolloutProgressing
	e.rec.Reason = fmt.Sprintf("%s: %s restarted it, following the restart", e.name(), called(e.rec.FollowedBy))
	if e.rec.Followed <= keepsChanging {
		e.v.Note = e.rec.Reason
	}
	if e.rec.Served {
		e.restartClock()
		e.rec.Served = e.rec.Followed < keepsChanging
		return
	}
	e.rec.SeenReady, e.rec.SeenAvailable, e.rec.SeenOld = 0, 0, unseen
}

// stuckWhileFollowed reports whether a restart was followed and no pod has been available
// since the deadlines last restarted.
func (e *evaluation) stuckWhileFollowed() bool { return e.rec.Followed > 0 && !e.rec.Served }

// keepsChanging reports whether the template is constantly changing: it was restarted more
// often than a user would do it.
func (e *evaluation) keepsChanging() bool { return e.rec.Followed >= keepsChanging }

// restarts returns the end of a message that names the followed restart, "" without one.
func (e *evaluation) restarts() string {
	switch n := e.rec.Followed; {
	case n == 0:
		return ""
	case n < keepsChanging:
		return fmt.Sprintf(", after a restart by %s", called(e.rec.FollowedBy))
	default:
		return fmt.Sprintf(", while %s keeps changing annotations of the pod template", called(e.rec.FollowedBy))
	}
}
