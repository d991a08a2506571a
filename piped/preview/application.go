package preview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// application is an application that a change affects.
type application struct {
	deploy.AffectedApplication
	asked     deploy.PlanPreviewRequest
	merge     *git.Merge
	commander string
	load      func(context.Context) (*source.Source, error) // loads its source after the change; nil loads it from the merge
}

const (
	noChanges = "No changes were detected"
	removed   = "The change removes the configuration of the application: nothing is deployed any more, and what it has in the cluster stays"
)

// application returns the preview of an application. An error of the application becomes part
// of it.
func (p *Previewer) application(ctx context.Context, a application) deploy.ApplicationPreview {
	out := p.describe(a)
	err := a.Problem
	switch {
	case a.Removed:
		out.Summary = removed
	case err == nil:
		err = p.plan(ctx, a, &out)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// describe returns the preview of an application without the results of planning.
func (p *Previewer) describe(a application) deploy.ApplicationPreview {
	app := a.Application
	return deploy.ApplicationPreview{
		ApplicationID: app.ID, Name: app.Name, Kind: app.Kind, Dir: app.Git.Dir, Labels: app.Labels,
		HeadBranch: a.asked.HeadBranch, HeadCommit: a.asked.HeadCommit, Strategy: deploy.StrategyAuto, At: p.Now(),
	}
}

// plan adds the planned strategy and the resulting changes to the preview.
func (p *Previewer) plan(ctx context.Context, a application, out *deploy.ApplicationPreview) (err error) {
	app := a.Application
	defer p.survive(app, &err)
	load := a.load
	if load == nil {
		load = func(ctx context.Context) (*source.Source, error) {
			return p.Sources.LoadFrom(ctx, a.merge.FS(), app.Git, a.asked.HeadCommit)
		}
	}
	planned, target, err := p.Plan(ctx, app, deploy.Deployment{
		ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Labels: app.Labels, Status: deploy.Pending,
		// A commander disables the rules for commit messages: the message of the merge commit
		// is unknown.
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, Commit: a.merge.Head, Commander: a.commander, Strategy: deploy.StrategyAuto, At: p.Now()},
	}, load, p.Sources)
	if err != nil {
		return err
	}
	out.Warnings = slices.Concat(target.Config.Warnings, target.Config.Unread)
	running, err := p.running(ctx, app)
	if deploy.IsKind(err, deploy.NotFound) || deploy.IsKind(err, deploy.Invalid) {
		out.Strategy, out.Summary, out.Details = planned.Strategy, planned.Summary, err.Error()
		return nil
	}
	if err != nil {
		return err
	}
	effect, err := p.Changes(ctx, planned, running, target)
	if err != nil {
		return err
	}
	out.Strategy, out.Changes = planned.Strategy, effect.Changes
	if effect.Note != "" {
		out.Warnings = append(out.Warnings, effect.Note)
	}
	out.Summary, out.Details = effect.Summary, textOf(effect.Changes)
	if out.NoChange = len(effect.Changes) == 0; effect.Summary == "" {
		p.compare(ctx, app.Provider, running, target, out)
	}
	drift, err := p.undone(ctx, app.ID)
	out.Summary += " (" + planned.Summary + ")" + drift
	return err
}

// textOf returns the changes of a plan as one text.
func textOf(changes []deploy.PlannedChange) string {
	var out strings.Builder
	for _, c := range changes {
		out.WriteString(c.Diff)
	}
	return out.String()
}

// compare adds the differences between what Git declares before and after the change.
func (p *Previewer) compare(ctx context.Context, provider string, running, target *source.Source, out *deploy.ApplicationPreview) {
	var before []manifest.Object
	if running != nil {
		before = p.Place(ctx, provider, running)
	}
	changes := manifest.Compare(before, p.Place(ctx, provider, target))
	out.Summary, out.Details, out.NoChange = noChanges, "", len(changes) == 0
	if len(changes) > 0 {
		added, changed, deleted := manifest.Count(changes)
		out.Summary = fmt.Sprintf("%d added manifests, %d changed manifests, %d deleted manifests", added, changed, deleted)
		out.Details = manifest.Text(changes)
	}
}

// undone describes the live changes that the deployment would undo, "" if none are known.
func (p *Previewer) undone(ctx context.Context, appID string) (string, error) {
	report, err := p.Store.DriftReport(ctx, appID)
	if err != nil && !deploy.IsKind(err, deploy.NotFound) {
		return "", err
	}
	var objects []string
	for _, o := range report.Undone() {
		objects = append(objects, o.Object.String())
	}
	if len(objects) == 0 {
		return "", nil
	}
	return "; it also undoes the live changes of " + strings.Join(objects, ", "), nil
}

// running returns the source of the application's last success, nil if there is none.
func (p *Previewer) running(ctx context.Context, app deploy.Application) (*source.Source, error) {
	last := app.LastSuccessful
	if last == nil {
		return nil, nil
	}
	at := app.Git
	at.ConfigFile = last.ConfigFile
	running, err := p.Sources.Load(ctx, at, last.Trigger.Commit.Hash)
	if err != nil {
		return nil, fmt.Errorf("load the running commit %s to compare with it: %w", last.Trigger.Commit.Short(), err)
	}
	return running, nil
}
