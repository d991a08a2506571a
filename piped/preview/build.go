package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// atOnce bounds how many applications of one preview are rendered at once.
const atOnce = 4

// errTimeout ends a preview that takes too long.
var errTimeout = errors.New("timed out before the plan preview was built")

// answer builds the preview that a command asks for, unless it was answered
// already, and stores it. An error means that it is to be tried again.
func (p *Previewer) answer(ctx context.Context, id string) error {
	c, err := p.Store.Command(ctx, id)
	if err != nil || c.Status != deploy.CommandOpen {
		return err
	}
	start := p.Now()
	results, err := p.buildInTime(ctx, c)
	if ctx.Err() != nil {
		return nil // built again after the restart
	}
	status, preview := deploy.CommandSucceeded, deploy.PlanPreview{CommandID: id, Results: bounded(results), At: p.Now()}
	if err != nil {
		status, preview.Results, preview.Error = deploy.CommandFailed, nil, err.Error()
	}
	if errors.Is(err, errTimeout) {
		status = deploy.CommandTimeout
	}
	err = p.Store.AnswerPlanPreview(ctx, preview, status)
	if deploy.IsKind(err, deploy.Conflict) {
		return nil // answered by an earlier attempt
	}
	if err == nil {
		p.Logger.Info("plan preview answered", "command", id, "status", status, "applications", len(preview.Results), "error", preview.Error, "took", p.Now().Sub(start))
	}
	return err
}

// buildInTime is build for as long as the command has time, since it was given.
func (p *Previewer) buildInTime(ctx context.Context, c deploy.Command) ([]deploy.ApplicationPreview, error) {
	asked := c.PlanPreview
	if asked == nil {
		return nil, deploy.Errorf(deploy.Invalid, "the command says nothing of a change to preview")
	}
	left := cmp.Or(asked.Timeout, p.Timeout) - p.Now().Sub(c.CreatedAt)
	if left <= 0 {
		return nil, timedOut(asked, p.Timeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, left, errTimeout)
	defer cancel()
	results, err := p.build(ctx, *asked, c.Commander)
	if errors.Is(context.Cause(ctx), errTimeout) {
		return nil, timedOut(asked, p.Timeout)
	}
	return results, err
}

func timedOut(asked *deploy.PlanPreviewRequest, otherwise time.Duration) error {
	return fmt.Errorf("%w, in %s: ask again with more time, or see the agent's log for what holds it up", errTimeout, cmp.Or(asked.Timeout, otherwise))
}

// build merges the change and previews every application that it concerns.
func (p *Previewer) build(ctx context.Context, asked deploy.PlanPreviewRequest, commander string) (_ []deploy.ApplicationPreview, err error) {
	m, err := p.Repositories.Merge(ctx, asked.RepoID, asked.BaseBranch, asked.HeadBranch, asked.HeadCommit)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	affected, err := p.Repositories.Foresee(ctx, asked.RepoID, m)
	if err != nil {
		return nil, fmt.Errorf("find the applications that the change concerns: %w", err)
	}
	results := p.applications(ctx, application{asked: asked, merge: m, commander: commander}, affected)
	return results, context.Cause(ctx)
}

// applications previews those that a change concerns, of which common says what they have
// in common. One that waits for a server keeps no other from being rendered, and in the
// last tenth of the time it is answered without it.
func (p *Previewer) applications(ctx context.Context, common application, affected []deploy.AffectedApplication) []deploy.ApplicationPreview {
	config := background.Config{AtOnce: atOnce}
	if end, ok := ctx.Deadline(); ok {
		config.Patience = max(1, time.Until(end)*9/10)
	}
	jobs := background.New[int, deploy.ApplicationPreview](config)
	defer jobs.Close()
	out := make([]deploy.ApplicationPreview, len(affected))
	var asked sync.WaitGroup
	for i, affected := range affected {
		one := common
		one.AffectedApplication = affected
		asked.Go(func() {
			var err error
			out[i], err = jobs.Do(ctx, i, "", nil, func(ctx context.Context) (deploy.ApplicationPreview, error) { return p.application(ctx, one), nil })
			if err != nil {
				out[i] = p.describe(one)
				out[i].Error = "it could not be rendered in time: " + err.Error()
			}
		})
	}
	asked.Wait()
	return out
}

// survive makes a panic on what the change holds an error of its application. It is
// to be deferred.
func (p *Previewer) survive(app deploy.Application, err *error) {
	if cause := recover(); cause != nil {
		p.Logger.Error("a plan preview panicked", "app", app.Name, "panic", cause, "stack", string(debug.Stack()))
		*err = deploy.Errorf(deploy.Invalid, "internal error while previewing: %v; please report it with the agent's log", cause)
	}
}
