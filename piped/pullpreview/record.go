package pullpreview

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
)

// request is an open pull request with what is known of its preview.
type request struct {
	githost.OpenRequest
	apps  []deploy.Application // of the preview, deleted ones included
	known deploy.PullPreview   // the zero value if nothing was recorded
}

// record stores what the preview of a pull request is like now, unless that is stored already.
func (p *Previewer) record(ctx context.Context, r Repository, pr *request, next deploy.PullPreview) error {
	now, known := p.now(), pr.known
	next.RepoID, next.Number, next.Head, next.Branch, next.Base = r.ID, pr.Number, pr.Commit, pr.Head, pr.Base
	next.ExtendedUntil, next.Dismissed, next.DismissedBy = known.ExtendedUntil, known.Dismissed, known.DismissedBy
	next.Fork = pr.Fork
	next.Approved, next.ApprovedLabels = known.Approved, known.ApprovedLabels
	next.CreatedAt, next.HeadAt, next.ReadyAt, next.Since = known.CreatedAt, known.HeadAt, known.ReadyAt, known.Since
	if len(next.Applications) == 0 { // it cannot be merged: what runs stays
		next.Applications = known.Applications
	}
	if known.CreatedAt.IsZero() {
		next.CreatedAt = now
	}
	if known.Head != next.Head || known.Phase == deploy.PreviewRemoved && next.Phase != deploy.PreviewRemoved {
		next.HeadAt, next.ReadyAt = now, time.Time{}
	}
	changed := known.Phase != next.Phase || known.Head != next.Head
	if changed {
		next.Since = now
	}
	becomesReady := next.Phase == deploy.PreviewReady && next.ReadyAt.IsZero()
	if becomesReady {
		next.ReadyAt = now
	}
	if reflect.DeepEqual(known, next) {
		return nil
	}
	if err := p.Store.PutPullPreview(ctx, next); err != nil {
		return err
	}
	pr.known = next
	if becomesReady {
		p.Metrics.Ready(next.ReadyAt.Sub(next.HeadAt))
	}
	if changed && next.Phase == deploy.PreviewFailed {
		p.Metrics.Failed()
	}
	return nil
}

// now returns the time as the store returns it.
func (p *Previewer) now() time.Time { return p.Now().UTC().Truncate(time.Millisecond) }

// record returns what is stored of a preview.
func (s preview) record() deploy.PullPreview {
	out := deploy.PullPreview{Phase: s.phase().stored(), ExpiresAt: s.expires}
	switch {
	case s.problem != nil:
		out.Reason = s.problem.Error()
	case s.waits != "":
		out.Phase, out.Reason = deploy.PreviewWaiting, s.waits
	}
	for _, a := range s.apps {
		stored := deploy.PullPreviewApplication{
			ID: a.app.ID, Name: a.app.Name, Git: a.app.Git, Labels: a.app.Labels, Phase: a.phase.stored(), Reason: a.text, DeploymentID: a.id, Host: a.host, Log: a.log,
			Header: a.route.Header, Hostnames: a.route.Hostnames,
		}
		out.Applications = append(out.Applications, stored)
		if out.Reason == "" && stored.Phase == out.Phase && a.text != "" {
			out.Reason = fmt.Sprintf("%s: %s", a.app.Name, a.text)
		}
	}
	return out
}

// stored returns a phase as it is stored.
func (f phase) stored() deploy.PullPreviewPhase {
	return deploy.PullPreviewPhase(strings.ToUpper(string(f)))
}

// expiry returns when the preview of a commit is removed, the zero time for never, and the ttl that
// decides that. The first application whose time is over ends the preview; a user can extend it.
func (p *Previewer) expiry(want []wanted, pr *request) (at time.Time, ttl time.Duration) {
	for _, w := range want {
		app := find(pr.apps, w.app.ID)
		if w.preview.TTL <= 0 || app == nil || app.LastTriggered == nil {
			continue
		}
		if app.Deleted && app.LastTriggered.Trigger.Commit.Merged != pr.Commit { // of an earlier head, and deployed anew
			continue
		}
		if end := app.LastTriggered.StartedAt.Add(w.preview.TTL); at.IsZero() || end.Before(at) {
			at, ttl = end.UTC().Truncate(time.Millisecond), w.preview.TTL
		}
	}
	if at.IsZero() && pr.known.Phase == deploy.PreviewRemoved && pr.known.Head == pr.Commit { // its deployments were deleted since
		at = pr.known.ExpiresAt
	}
	if !at.IsZero() && pr.known.Head == pr.Commit && pr.known.ExtendedUntil.After(at) {
		at = pr.known.ExtendedUntil
	}
	return at, ttl
}

// ended returns why the preview of a commit is not to exist any more, "" if it is.
func (p *Previewer) ended(want []wanted, pr *request) string {
	if pr.known.Dismissed == pr.Commit {
		return dismissed(pr)
	}
	at, ttl := p.expiry(want, pr)
	switch {
	case at.IsZero() || p.Now().Before(at):
		return ""
	case pr.known.ExtendedUntil.Equal(at):
		return "its extended time is over; a new commit brings it back"
	case ttl == 0:
		return pr.known.Reason
	}
	return fmt.Sprintf("it was deployed more than %s ago; a new commit brings it back", ttl)
}

func dismissed(pr *request) string {
	return fmt.Sprintf("%s removed it; a new commit brings it back", pr.known.DismissedBy)
}

// over returns why what runs of a pull request is to be removed while its head cannot be deployed, ""
// if it stays. A user can have removed the head, or what runs.
func (p *Previewer) over(pr *request) string {
	running := alive(pr.apps)
	isDismissed := pr.known.Dismissed != "" && slices.ContainsFunc(running, func(a deploy.Application) bool {
		return a.LastTriggered != nil && a.LastTriggered.Trigger.Commit.Merged == pr.known.Dismissed
	})
	end := pr.known.ExpiresAt
	if pr.known.ExtendedUntil.After(end) {
		end = pr.known.ExtendedUntil
	}
	switch {
	case isDismissed || pr.known.Dismissed == pr.Commit:
		return dismissed(pr)
	case len(running) > 0 && !pr.known.ExpiresAt.IsZero() && !p.Now().Before(end):
		return "its time is over; a new commit brings it back"
	}
	return ""
}
