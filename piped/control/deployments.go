package control

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/deploy"
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

// ListDeployments lists deployments without their transition logs, which
// GetDeployment gives. Every element of a repeated condition counts; empty ones
// do not.
func (s *apiService) ListDeployments(ctx context.Context, req *apiservice.ListDeploymentsRequest) (*apiservice.ListDeploymentsResponse, error) {
	q := DeploymentQuery{
		ApplicationIDs: nonEmpty(req.ApplicationIds), ApplicationName: req.ApplicationName,
		Labels: req.Labels, Limit: pageSize(req.Limit),
	}
	var err error
	if q.Statuses, err = statusesFromNames(req.Statuses); err != nil {
		return nil, err
	}
	ours, err := includesKubernetes(req.Kinds)
	if err != nil {
		return nil, err
	}
	if q.After, err = decodeCursor(req.Cursor); err != nil {
		return nil, err
	}
	resp := &apiservice.ListDeploymentsResponse{}
	if !ours {
		return resp, nil
	}
	deployments, err := s.store.Deployments(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, d := range deployments {
		resp.Deployments = append(resp.Deployments, s.convert.deployment(d, nil))
	}
	resp.Deployments = resp.Deployments[:fit(resp.Deployments)]
	if n := len(resp.Deployments); n > 0 {
		resp.Cursor = encodeCursor(Position{UpdatedAt: deployments[n-1].UpdatedAt, ID: deployments[n-1].ID})
	}
	return resp, nil
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

// includesKubernetes reports whether kinds, names of application kinds, ask for
// the only kind this agent deploys.
func includesKubernetes(kinds []string) (bool, error) {
	kinds = nonEmpty(kinds)
	found := len(kinds) == 0
	for _, k := range kinds {
		if _, ok := modelv1.ApplicationKind_value[k]; !ok {
			return false, status.Errorf(codes.InvalidArgument, "%s is invalid application kind", k)
		}
		found = found || k == deploy.KindKubernetes
	}
	return found, nil
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
