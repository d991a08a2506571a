package control

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Remover determines the objects to delete with an application.
type Remover interface {
	// Removals returns the objects that would be deleted now, by cluster and in the
	// order of deletion. Unavailable: a cluster does not answer.
	Removals(ctx context.Context, app deploy.Application) ([]deploy.InventoryItem, error)
}

// removals unregisters applications together with their objects.
type removals interface {
	// RemoveApplication stores a CommandDeleteApplication and unregisters its
	// application at once; see store.Store.
	RemoveApplication(ctx context.Context, c deploy.Command) (deploy.Command, error)
}

// DeleteApplication unregisters an application. It optionally deletes the applied objects; the
// command then completes when they are gone.
func (s *controlService) DeleteApplication(ctx context.Context, req *controlv1.DeleteApplicationRequest) (*controlv1.DeleteApplicationResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	switch {
	case err != nil:
		return nil, err
	case app.Deleted && !req.Cascade:
		return nil, deploy.Errorf(deploy.NotFound, "application %s is deleted", app.ID)
	case app.Deploying && req.Cascade:
		return nil, deploy.Errorf(deploy.Illegal, "a deployment of application %s is active: wait for its end, or cancel it, before its objects are deleted", app.ID)
	}
	resp := &controlv1.DeleteApplicationResponse{}
	if req.Cascade {
		items, err := s.remover.Removals(ctx, app)
		if err != nil && (req.DryRun || !deploy.IsKind(err, deploy.Unavailable)) {
			return nil, err
		}
		for _, item := range items {
			resp.Objects = append(resp.Objects, objectRef(item.Cluster, item.Object))
		}
	}
	if req.DryRun {
		return resp, nil
	}
	c, err := s.store.RemoveApplication(ctx, deploy.Command{
		ID: s.newID(), Type: deploy.CommandDeleteApplication, ApplicationID: app.ID, Commander: callerOf(ctx).Subject, Cascade: req.Cascade,
	})
	resp.CommandId = c.ID
	return resp, err
}
