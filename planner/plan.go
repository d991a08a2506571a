package planner

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

// evaluate returns the verdict on a pending deployment of an application without an
// active one. Errors are temporary.
func (p *Planner) evaluate(ctx context.Context, d deploy.Deployment) (verdict, error) {
	v, err := p.decide(ctx, d)
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		return verdict{status: deploy.Failure, reason: "Cannot be planned: " + err.Error()}, nil
	}
	return v, err
}

// decide is evaluate without the conversion of permanent errors (Invalid, NotFound) into a
// verdict. It also converts a panic into an Invalid error.
func (p *Planner) decide(ctx context.Context, d deploy.Deployment) (v verdict, err error) {
	defer p.recoverPanic(d, &err)
	if v, err := p.outdated(ctx, d); err != nil || v.status != "" {
		return v, err
	}
	if v, err := p.chainTurn(ctx, d); err != nil || v.hold != "" || v.status != "" {
		return v, err
	}
	if err := p.checkTenancy(ctx, d); err != nil {
		return verdict{}, err
	}
	if v := p.managedTurn(ctx, d); v.hold != "" {
		return v, nil
	}
	target, err := p.target(ctx, d)
	if err != nil {
		return verdict{}, err
	}
	if v := p.windowTurn(d, target); v.hold != "" {
		return v, nil
	}
	plan, err := p.plan(ctx, d, target)
	return verdict{plan: plan}, err
}

// recoverPanic converts a panic into an error, so that a commit can fail its deployment
// but not the agent. Callers defer it.
func (p *Planner) recoverPanic(d deploy.Deployment, err *error) {
	if cause := recover(); cause != nil {
		p.logger(d).Error("planning panicked", "panic", cause, "stack", string(debug.Stack()))
		*err = deploy.Errorf(deploy.Invalid, "internal error while planning: %v; please report it with the agent's log", cause)
	}
}

// target loads the application at the commit to deploy.
func (p *Planner) target(ctx context.Context, d deploy.Deployment) (*source.Source, error) {
	target, err := p.Sources.Load(ctx, d.Git, d.Trigger.Commit.Hash)
	if err != nil {
		return nil, fmt.Errorf("load %s at commit %s: %w", d.Git.ConfigPath(), d.Trigger.Commit.Short(), err)
	}
	return target, nil
}

// plan lets the Decider of the application's kind plan target.
func (p *Planner) plan(ctx context.Context, d deploy.Deployment, target *source.Source) (deploy.Plan, error) {
	app, err := p.Store.Application(ctx, d.ApplicationID)
	if err != nil {
		return deploy.Plan{}, err
	}
	return p.planOf(ctx, app, d, target, p.Sources)
}

// planOf is plan for an application that may be missing in the store; running loads the
// running state.
func (p *Planner) planOf(ctx context.Context, app deploy.Application, d deploy.Deployment, target *source.Source, running Sources) (deploy.Plan, error) {
	decider := p.Deciders[app.Kind]
	if decider == nil {
		return deploy.Plan{}, deploy.Errorf(deploy.Invalid, "this agent cannot deploy applications of kind %s", app.Kind)
	}
	plan, err := decider.Decide(ctx, app, d, target, func(ctx context.Context) (*source.Source, error) {
		return running.Load(ctx, app.LastSuccessful.At(d.Git), app.LastSuccessful.Trigger.Commit.Hash)
	})
	if err == nil {
		err = p.checkStages(d, plan.Stages)
	}
	if err != nil {
		return deploy.Plan{}, target.Redactor.Error(err)
	}
	plan.Summary = target.Redactor.Text(plan.Summary)
	if last := app.LastSuccessful; last != nil {
		plan.RunningDeploymentID, plan.RunningCommit, plan.RunningConfigFile = last.DeploymentID, last.Trigger.Commit.Hash, last.ConfigFile
		plan.RunningDir = last.Dir
	}
	return plan, nil
}

// Preview returns d as it would be planned now, without storing anything. hold explains why
// it would be held, "" if it would not. Preview may be called at any time, even before Run.
func (p *Planner) Preview(ctx context.Context, d deploy.Deployment) (planned deploy.Deployment, hold string, err error) {
	defer p.recoverPanic(d, &err)
	if err := p.checkTenancy(ctx, d); err != nil {
		return d, "", err
	}
	target, err := p.target(ctx, d)
	if err != nil {
		return d, "", err
	}
	plan, err := p.plan(ctx, d, target)
	if err != nil {
		return d, "", err
	}
	err = d.Plan(plan, p.Now())
	return d, p.windowTurn(d, target).hold, err
}

// PreviewOf is Preview for an application that may be missing in the store, at a commit
// that may be missing in Git: target loads the state to deploy, which is also returned,
// and running the running state. Commit signatures are not checked.
func (p *Planner) PreviewOf(ctx context.Context, app deploy.Application, d deploy.Deployment, target func(context.Context) (*source.Source, error), running Sources) (planned deploy.Deployment, _ *source.Source, err error) {
	defer p.recoverPanic(d, &err)
	if p.Tenancy != nil {
		if err := p.Tenancy.Tenant(d.Git).CheckProvider(d.Provider); err != nil {
			return d, nil, err
		}
	}
	loaded, err := target(ctx)
	if err != nil {
		return d, nil, err
	}
	plan, err := p.planOf(ctx, app, d, loaded, running)
	if err != nil {
		return d, nil, err
	}
	err = d.Plan(plan, p.Now())
	return d, loaded, err
}

// finish moves a deployment out of PENDING: to PLANNED or a terminal status. moved is
// false if the deployment or its application changed concurrently.
func (p *Planner) finish(ctx context.Context, d deploy.Deployment, v verdict) (moved bool, err error) {
	now := p.Now()
	written, err := p.Store.UpdateDeploymentFrom(ctx, d, func(d *deploy.Deployment) error {
		switch {
		case d.Status != deploy.Pending:
			return notPending(d)
		case v.status != "":
			d.SupersededBy = v.by
			return d.Complete(v.status, v.reason, now)
		}
		return d.Plan(v.plan, now)
	})
	if deploy.IsKind(err, deploy.Conflict) {
		return false, nil // superseded, cancelled, or another one became active concurrently
	}
	if err != nil {
		return false, err
	}
	if v.status != "" {
		log := p.logger(d).Info
		if written.Status == deploy.Failure {
			log = p.logger(d).Warn
		}
		log("deployment not planned", "status", written.Status, "reason", written.StatusReason)
		return true, nil
	}
	p.logger(d).Info("deployment planned", "strategy", written.Strategy, "summary", written.Summary)
	return true, nil
}

func (p *Planner) logger(d deploy.Deployment) *slog.Logger {
	return p.Logger.With("app", d.ApplicationName, "deployment", d.ID, "commit", d.Trigger.Commit.Short())
}
