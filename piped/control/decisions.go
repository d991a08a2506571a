package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// CancelDeployment requests the cancellation of a deployment that has not ended.
func (s *controlService) CancelDeployment(ctx context.Context, req *controlv1.CancelDeploymentRequest) (*controlv1.CancelDeploymentResponse, error) {
	if req.ForceRollback && req.ForceNoRollback {
		return nil, deploy.Errorf(deploy.Invalid, "force_rollback and force_no_rollback exclude each other: give one of them")
	}
	d, err := s.unfinished(ctx, req.DeploymentId)
	if err != nil {
		return nil, err
	}
	if req.ForceRollback {
		if may, err := permitted(ctx, s.store, deploy.PermRollback, d.ApplicationID); err != nil {
			return nil, err
		} else if !may {
			return nil, deploy.Errorf(deploy.Denied, "force_rollback needs the permission %q in application %s: cancel without it", deploy.PermRollback, d.ApplicationName)
		}
	}
	if d.Status == deploy.RollingBack {
		return nil, deploy.Errorf(deploy.Illegal, "deployment %s is rolling back already: wait for its end", d.ID)
	}
	if req.ForceRollback && len(d.RollbackStages()) == 0 {
		return nil, deploy.Errorf(deploy.Illegal, "deployment %s has nothing to roll back to: it has no rollback stage; cancel it without force_rollback", d.ID)
	}
	id, err := s.submit(ctx, deploy.Command{
		Type: deploy.CommandCancel, ApplicationID: d.ApplicationID, DeploymentID: d.ID,
		ForceRollback: req.ForceRollback, ForceNoRollback: req.ForceNoRollback,
	})
	return &controlv1.CancelDeploymentResponse{CommandId: id}, err
}

// ReleaseStateLock requests the release of the lock for which a deployment waits.
func (s *controlService) ReleaseStateLock(ctx context.Context, req *controlv1.ReleaseStateLockRequest) (*controlv1.ReleaseStateLockResponse, error) {
	d, err := s.unfinished(ctx, req.DeploymentId)
	if err != nil {
		return nil, err
	}
	if !d.UsesState() {
		return nil, deploy.Errorf(deploy.Illegal, "deployment %s runs no stage that can wait for a lock", d.ID)
	}
	id, err := s.submit(ctx, deploy.Command{Type: deploy.CommandReleaseStateLock, ApplicationID: d.ApplicationID, DeploymentID: d.ID, LockID: req.LockId})
	return &controlv1.ReleaseStateLockResponse{CommandId: id}, err
}

// ApproveStage requests the approval of a stage. Whether the caller is an approver is
// decided by the stage and reported on the command.
func (s *controlService) ApproveStage(ctx context.Context, req *controlv1.ApproveStageRequest) (*controlv1.ApproveStageResponse, error) {
	id, err := s.decide(ctx, deploy.CommandApproveStage, deploy.StageWaitApproval, req.DeploymentId, req.StageId, req.Reason)
	return &controlv1.ApproveStageResponse{CommandId: id}, err
}

// RejectStage requests the rejection of a stage, like ApproveStage.
func (s *controlService) RejectStage(ctx context.Context, req *controlv1.RejectStageRequest) (*controlv1.RejectStageResponse, error) {
	id, err := s.decide(ctx, deploy.CommandRejectStage, deploy.StageWaitApproval, req.DeploymentId, req.StageId, req.Reason)
	return &controlv1.RejectStageResponse{CommandId: id}, err
}

// SkipStage requests to end a running stage that can be skipped, or to skip one that has not
// started.
func (s *controlService) SkipStage(ctx context.Context, req *controlv1.SkipStageRequest) (*controlv1.SkipStageResponse, error) {
	d, err := s.unfinished(ctx, req.DeploymentId)
	if err != nil {
		return nil, err
	}
	stage, err := stageToSkip(d, req.StageId)
	if err != nil {
		return nil, err
	}
	id, err := s.submit(ctx, decision(deploy.CommandSkipStage, d, stage, req.Reason))
	return &controlv1.SkipStageResponse{CommandId: id}, err
}

// decide stores a command of type what for the running stage with the given name and ID, and
// returns the command's ID. If stageID is "", there must be exactly one running stage with the
// name.
func (s *controlService) decide(ctx context.Context, what deploy.CommandType, name, deploymentID, stageID, reason string) (string, error) {
	d, err := s.unfinished(ctx, deploymentID)
	if err != nil {
		return "", err
	}
	stage, err := runningStage(d, name, stageID)
	if err != nil {
		return "", err
	}
	return s.submit(ctx, decision(what, d, stage, reason))
}

// decision returns the command for a stage.
func decision(what deploy.CommandType, d deploy.Deployment, stage deploy.Stage, reason string) deploy.Command {
	return deploy.Command{Type: what, ApplicationID: d.ApplicationID, DeploymentID: d.ID, StageID: stage.ID, Reason: reason}
}

// stageToSkip returns the stage with the ID, which must be skippable and must not have ended.
// Without an ID it returns the only running skippable stage.
func stageToSkip(d deploy.Deployment, id string) (deploy.Stage, error) {
	if stage := d.Stage(id); stage != nil && deploy.Skippable(stage.Name) && !stage.Status.Completed() {
		return *stage, nil
	}
	return runningOf(d, "WAIT or ANALYSIS", id, deploy.Skippable)
}

// unfinished returns a deployment that has not ended.
func (s *controlService) unfinished(ctx context.Context, id string) (deploy.Deployment, error) {
	d, err := s.store.Deployment(ctx, id)
	if err == nil && d.Status.Completed() {
		err = deploy.Errorf(deploy.Illegal, "deployment %s has ended (%s); no decision is possible any more", d.ID, d.Status)
	}
	return d, err
}

// runningStage returns the running stage with the ID and name. Without an ID it returns the
// only running stage with the name.
func runningStage(d deploy.Deployment, name, id string) (deploy.Stage, error) {
	return runningOf(d, name, id, func(n string) bool { return n == name })
}

// runningOf is runningStage for the stages whose name satisfies is. what describes them in
// errors.
func runningOf(d deploy.Deployment, what, id string, is func(name string) bool) (deploy.Stage, error) {
	var running []deploy.Stage
	var all []string
	for _, st := range d.Stages {
		all = append(all, fmt.Sprintf("%s (%s, %s)", st.ID, st.Name, st.Status))
		if is(st.Name) && st.Status == deploy.StageRunning && (id == "" || id == st.ID) {
			running = append(running, st)
		}
	}
	stages := "it has no stages yet, because it is " + string(d.Status)
	if len(all) > 0 {
		stages = "its stages are " + strings.Join(all, ", ")
	}
	switch {
	case len(running) == 1:
		return running[0], nil
	case len(running) > 1:
		return deploy.Stage{}, deploy.Errorf(deploy.Illegal, "several stages of deployment %s are running %s: name one; %s", d.ID, what, stages)
	case id != "" && d.Stage(id) == nil:
		return deploy.Stage{}, deploy.Errorf(deploy.NotFound, "deployment %s has no stage %s: %s", d.ID, id, stages)
	case id != "":
		return deploy.Stage{}, deploy.Errorf(deploy.Illegal, "stage %s of deployment %s is not a running %s: %s", id, d.ID, what, stages)
	}
	return deploy.Stage{}, deploy.Errorf(deploy.Illegal, "deployment %s has no running %s: %s", d.ID, what, stages)
}
