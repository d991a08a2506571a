package planner

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

// judge decides what becomes of a pending deployment whose application has no
// active one. An error means that it could not be found out now.
func (p *Planner) judge(ctx context.Context, d deploy.Deployment) (verdict, error) {
	v, err := p.decide(ctx, d)
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		return verdict{status: deploy.Failure, reason: "Cannot be planned: " + err.Error()}, nil
	}
	return v, err
}

func (p *Planner) decide(ctx context.Context, d deploy.Deployment) (v verdict, err error) {
	defer p.survive(d, &err)
	if v, err := p.outdated(ctx, d); err != nil || v.status != "" {
		return v, err
	}
	if v, err := p.chainTurn(ctx, d); err != nil || v.hold != "" || v.status != "" {
		return v, err
	}
	if err := p.permit(ctx, d); err != nil {
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

// survive makes a panic on what a commit holds an error: it is the end of the
// deployment, not of the agent. It is to be deferred.
func (p *Planner) survive(d deploy.Deployment, err *error) {
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

// plan has the application's kind decide how target is deployed.
func (p *Planner) plan(ctx context.Context, d deploy.Deployment, target *source.Source) (deploy.Plan, error) {
	app, err := p.Store.Application(ctx, d.ApplicationID)
	if err != nil {
		return deploy.Plan{}, err
	}
	return p.planOf(ctx, app, d, target, p.Sources)
}

// planOf is plan for an application that need not be in the store; running is
// where what runs is loaded from.
func (p *Planner) planOf(ctx context.Context, app deploy.Application, d deploy.Deployment, target *source.Source, running Sources) (deploy.Plan, error) {
	decider := p.Deciders[app.Kind]
	if decider == nil {
		return deploy.Plan{}, deploy.Errorf(deploy.Invalid, "this agent cannot deploy applications of kind %s", app.Kind)
	}
	plan, err := decider.Decide(ctx, app, d, target, func(ctx context.Context) (*source.Source, error) {
		return running.Load(ctx, app.LastSuccessful.At(d.Git), app.LastSuccessful.Trigger.Commit.Hash)
	})
	if err == nil {
		err = p.permitStages(d, plan.Stages)
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

// Preview returns a deployment that is not made, PENDING as d is, as it would be
// planned now; the second result says what it would have to wait for, "" if
// nothing. It may be called while the planner runs, or before.
func (p *Planner) Preview(ctx context.Context, d deploy.Deployment) (planned deploy.Deployment, hold string, err error) {
	defer p.survive(d, &err)
	if err := p.permit(ctx, d); err != nil {
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

// PreviewOf is Preview for an application that need not be in the store, at a commit
// that need not be in Git: target loads what would be deployed, which is returned,
// too, and what runs is loaded from running. Who signed the commit is not looked at.
func (p *Planner) PreviewOf(ctx context.Context, app deploy.Application, d deploy.Deployment, target func(context.Context) (*source.Source, error), running Sources) (planned deploy.Deployment, _ *source.Source, err error) {
	defer p.survive(d, &err)
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

// end moves a deployment out of PENDING: to PLANNED, or to its end. It reports
// whether it did: another one may have become active meanwhile.
func (p *Planner) end(ctx context.Context, d deploy.Deployment, v verdict) (moved bool, err error) {
	now := p.Now()
	written, err := p.Store.UpdateDeploymentFrom(ctx, d, func(d *deploy.Deployment) error {
		switch {
		case d.Status != deploy.Pending:
			return notPending(d)
		case v.status != "":
			return d.Complete(v.status, v.reason, now)
		}
		return d.Plan(v.plan, now)
	})
	if deploy.IsKind(err, deploy.Conflict) {
		return false, nil // superseded, cancelled, or another one became active meanwhile
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
