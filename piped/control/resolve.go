package control

import (
	"context"
	"path"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// maxMatches limits the matches that are returned for an ambiguous name.
const maxMatches = 20

// Resolve returns the applications or deployments that a name refers to.
func (s *controlService) Resolve(ctx context.Context, req *controlv1.ResolveRequest) (*controlv1.ResolveResponse, error) {
	if (req.Application == "") == (req.Deployment == "") {
		return nil, deploy.Errorf(deploy.Invalid, "application and deployment: give one of them")
	}
	resp := &controlv1.ResolveResponse{}
	if req.Deployment != "" {
		matches, err := s.resolveDeployments(ctx, req.Deployment)
		resp.Matches = matches
		return resp, err
	}
	apps, err := s.resolveApplications(ctx, req.Application)
	for _, a := range apps {
		resp.Matches = append(resp.Matches, reference(a.ID, a.Name, a.Git))
	}
	return resp, err
}

func reference(id, name string, git deploy.GitPath) *controlv1.ResolvedReference {
	return &controlv1.ResolvedReference{Id: text(id), ApplicationName: text(name), Path: text(path.Join(git.RepoID, git.Dir))}
}

// resolveApplications returns the application with the ID. If there is none, it returns those
// with the name, else those at the path, else those with the ID prefix.
func (s *controlService) resolveApplications(ctx context.Context, name string) ([]deploy.Application, error) {
	app, err := s.store.Application(ctx, name)
	if err == nil {
		return []deploy.Application{app}, nil
	}
	if !deploy.IsKind(err, deploy.NotFound) {
		return nil, err
	}
	all, _, err := s.store.ListApplications(ctx, store.ApplicationQuery{IncludeAll: true})
	if err != nil {
		return nil, err
	}
	for _, is := range []func(deploy.Application) bool{
		func(a deploy.Application) bool { return a.Name == name },
		func(a deploy.Application) bool { return matchesPath(a.Git, name) },
		func(a deploy.Application) bool { return strings.HasPrefix(a.ID, name) },
	} {
		var out []deploy.Application
		for _, a := range all {
			if is(a) && len(out) < maxMatches {
				out = append(out, a)
			}
		}
		if len(out) > 0 {
			return out, nil
		}
	}
	return nil, nil
}

// matchesPath reports whether name is <repository ID>/<directory or configuration file> of an
// application.
func matchesPath(at deploy.GitPath, name string) bool {
	name = path.Clean(name)
	return name == path.Join(at.RepoID, at.Dir) || name == path.Join(at.RepoID, at.ConfigPath())
}

// resolveDeployments returns the deployment with the ID; else those with the ID prefix and
// the newest ones of applications with that name.
func (s *controlService) resolveDeployments(ctx context.Context, name string) ([]*controlv1.ResolvedReference, error) {
	exact, err := s.store.DeploymentsByID(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	if len(exact) == 0 {
		exact, err = s.store.DeploymentsByPrefix(ctx, name, maxMatches)
	}
	if err != nil {
		return nil, err
	}
	var out []*controlv1.ResolvedReference
	for _, d := range exact {
		out = append(out, reference(d.ID, d.ApplicationName, d.Git))
		if d.ID == name {
			return out, nil
		}
	}
	apps, err := s.resolveApplications(ctx, name)
	for _, a := range apps {
		if a.LastTriggered != nil && len(out) < maxMatches {
			out = append(out, reference(a.LastTriggered.DeploymentID, a.Name, a.Git))
		}
	}
	return out, err
}
