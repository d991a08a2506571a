package control

import (
	"cmp"
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Planner tells what a deployment would do without making it.
type Planner interface {
	// Preview returns the deployment of an application that a sync asked for by
	// subject would make now, planned and not stored, and what it would have to
	// wait for, "" if nothing. The commit is a hash or an unambiguous beginning of
	// one; "" is the head as it was last seen. NotFound without such a commit,
	// Invalid when the commit cannot be planned.
	Preview(ctx context.Context, app deploy.Application, commit string, strategy deploy.Strategy, subject string) (d deploy.Deployment, hold string, err error)
}

// GetPlan returns the plan of a deployment, or of one that is not made.
func (s *controlService) GetPlan(ctx context.Context, req *controlv1.GetPlanRequest) (*controlv1.GetPlanResponse, error) {
	wanted, ok := modelv1.SyncStrategy_name[int32(req.Strategy)]
	switch {
	case req.DeploymentId == "" && req.ApplicationId == "":
		return nil, deploy.Errorf(deploy.Invalid, "deployment_id and application_id are empty: give one of them")
	case req.DeploymentId != "" && (req.ApplicationId != "" || req.Commit != "" || req.Strategy != 0):
		return nil, deploy.Errorf(deploy.Invalid, "deployment_id excludes application_id, commit and strategy")
	case !ok:
		return nil, noStrategy(req.Strategy)
	case req.Commit != "" && !hashPrefix.MatchString(req.Commit):
		return nil, notAHash(req.Commit)
	case req.Diff:
		return nil, deploy.Errorf(deploy.Invalid, "diff cannot be used: this version of the agent tells no differences")
	}
	if req.DeploymentId != "" {
		return s.planOf(ctx, req.DeploymentId)
	}
	app, err := s.deployable(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	d, hold, err := s.planner.Preview(ctx, app, req.Commit, deploy.Strategy(wanted), callerOf(ctx).Subject)
	if deploy.IsKind(err, deploy.Invalid) { // the request was right: the commit is not
		err = &deploy.Error{Kind: deploy.Illegal, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return &controlv1.GetPlanResponse{Plan: plan(d, hold)}, nil
}

// planOf returns the plan of a deployment. Before it is planned, that has no
// stages and says what the deployment waits for.
func (s *controlService) planOf(ctx context.Context, id string) (*controlv1.GetPlanResponse, error) {
	d, err := s.store.Deployment(ctx, id)
	if err != nil {
		return nil, err
	}
	hold := ""
	if d.Status == deploy.Pending {
		hold = d.StatusReason
	}
	return &controlv1.GetPlanResponse{Plan: plan(d, hold)}, nil
}

func plan(d deploy.Deployment, hold string) *controlv1.Plan {
	m := &controlv1.Plan{
		ApplicationId: text(d.ApplicationID), DeploymentId: text(d.ID), Commit: text(d.Trigger.Commit.Hash), RunningCommit: text(d.RunningCommit),
		Strategy: strategy(cmp.Or(d.Strategy, d.Trigger.Strategy)), Reason: text(d.Trigger.StrategySummary), Summary: text(d.Summary),
		Versions: versions(d.Versions), HoldReason: text(hold),
	}
	for _, st := range d.Stages {
		m.Stages = append(m.Stages, stage(st))
	}
	return m
}
