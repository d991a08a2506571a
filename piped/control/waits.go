package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// withLast converts an application, with its last deployment from last, by ID.
func (s *apiService) withLast(a deploy.Application, last map[string]*modelv1.ApplicationDeployment) *modelv1.Application {
	m := s.convert.application(a)
	if a.LastTriggered == nil {
		return m
	}
	m.LastDeployment = last[a.LastTriggered.DeploymentID]
	if active := last[a.ActiveID]; a.LastTriggered.DeploymentID != a.ActiveID && active.GetWait() != nil && m.LastDeployment.GetWait() != nil {
		m.LastDeployment.Wait.WaitsFor = fmt.Sprintf("the deployment of commit %s, which waits for %s", deploy.ShortHash(active.Commit), active.Wait.WaitsFor)
	}
	return m
}

// lastDeployments returns the last triggered and the active deployment of each
// application, by deployment ID.
func (s *apiService) lastDeployments(ctx context.Context, apps ...deploy.Application) (map[string]*modelv1.ApplicationDeployment, error) {
	var ids []string
	for _, a := range apps {
		if a.LastTriggered != nil {
			ids = append(ids, a.LastTriggered.DeploymentID)
		}
		if a.ActiveID != "" {
			ids = append(ids, a.ActiveID)
		}
	}
	slices.Sort(ids)
	found, err := s.store.DeploymentsByID(ctx, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	last := make(map[string]*modelv1.ApplicationDeployment, len(found))
	for _, d := range found {
		if last[d.ID], err = s.applicationDeployment(ctx, d); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// lastFailure returns the last deployment of an application that failed or is being rolled
// back because of a failure, or nil.
func (s *apiService) lastFailure(ctx context.Context, appID string) (*modelv1.ApplicationDeployment, error) {
	failed, err := lastFailed(ctx, s.store, appID)
	if failed == nil {
		return nil, err
	}
	return s.applicationDeployment(ctx, *failed)
}

// lastFailed is lastFailure without the conversion.
func lastFailed(ctx context.Context, s Store, appID string) (*deploy.Deployment, error) {
	failed, _, err := s.ListDeployments(ctx, store.DeploymentQuery{
		ApplicationIDs: []string{appID}, Statuses: []deploy.Status{deploy.Failure, deploy.RollingBack}, Limit: 2, // at most one is rolling back
	})
	i := slices.IndexFunc(failed, func(d deploy.Deployment) bool { return cmp.Or(d.Outcome, d.Status) == deploy.Failure })
	if err != nil || i < 0 {
		return nil, err
	}
	return &failed[i], nil
}

// applicationDeployment summarizes d. The reason why the running stage waits is the last line
// of its log.
func (s *apiService) applicationDeployment(ctx context.Context, d deploy.Deployment) (*modelv1.ApplicationDeployment, error) {
	m := applicationDeployment(d)
	if m.Wait.GetStageId() == "" || m.Wait.Approval {
		return m, nil
	}
	if may, err := permitted(ctx, s.store, deploy.PermViewLogs, d.ApplicationID); err != nil || !may {
		return m, err
	}
	last, err := s.store.LastLogIndex(ctx, d.ID, m.Wait.StageId)
	if err != nil || last < 0 {
		return m, err
	}
	blocks, err := s.store.StageLogAfter(ctx, d.ID, m.Wait.StageId, last-1, 1)
	if err == nil && len(blocks) > 0 {
		first, _, _ := strings.Cut(strings.TrimSpace(blocks[0].Log), "\n")
		m.Wait.WaitsFor += ": " + text(first)
	}
	return m, err
}

func applicationDeployment(d deploy.Deployment) *modelv1.ApplicationDeployment {
	return &modelv1.ApplicationDeployment{
		DeploymentId: text(d.ID), Status: deploymentStatus(d.Status), StatusReason: text(d.StatusReason), Commit: text(d.Trigger.Commit.Hash),
		CreatedAtMs: millis(d.CreatedAt), CompletedAtMs: millis(d.CompletedAt), Wait: wait(d.Wait()),
	}
}

func wait(w *deploy.Wait) *modelv1.DeploymentWait {
	if w == nil {
		return nil
	}
	return &modelv1.DeploymentWait{WaitsFor: text(w.For), SinceMs: millis(w.Since), StageId: text(w.StageID), Approval: w.Approval}
}

// approvals returns the deployments that wait for approval, the longest waiting first.
func (s *controlService) approvals(ctx context.Context) ([]*controlv1.WaitingDeployment, error) {
	running, err := s.store.DeploymentsAtStage(ctx, deploy.StageWaitApproval)
	var out []*controlv1.WaitingDeployment
	for _, d := range running {
		if w := wait(d.Wait()); w.GetApproval() {
			out = append(out, &controlv1.WaitingDeployment{
				DeploymentId: text(d.ID), ApplicationId: text(d.ApplicationID), ApplicationName: text(d.ApplicationName), Wait: w,
			})
		}
	}
	slices.SortStableFunc(out, func(a, b *controlv1.WaitingDeployment) int { return cmp.Compare(a.Wait.SinceMs, b.Wait.SinceMs) })
	return out[:fit(out)], err
}
