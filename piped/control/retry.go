package control

import (
	"cmp"
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// RetryDeployment requests an ended deployment again. Permissions to exceed the prune limit
// do not carry over.
func (s *controlService) RetryDeployment(ctx context.Context, req *controlv1.RetryDeploymentRequest) (*controlv1.RetryDeploymentResponse, error) {
	d, err := s.store.Deployment(ctx, req.DeploymentId)
	if err != nil {
		return nil, err
	}
	if !d.Status.Completed() {
		return nil, deploy.Errorf(deploy.Illegal, "deployment %s is %s and has not ended: wait for its end, or cancel it first", d.ID, d.Status)
	}
	app, err := s.deployable(ctx, d.ApplicationID)
	if err != nil {
		return nil, err
	}
	id, err := s.submit(ctx, deploy.Command{
		Type: deploy.CommandRetry, ApplicationID: app.ID, DeploymentID: d.ID,
		Strategy: cmp.Or(d.Strategy, d.Trigger.Strategy), Commit: d.Trigger.Commit.Hash,
	})
	return &controlv1.RetryDeploymentResponse{CommandId: id}, err
}
