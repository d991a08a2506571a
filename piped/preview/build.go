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

// atOnce bounds concurrent rendering of applications of one preview.
const atOnce = 4

// errTimeout is the error of a preview that takes too long.
var errTimeout = errors.New("timed out before the plan preview was built")

// answer builds and stores the preview that a command requests, unless the command was
// completed already. If it returns an error, the queue retries it.
func (p *Previewer) answer(ctx context.Context, id string) error {
	c, err := p.Store.Command(ctx, id)
	if err != nil || c.Status != deploy.CommandOpen {
		return err
	}
	start := p.Now()
	results, err := p.buildInTime(ctx, c)
	if ctx.Err() != nil {
		return nil // it is built again after the restart
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
		return nil // an earlier attempt completed it
	}
	if err == nil {
		p.Logger.Info("plan preview answered", "command", id, "status", status, "applications", len(preview.Results), "error", preview.Error, "took", p.Now().Sub(start))
	}
	return err
}

// buildInTime calls build with the timeout of the command, which starts at the command's
// creation.
func (p *Previewer) buildInTime(ctx context.Context, c deploy.Command) ([]deploy.ApplicationPreview, error) {
	asked := c.PlanPreview
	if asked == nil {
		return nil, deploy.Errorf(deploy.Invalid, "the command names no change to preview")
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

// timedOut returns the error for a preview that exceeded its timeout; otherwise is the default
// timeout.
func timedOut(asked *deploy.PlanPreviewRequest, otherwise time.Duration) error {
	return fmt.Errorf("%w, in %s: repeat it with more time, or see the agent's log for the cause", errTimeout, cmp.Or(asked.Timeout, otherwise))
}

// build merges the change and previews every affected application.
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

// applications returns the previews of the affected applications; common has their common
// values. An application whose rendering waits for a server does not block the others. Those
// not finished after nine tenths of the time get an error instead.
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

// survive converts a panic caused by the content of the change into an error of the
// application. It must be deferred.
func (p *Previewer) survive(app deploy.Application, err *error) {
	if cause := recover(); cause != nil {
		p.Logger.Error("a plan preview panicked", "app", app.Name, "panic", cause, "stack", string(debug.Stack()))
		*err = deploy.Errorf(deploy.Invalid, "internal error while previewing: %v; please report it with the agent's log", cause)
	}
}
