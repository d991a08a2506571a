package control

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// ConfirmPrune permits the deletions because of which a deployment exceeded the prune limit
// and failed, and requests that deployment again.
func (s *controlService) ConfirmPrune(ctx context.Context, req *controlv1.ConfirmPruneRequest) (*controlv1.ConfirmPruneResponse, error) {
	app, err := s.deployable(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	d, refs, err := s.refusedPrune(ctx, app, req.DeploymentId)
	if err != nil {
		return nil, err
	}
	resp := &controlv1.ConfirmPruneResponse{DeploymentId: text(d.ID)}
	for _, ref := range refs {
		resp.Objects = append(resp.Objects, objectRef(d.Provider, ref))
	}
	if req.DryRun {
		return resp, nil
	}
	resp.CommandId, err = s.submit(ctx, deploy.Command{
		Type: deploy.CommandRetry, ApplicationID: app.ID, DeploymentID: d.ID, Strategy: d.Trigger.Strategy, Commit: d.Trigger.Commit.Hash,
		PermitPrune: refs,
	})
	return resp, err
}

// refusedPrune returns the application's newest deployment, which must have failed because of
// the prune limit, and the objects that it would have deleted. id, if not "", must be the ID
// of that deployment.
func (s *controlService) refusedPrune(ctx context.Context, app deploy.Application, id string) (deploy.Deployment, []deploy.ObjectRef, error) {
	none := deploy.Deployment{}
	switch last := app.LastTriggered; {
	case last == nil:
		return none, nil, deploy.Errorf(deploy.Illegal, "application %s has no deployment: there is nothing to confirm", app.ID)
	case id != "" && id != last.DeploymentID:
		return none, nil, deploy.Errorf(deploy.Illegal, "deployment %s is not the newest of application %s, which is %s", id, app.ID, last.DeploymentID)
	}
	d, err := s.store.Deployment(ctx, app.LastTriggered.DeploymentID)
	if err != nil {
		return none, nil, err
	}
	if !d.Status.Completed() {
		return none, nil, deploy.Errorf(deploy.Illegal, "deployment %s of application %s is %s: wait for its end", d.ID, app.ID, d.Status)
	}
	for _, stage := range d.Stages {
		text := stage.Metadata[deploy.MetaPruneRefused]
		if text == "" || stage.Status != deploy.StageFailure {
			continue
		}
		var refs []deploy.ObjectRef
		if err := json.Unmarshal([]byte(text), &refs); err != nil {
			return none, nil, fmt.Errorf("read what deployment %s would have deleted: %w", d.ID, err)
		}
		return d, refs, nil
	}
	return none, nil, deploy.Errorf(deploy.Illegal, "deployment %s of application %s is %s, and did not fail because it would delete too much: sync without confirming",
		d.ID, app.ID, d.Status)
}

func objectRef(cluster string, r deploy.ObjectRef) *modelv1.ObjectRef {
	return &modelv1.ObjectRef{
		Cluster: text(cluster), Group: text(r.Group), Version: text(r.Version), Kind: text(r.Kind), Namespace: text(r.Namespace), Name: text(r.Name),
	}
}
