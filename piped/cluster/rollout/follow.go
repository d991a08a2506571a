package rollout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// keepsChanging is how many followed restarts make a template one that keeps changing.
const keepsChanging = 3

// otherTemplate handles a template that is not ours: a restart is followed, anything
// else supersedes the rollout. An external rollout follows those restarts only that its
// own field manager makes.
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

// manager returns the field manager that wrote the template last, "" if it is unknown. A
// manager that only removes annotations is not in the managed fields: the agent's entry
// stays the newest, as old as its apply.
func (e *evaluation) manager() string {
	gone := slices.DeleteFunc(changedAnnotations(e.rec, e.w), func(name string) bool { return e.w.Annotations[name] != "" })
	if len(gone) > 0 && e.w.Template.Base == e.rec.TemplateBase && !e.w.TemplateManagedAt.After(e.rec.ServerAppliedAt) &&
		e.w.TemplateManager == e.p.FieldManager {
		return ""
	}
	return e.w.TemplateManager
}

// changed says what of the template differs from the applied one. Annotations are named
// where nothing else does.
func (e *evaluation) changed() string {
	if names := changedAnnotations(e.rec, e.w); len(names) > 0 && e.w.Template.Base == e.rec.TemplateBase {
		return "annotation " + strings.Join(names, ", ") + " of the pod template"
	}
	return "the pod template"
}

// called is how a person calls a field manager.
func called(manager string) string {
	if manager == "" {
		return "someone else"
	}
	return fmt.Sprintf("field manager %q", manager)
}

// waitsFor returns the digest of the template whose rollout is waited for.
func (e *evaluation) waitsFor() string {
	if e.rec.FollowedDigest != "" {
		return e.rec.FollowedDigest
	}
	return e.rec.TemplateDigest
}

// follow waits for the template that a restart made of ours. Its rollout begins anew,
// unless no pod has been available since the first apply, or, of a template that keeps
// changing, since the clocks began last: then they run on, so that it ends as any other
// that does not start.
func (e *evaluation) follow() {
	e.rec.FollowedDigest, e.rec.FollowedBy = e.w.Template.Digest, e.w.TemplateManager
	e.rec.FollowedAt = e.w.TemplateManagedAt
	if e.rec.FollowedAt.IsZero() {
		e.rec.FollowedAt = e.now
	}
	e.rec.Followed++
	e.rec.TargetUID, e.rec.TargetName, e.rec.Revision = "", "", 0
	e.rec.Generation = e.w.Generation // older snapshots no longer count
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

// stuckWhileFollowed reports whether the template changed and no pod of it or of those
// before has been available since the clocks began.
func (e *evaluation) stuckWhileFollowed() bool { return e.rec.Followed > 0 && !e.rec.Served }

// keepsChanging reports whether restarts were followed as often as no person restarts.
func (e *evaluation) keepsChanging() bool { return e.rec.Followed >= keepsChanging }

// restarts says at the end of a line that the rollout is one of a restart.
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
