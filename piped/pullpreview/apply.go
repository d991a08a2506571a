package pullpreview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/store"
)

// commander is the subject of the commands of this package; as an account it is that of no caller.
const commander = "pull request"

// healAfter is how long after the last deployment drift is healed.
const healAfter = time.Minute

// pullRequest reconciles the preview of an open pull request.
func (p *Previewer) pullRequest(ctx context.Context, r Repository, pr *request, active *used) error {
	if pr.Fork {
		if ready, err := p.approve(ctx, r, pr); err != nil || !ready {
			return err
		}
	}
	pl, err := p.plan(ctx, r, pr.OpenRequest)
	if err != nil {
		return err
	}
	if pl.problem != nil { // what runs stays until the pull request can be merged again
		if len(alive(pr.apps)) == 0 {
			return nil
		}
		return p.hold(ctx, r, pr, preview{problem: pl.problem})
	}
	want := pl.labelled(pr.OpenRequest)
	if len(want) == 0 {
		const why = "the pull request touches no application that is to be previewed, or has lost its label"
		if pr.Fork { // its approval stays stored
			return p.endUntilNext(ctx, r, pr, nil, why)
		}
		return p.end(ctx, r, pr.Number, pr.apps, pr.known, why)
	}
	if why := p.ended(want, pr); why != "" {
		return p.endUntilNext(ctx, r, pr, want, why)
	}
	p.claim(r, pr.Number, want)
	if why := deniedAll(want, pr.apps); why != nil {
		return p.remove(ctx, r, pr.Number, pr.apps, pr.known, why.Error())
	}
	if moved(want, pr.apps) { // the next pass creates it there
		pr.known.ExpiresAt = time.Time{}
		return p.remove(ctx, r, pr.Number, pr.apps, pr.known, "an application has another platform provider or mode now")
	}
	if full := p.full(want, pr.apps, active); full != "" {
		return p.publish(ctx, r, pr, preview{waits: full, apps: waiting(want)})
	}
	var errs []error
	unwanted := slices.DeleteFunc(slices.Clone(pr.apps), func(a deploy.Application) bool {
		return slices.ContainsFunc(want, func(w wanted) bool { return w.app.ID == a.ID && !w.denied })
	})
	for _, app := range alive(unwanted) {
		errs = append(errs, p.removeApplication(ctx, app))
	}
	_, err = p.remaining(ctx, unwanted)
	errs = append(errs, err)
	for i := range want {
		err := p.ensure(ctx, r, pr.OpenRequest, pl.commit, &want[i], find(pr.apps, want[i].app.ID))
		switch {
		case deploy.IsKind(err, deploy.Invalid):
			want[i].problem = err
		case err != nil:
			want[i].pending = err.Error()
			errs = append(errs, err)
			p.busy = true
		}
	}
	state, err := p.state(ctx, pr, want)
	if err == nil {
		state.expires, _ = p.expiry(want, pr)
		err = p.publish(ctx, r, pr, state)
	}
	return errors.Join(append(errs, err)...)
}

// deniedAll returns why no application that runs may have a preview any more, nil if one may.
func deniedAll(want []wanted, apps []deploy.Application) (why error) {
	for _, app := range alive(apps) {
		at := slices.IndexFunc(want, func(w wanted) bool { return w.app.ID == app.ID && w.denied })
		if at < 0 {
			return nil
		}
		why = want[at].problem
	}
	return why
}

// moved reports whether what runs is in another cluster than it is to be, or has another mode. It is to
// be removed first.
func moved(want []wanted, apps []deploy.Application) bool {
	return slices.ContainsFunc(want, func(w wanted) bool {
		app := find(apps, w.app.ID)
		return w.problem == nil && app != nil && !app.Deleted && (app.Provider != w.app.Provider || isRouted(*app) != isRouted(w.app))
	})
}

// hold leaves what runs as it is, because the head cannot be deployed now: until its time is over, or
// a user removes it.
func (p *Previewer) hold(ctx context.Context, r Repository, pr *request, state preview) error {
	if why := p.over(pr); why != "" {
		return p.endUntilNext(ctx, r, pr, nil, why)
	}
	if len(alive(pr.apps)) > 0 {
		state.expires = pr.known.ExpiresAt
	}
	return p.publish(ctx, r, pr, state)
}

// publish stores what a preview is like, and reports it to the Git host.
func (p *Previewer) publish(ctx context.Context, r Repository, pr *request, state preview) error {
	return errors.Join(p.record(ctx, r, pr, state.record()), p.report(ctx, r, pr.OpenRequest, state))
}

// waiting returns the states of applications that wait for a limit.
func waiting(want []wanted) (out []appState) {
	for _, w := range want {
		out = append(out, appState{app: w.app, phase: building, host: w.host, route: w.route})
	}
	return out
}

// end removes the preview of a pull request for good, if there is one, and what is stored of it. What
// was decided stays stored, because the pull request can be opened again: which head of a fork is
// approved, and for which head a user has removed the preview.
func (p *Previewer) end(ctx context.Context, r Repository, number int, apps []deploy.Application, known deploy.PullPreview, why string) error {
	switch {
	case len(alive(apps)) > 0:
		known.ExpiresAt = time.Time{} // it may come back with the same commit
		return p.remove(ctx, r, number, apps, known, why)
	case known.Head == "" || known.Ended:
		return nil
	}
	if left, err := p.remaining(ctx, apps); err != nil || left {
		return err
	}
	if known.Phase != deploy.PreviewRemoved { // it was waiting or next to its application, or the agent ended after the removal
		if err := p.reportRemoved(ctx, r, number, headOf(apps, known), why); err != nil {
			return err
		}
	}
	p.forget(r, number)
	if known.Approved == "" && known.Dismissed != known.Head {
		return p.Store.DropPullPreview(ctx, r.ID, number)
	}
	known.Phase, known.Reason, known.Ended = deploy.PreviewRemoved, why, true
	known.ExpiresAt, known.Since, known.Applications = time.Time{}, p.now(), nil
	return p.Store.PutPullPreview(ctx, known)
}

// endUntilNext removes a preview until the next commit, and stores why.
func (p *Previewer) endUntilNext(ctx context.Context, r Repository, pr *request, want []wanted, why string) error {
	if len(alive(pr.apps)) > 0 {
		return p.remove(ctx, r, pr.Number, pr.apps, pr.known, why)
	}
	if left, err := p.remaining(ctx, pr.apps); err != nil || left {
		return err
	}
	if pr.known.Phase != deploy.PreviewRemoved {
		if err := p.reportRemoved(ctx, r, pr.Number, pr.Commit, why); err != nil {
			return err
		}
	}
	next := deploy.PullPreview{Phase: deploy.PreviewRemoved, Reason: why}
	next.ExpiresAt, _ = p.expiry(want, pr)
	for _, w := range want {
		next.Applications = append(next.Applications, deploy.PullPreviewApplication{
			ID: w.app.ID, Name: w.app.Name, Git: w.app.Git, Labels: w.app.Labels, Phase: deploy.PreviewRemoved,
		})
	}
	return p.record(ctx, r, pr, next)
}

// forget drops what is cached about a pull request.
func (p *Previewer) forget(r Repository, number int) {
	delete(p.plans, pullRequest{r.ID, number})
	delete(p.reported, pullRequest{r.ID, number})
}

func find(apps []deploy.Application, id string) *deploy.Application {
	for i := range apps {
		if apps[i].ID == id {
			return &apps[i]
		}
	}
	return nil
}

// full returns which limit a new preview waits for, "" if there is room. It counts the preview.
func (p *Previewer) full(want []wanted, apps []deploy.Application, active *used) string {
	isNew := len(alive(apps)) == 0
	if isNew && active.requests >= p.Settings.MaxActive {
		return fmt.Sprintf("%d pull requests have a preview, as many as the agent allows", active.requests)
	}
	for _, w := range want {
		at := w.app.Git.ConfigPath()
		if app := find(apps, w.app.ID); w.preview.MaxActive > 0 && (app == nil || app.Deleted) && active.places[at] >= w.preview.MaxActive {
			return fmt.Sprintf("%d pull requests have a preview of %s, as many as it allows", active.places[at], at)
		}
	}
	if isNew {
		active.requests++
	}
	for _, w := range want {
		if app := find(apps, w.app.ID); app == nil || app.Deleted {
			active.places[w.app.Git.ConfigPath()]++
		}
	}
	return ""
}

// ensure makes a preview application exist and be deployed at the commit of the merge.
func (p *Previewer) ensure(ctx context.Context, r Repository, pr githost.OpenRequest, commit deploy.Commit, w *wanted, known *deploy.Application) error {
	if w.problem != nil {
		return nil
	}
	app := w.app
	app.Description = fmt.Sprintf("Preview of pull request #%d", pr.Number)
	app.Registration = deploy.Registration{By: commander, At: p.Now()}
	p.known[app.ID] = true
	switch {
	case known == nil || known.Deleted:
		app.Sync = deploy.SyncState{Status: deploy.SyncUnknown, At: p.Now()}
		if err := p.Store.AddApplication(ctx, app); err != nil {
			if deploy.IsKind(err, deploy.Illegal) { // its objects are still being deleted
				p.busy, w.pending = true, "the objects of the earlier preview are being deleted"
				return nil
			}
			return err
		}
		p.Logger.Info("preview created", "repo", r.ID, "pullRequest", pr.Number, "app", app.Name)
		if err := p.place(ctx, app); err != nil { // after the application is stored, which the removal of the namespace needs
			return err
		}
	default:
		if known.Disabled { // its removal has begun, and is completed before it exists again
			w.pending = "the earlier preview is being removed"
			return p.removeApplication(ctx, *known)
		}
		if _, err := p.Store.PutApplication(ctx, app); err != nil {
			return err
		}
		due, err := p.due(ctx, r, w, *known, commit)
		if err != nil || due == "" {
			return err
		}
		if err := p.place(ctx, app); err != nil {
			return err
		}
		return p.deploy(ctx, r, pr, commit, w, due)
	}
	return p.deploy(ctx, r, pr, commit, w, fmt.Sprintf("Pull request #%d", pr.Number))
}

// place makes the namespace of a preview application exist, unless it is next to that of the branch.
func (p *Previewer) place(ctx context.Context, app deploy.Application) error {
	if isRouted(app) {
		return nil
	}
	return p.Namespaces.Ensure(ctx, app, p.namespace(app))
}

func (p *Previewer) namespace(app deploy.Application) string {
	return p.Settings.Namespace(app.Git.RepoID, app.Git.PullRequest)
}

// due returns why a known preview application is to be deployed at the commit of the merge, "" if
// it is not: its files have changed, or its objects have drifted.
func (p *Previewer) due(ctx context.Context, r Repository, w *wanted, app deploy.Application, commit deploy.Commit) (string, error) {
	last := app.LastTriggered
	if last == nil || app.EvaluatedCommit == "" { // of a preview that was removed nothing is evaluated
		return fmt.Sprintf("Pull request #%d", app.Git.PullRequest), nil
	}
	if from := last.Trigger.Commit.Hash; from != commit.Hash {
		changed, err := r.Git.Changed(ctx, from, commit.Hash)
		if deploy.IsKind(err, deploy.NotFound) { // the mirror was lost
			return "The merge has changed", nil
		}
		if err != nil {
			return "", err
		}
		if reason, touched := w.config.Trigger.OnCommit.Touched(app.Git.Dir, changed); touched {
			return reason, nil
		}
	}
	over := app.LastSuccessful != nil && app.LastSuccessful.DeploymentID == last.DeploymentID
	if over && !app.Deploying && app.Sync.Status == deploy.OutOfSync && p.Now().Sub(app.LastSuccessful.CompletedAt) >= healAfter {
		return "Self-heal because the live state differs from the pull request: " + app.Sync.ShortReason, nil
	}
	return "", nil
}

// deploy creates a deployment. It supersedes those of earlier commits that have not ended.
func (p *Previewer) deploy(ctx context.Context, r Repository, pr githost.OpenRequest, commit deploy.Commit, w *wanted, why string) error {
	now := p.Now()
	d := deploy.Deployment{
		ID: p.NewID(), ApplicationID: w.app.ID, ApplicationName: w.app.Name, Kind: w.app.Kind, Git: w.app.Git, Provider: w.app.Provider, Labels: w.app.Labels,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, Commit: commit, At: now, Strategy: deploy.StrategyQuickSync, StrategySummary: why},
		Status:  deploy.Pending, StatusReason: deploy.ReasonToPlan, CreatedAt: now, UpdatedAt: now,
	}
	if w.host != "" {
		d.Metadata = map[string]string{deploy.MetaEnvironmentURL: "https://" + w.host}
	}
	created, err := p.Store.CreateDeployment(ctx, store.NewDeployment{Deployment: d, Supersede: true, Replace: true})
	if deploy.IsKind(err, deploy.Illegal) || deploy.IsKind(err, deploy.Conflict) {
		p.busy, w.pending = true, "its state has changed, and it is decided anew"
		return nil
	}
	if err == nil {
		p.Logger.Info("preview triggered", "repo", r.ID, "pullRequest", pr.Number, "app", w.app.Name, "deployment", created.ID, "commit", deploy.ShortHash(pr.Commit), "reason", why)
	}
	return err
}

// remove removes the whole preview of a pull request: first what is being deployed, then the
// namespace with all that is in it and the applications that are next to others, then the reports, then
// the other applications. It does as much as is possible now; the next pass continues.
func (p *Previewer) remove(ctx context.Context, r Repository, number int, apps []deploy.Application, known deploy.PullPreview, why string) error {
	p.busy = true
	idle := true
	for _, app := range alive(apps) {
		stopped, err := p.stop(ctx, app)
		if err != nil {
			return err
		}
		idle = idle && stopped
	}
	if !idle {
		return nil
	}
	if done, err := p.removeRouted(ctx, r, number, apps, known); err != nil || !done {
		return err
	}
	for _, app := range alive(apps) {
		if gone, err := p.Namespaces.Delete(ctx, app, p.namespace(app)); err != nil || !gone {
			return err
		}
	}
	if err := p.reportRemoved(ctx, r, number, headOf(apps, known), why); err != nil {
		return err
	}
	if known.Head != "" {
		known.Phase, known.Reason, known.Since = deploy.PreviewRemoved, why, p.now()
		if err := p.Store.PutPullPreview(ctx, known); err != nil {
			return err
		}
	}
	for _, app := range alive(apps) {
		if err := p.removeApplication(ctx, app); err != nil {
			return err
		}
	}
	p.forget(r, number)
	p.Logger.Info("preview removed", "repo", r.ID, "pullRequest", number, "reason", why)
	return nil
}

// stop disables a preview application and cancels its deployment. It reports whether nothing of it
// is being deployed.
func (p *Previewer) stop(ctx context.Context, app deploy.Application) (bool, error) {
	if !app.Disabled {
		if err := p.Store.SetDisabled(ctx, app.ID, true); err != nil {
			return false, err
		}
	}
	now, err := p.Store.Application(ctx, app.ID)
	if err != nil || !now.Deploying {
		return err == nil, err
	}
	open, err := p.Store.OpenCommands(ctx, deploy.CommandCancel)
	if err != nil || slices.ContainsFunc(open, func(c deploy.Command) bool { return c.DeploymentID == now.ActiveID }) {
		return false, err
	}
	_, err = p.Store.CreateCommand(ctx, deploy.Command{
		ID: p.NewID(), Type: deploy.CommandCancel, ApplicationID: app.ID, DeploymentID: now.ActiveID, Commander: commander, Account: commander, ForceNoRollback: true,
	})
	return false, err
}

// removeApplication deletes a preview application with its objects, once nothing of it is being
// deployed.
func (p *Previewer) removeApplication(ctx context.Context, app deploy.Application) error {
	if idle, err := p.stop(ctx, app); err != nil || !idle {
		p.busy = true
		return err
	}
	return p.requestRemoval(ctx, app)
}

// requestRemoval requests the removal of an application with its objects, unless that was requested.
func (p *Previewer) requestRemoval(ctx context.Context, app deploy.Application) error {
	_, err := p.Store.RemoveApplication(ctx, deploy.Command{
		ID: p.NewID(), Type: deploy.CommandDeleteApplication, ApplicationID: app.ID, Commander: commander, Account: commander, Cascade: true,
	})
	if deploy.IsKind(err, deploy.NotFound) || deploy.IsKind(err, deploy.Illegal) { // it is being removed already
		p.busy = true
		return nil
	}
	return err
}
