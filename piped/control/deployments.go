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

// GetDeployment returns a deployment with its transition log.
func (s *apiService) GetDeployment(ctx context.Context, req *apiservice.GetDeploymentRequest) (*apiservice.GetDeploymentResponse, error) {
	d, err := s.store.Deployment(ctx, req.DeploymentId)
	if err != nil {
		return nil, named(err, "Deployment is not found")
	}
	log, err := s.store.Transitions(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	return &apiservice.GetDeploymentResponse{Deployment: s.convert.deployment(d, log)}, nil
}

// ListDeployments lists deployments without their transition logs, which GetDeployment
// returns. Empty values in a repeated condition are ignored; without
// another value, the condition matches everything.
func (s *apiService) ListDeployments(ctx context.Context, req *apiservice.ListDeploymentsRequest) (*apiservice.ListDeploymentsResponse, error) {
	statuses, err := statusesFromNames(req.Statuses)
	if err != nil {
		return nil, err
	}
	kinds, err := checkedKinds(req.Kinds)
	if err != nil {
		return nil, err
	}
	return s.deployments.answer(ctx, req, func(ctx context.Context) (*apiservice.ListDeploymentsResponse, error) {
		return s.listDeployments(ctx, req, statuses, kinds)
	})
}

// listDeployments reads one page of the deployments that req selects. statuses and
// kinds are its parsed conditions; empty ones match all.
func (s *apiService) listDeployments(ctx context.Context, req *apiservice.ListDeploymentsRequest, statuses []deploy.Status, kinds []string) (*apiservice.ListDeploymentsResponse, error) {
	deployments, cursor, err := page(req.Limit, func(limit int) ([]deploy.Deployment, string, error) {
		return s.store.ListDeployments(ctx, store.DeploymentQuery{
			Statuses: statuses, Kinds: kinds, ApplicationIDs: nonEmpty(req.ApplicationIds), ApplicationName: req.ApplicationName,
			Labels: req.Labels, EndedFrom: timeOf(req.CompletedFromMs), EndedTo: timeOf(req.CompletedToMs), Limit: limit, Cursor: req.Cursor,
		})
	}, func(d deploy.Deployment) *modelv1.Deployment { return s.convert.deployment(d, nil) })
	if err != nil {
		return nil, err
	}
	return &apiservice.ListDeploymentsResponse{Deployments: deployments, Cursor: cursor}, nil
}

func statusesFromNames(names []string) ([]deploy.Status, error) {
	var out []deploy.Status
	for _, name := range nonEmpty(names) {
		st, ok := statusFromName(name)
		if !ok {
			return nil, status.Errorf(codes.InvalidArgument, "%s is invalid deployment status", name)
		}
		out = append(out, st)
	}
	return out, nil
}

func checkedKinds(names []string) ([]string, error) {
	kinds := nonEmpty(names)
	for _, k := range kinds {
		if _, ok := modelv1.ApplicationKind_value[k]; !ok {
			return nil, status.Errorf(codes.InvalidArgument, "%s is invalid application kind", k)
		}
	}
	return kinds, nil
}

func nonEmpty(list []string) []string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}
