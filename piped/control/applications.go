package control

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// ListApplications lists applications that are not deleted.
func (s *apiService) ListApplications(ctx context.Context, req *apiservice.ListApplicationsRequest) (*apiservice.ListApplicationsResponse, error) {
	if _, ok := modelv1.ApplicationKind_value[req.Kind]; req.Kind != "" && !ok {
		return nil, status.Error(codes.InvalidArgument, "Invalid application kind")
	}
	if req.PipedId != "" && req.PipedId != s.convert.pipedID {
		return &apiservice.ListApplicationsResponse{}, nil // the agent has only its own applications
	}
	return s.applications.answer(ctx, req, func(ctx context.Context) (*apiservice.ListApplicationsResponse, error) {
		return s.listApplications(ctx, req)
	})
}

func (s *apiService) listApplications(ctx context.Context, req *apiservice.ListApplicationsRequest) (*apiservice.ListApplicationsResponse, error) {
	var last map[string]*modelv1.ApplicationDeployment
	apps, cursor, err := page(req.Limit, func(limit int) ([]deploy.Application, string, error) {
		apps, cursor, err := s.store.ListApplications(ctx, store.ApplicationQuery{
			Name: req.Name, Kind: req.Kind, Disabled: req.Disabled, Labels: req.Labels, Limit: limit, Cursor: req.Cursor,
		})
		if err == nil {
			last, err = s.lastDeployments(ctx, apps...)
		}
		return apps, cursor, err
	}, func(a deploy.Application) *modelv1.Application { return s.withLast(a, last) })
	if err != nil {
		return nil, err
	}
	return &apiservice.ListApplicationsResponse{Applications: apps, Cursor: cursor}, nil
}

// GetApplication returns an application, also a deleted one.
func (s *apiService) GetApplication(ctx context.Context, req *apiservice.GetApplicationRequest) (*apiservice.GetApplicationResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err != nil {
		return nil, named(err, "Application is not found")
	}
	last, err := s.lastDeployments(ctx, app)
	if err != nil {
		return nil, err
	}
	m := s.withLast(app, last)
	if m.LastFailure, err = s.lastFailure(ctx, app.ID); err != nil {
		return nil, err
	}
	return &apiservice.GetApplicationResponse{Application: m}, nil
}

// SyncApplication stores a command and returns. Whether the application can be synced is
// decided by the trigger and reported on the command.
func (s *apiService) SyncApplication(ctx context.Context, req *apiservice.SyncApplicationRequest) (*apiservice.SyncApplicationResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err == nil && app.Deleted {
		err = deploy.Errorf(deploy.NotFound, "application %s is deleted", app.ID)
	}
	if err != nil {
		return nil, named(err, "Application is not found")
	}
	command, err := s.store.CreateCommand(ctx, deploy.Command{
		ID: s.newID(), Type: deploy.CommandSync, ApplicationID: app.ID, Commander: callerOf(ctx).Subject, Strategy: deploy.StrategyAuto,
	})
	if err != nil {
		return nil, err
	}
	return &apiservice.SyncApplicationResponse{CommandId: command.ID}, nil
}

// GetCommand returns a command.
func (s *apiService) GetCommand(ctx context.Context, req *apiservice.GetCommandRequest) (*apiservice.GetCommandResponse, error) {
	command, err := s.store.Command(ctx, req.CommandId)
	if err != nil {
		return nil, named(err, "Command is not found")
	}
	return &apiservice.GetCommandResponse{Command: s.convert.command(command)}, nil
}

// named replaces the message of a NotFound error by the one that PipeCD's clients expect.
func named(err error, notFound string) error {
	if deploy.IsKind(err, deploy.NotFound) {
		return status.Error(codes.NotFound, notFound)
	}
	return err
}
