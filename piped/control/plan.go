package control

import (
	"cmp"
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// GetPlan returns the plan of a deployment. Before it is planned, the plan has
// no stages and says what the deployment waits for.
func (s *controlService) GetPlan(ctx context.Context, req *controlv1.GetPlanRequest) (*controlv1.GetPlanResponse, error) {
	switch {
	case req.DeploymentId == "":
		return nil, deploy.Errorf(deploy.Invalid, "deployment_id is empty: this version of the agent tells the plan of a deployment only")
	case req.ApplicationId != "" || req.Commit != "" || req.Strategy != 0:
		return nil, deploy.Errorf(deploy.Invalid, "deployment_id excludes application_id, commit and strategy")
	case req.Diff:
		return nil, deploy.Errorf(deploy.Invalid, "diff cannot be used: this version of the agent tells no differences")
	}
	d, err := s.store.Deployment(ctx, req.DeploymentId)
	if err != nil {
		return nil, err
	}
	plan := &controlv1.Plan{
		ApplicationId: text(d.ApplicationID), DeploymentId: text(d.ID), Commit: text(d.Trigger.Commit.Hash), RunningCommit: text(d.RunningCommit),
		Strategy: strategy(cmp.Or(d.Strategy, d.Trigger.Strategy)), Reason: text(d.Trigger.StrategySummary), Summary: text(d.Summary), Versions: versions(d.Versions),
	}
	for _, st := range d.Stages {
		plan.Stages = append(plan.Stages, stage(st))
	}
	if d.Status == deploy.Pending {
		plan.HoldReason = text(d.StatusReason)
	}
	return &controlv1.GetPlanResponse{Plan: plan}, nil
}
