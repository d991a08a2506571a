package control

import (
	"cmp"
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Planner plans deployments without creating them.
type Planner interface {
	// Preview returns the deployment that a sync of the application, requested by subject,
	// would create now: planned but not stored. hold is the reason for which it would wait, or
	// "". commit is a hash or an unambiguous prefix; "" means the last known head. NotFound:
	// there is no such commit. Invalid: the commit cannot be planned.
	Preview(ctx context.Context, app deploy.Application, commit string, strategy deploy.Strategy, subject string) (d deploy.Deployment, hold string, err error)
	// Changes returns the effect of a deployment, stored or not, on its objects. Invalid: they
	// cannot be rendered. NotFound: a commit is gone.
	Changes(ctx context.Context, d deploy.Deployment) (deploy.Effect, error)
}

// GetPlan returns the plan of a deployment, or of a sync that is not requested yet.
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
	}
	d, hold, err := s.planned(ctx, req, deploy.Strategy(wanted))
	if err != nil {
		return nil, err
	}
	m := plan(d, hold)
	if d.ID == "" || d.Status == deploy.Pending || d.Status == deploy.Planned { // not started
		report, err := s.store.DriftReport(ctx, d.ApplicationID)
		if err != nil && !deploy.IsKind(err, deploy.NotFound) {
			return nil, err
		}
		for _, o := range report.Undone() {
			m.Undoes = append(m.Undoes, objectDrift(report.Cluster, o))
		}
	}
	if req.Diff {
		effect, err := s.planner.Changes(ctx, d)
		if err != nil {
			return nil, commitAtFault(err)
		}
		m.Changes = plannedChanges(d.Provider, effect.Changes, maxResponse/2)
		m.ChangesSummary, m.ChangesDigest, m.ChangesNote = text(effect.Summary), text(effect.Digest), text(effect.Note)
	}
	return &controlv1.GetPlanResponse{Plan: m}, nil
}

// planned returns the deployment to describe, stored or not, and the reason for which it
// waits. A pending deployment has no stages.
func (s *controlService) planned(ctx context.Context, req *controlv1.GetPlanRequest, wanted deploy.Strategy) (d deploy.Deployment, hold string, err error) {
	if req.DeploymentId != "" {
		d, err = s.store.Deployment(ctx, req.DeploymentId)
		if d.Status == deploy.Pending {
			hold = d.StatusReason
		}
		return d, hold, err
	}
	app, err := s.deployable(ctx, req.ApplicationId)
	if err != nil {
		return d, "", err
	}
	d, hold, err = s.planner.Preview(ctx, app, req.Commit, wanted, callerOf(ctx).Subject)
	return d, hold, commitAtFault(err)
}

// commitAtFault converts an Invalid error about a commit into an Illegal one, because the
// request itself is valid.
func commitAtFault(err error) error {
	if deploy.IsKind(err, deploy.Invalid) {
		return &deploy.Error{Kind: deploy.Illegal, Err: err}
	}
	return err
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

// plannedChanges converts the changes of a provider's objects. Diffs for which nothing is left of
// a number of bytes are replaced by a line, and have no attributes.
func plannedChanges(provider string, changes []deploy.PlannedChange, left int) []*controlv1.PlannedChange {
	var out []*controlv1.PlannedChange
	for _, change := range changes {
		m := &controlv1.PlannedChange{
			Object: objectRef(provider, change.Object), Diff: text(change.Diff), Address: text(change.Address), Origin: text(change.Origin),
			Action: controlv1.PlannedAction(controlv1.PlannedAction_value["PLANNED_ACTION_"+string(change.Action)]),
		}
		if size := change.Size(); size > left {
			m.Diff = fmt.Sprintf("... cut: a diff of %d bytes is not shown\n", len(m.Diff))
		} else {
			left -= size
			m.Attributes = plannedAttributes(change.Attributes)
		}
		out = append(out, m)
	}
	return out
}

func plannedAttributes(list []deploy.PlannedAttribute) (out []*controlv1.PlannedAttribute) {
	for _, a := range list {
		out = append(out, &controlv1.PlannedAttribute{
			Path: text(a.Path), Before: text(a.Before), After: text(a.After), Sensitive: a.Sensitive, Unknown: a.Unknown, ForcesReplacement: a.Forces,
		})
	}
	return out
}
