package control

import (
	"cmp"
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// registrations stores registrations of applications. Each method announces its change.
// NotFound: the application is unknown or deleted.
type registrations interface {
	// AddApplication registers an application or restores a deleted one. Exists: it is
	// registered.
	AddApplication(ctx context.Context, a deploy.Application) error
	// DeleteApplication marks an application as deleted; SetDisabled disables it. Both
	// cancel pending deployments; running ones continue.
	DeleteApplication(ctx context.Context, id string) error
	SetDisabled(ctx context.Context, id string, disabled bool) error
	// SetRegisteredProvider sets the provider to use while the application's file names
	// none; "" unsets it.
	SetRegisteredProvider(ctx context.Context, id, provider string) error
}

const (
	applicationNotFound = "Application is not found"
	defaultConfigFile   = "app.pipecd.yaml"
)

// AddApplication registers an application by the path of its configuration, also if the
// file does not exist yet.
func (s *apiService) AddApplication(ctx context.Context, req *apiservice.AddApplicationRequest) (*apiservice.AddApplicationResponse, error) {
	if err := s.checkPipedID(req.PipedId); err != nil {
		return nil, err
	}
	if kinds := s.agent.Describe().Kinds; !slices.Contains(kinds, req.Kind.String()) {
		return nil, deploy.Errorf(deploy.Invalid, "applications of kind %s cannot be added: this agent deploys only %s", req.Kind, strings.Join(kinds, ", "))
	}
	git, err := s.place(req.GitPath)
	if err == nil {
		err = s.knownProvider(req.PlatformProvider)
	}
	if err != nil {
		return nil, err
	}
	id, err := s.idFor(ctx, git, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	now := s.now()
	app := deploy.Application{
		ID: id, Name: req.Name, Kind: req.Kind.String(), Git: git,
		Provider: req.PlatformProvider, Description: req.Description, Labels: req.Labels,
		Sync:         deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "The application was added and has not been read from Git yet", At: now},
		Registration: deploy.Registration{By: cmp.Or(callerOf(ctx).Subject, "API"), At: now, Provider: req.PlatformProvider, Name: req.Name},
	}
	if err := s.store.AddApplication(ctx, app); err != nil {
		return nil, err
	}
	return &apiservice.AddApplicationResponse{ApplicationId: app.ID}, nil
}

// idFor returns the ID of a new application: wanted, if that is set and valid, otherwise the
// ID that the agent derives from the path.
func (s *apiService) idFor(ctx context.Context, git deploy.GitPath, wanted string) (string, error) {
	if wanted != "" {
		return wanted, checkKeptID(wanted)
	}
	places, err := s.store.Places(ctx, git.RepoID)
	return places.ID(git), err
}

// checkKeptID returns an error for an ID that is not a valid Kubernetes label value or Git
// reference name.
func checkKeptID(id string) error {
	if regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`).MatchString(id) {
		return nil
	}
	return deploy.Errorf(deploy.Invalid, "%q cannot be an application ID: use up to 63 letters, digits, dashes and underscores, beginning and ending with a letter or digit", id)
}

// place validates a Git path and completes it with the configured remote and branch of its
// repository.
func (s *apiService) place(p *modelv1.ApplicationGitPath) (deploy.GitPath, error) {
	var out deploy.GitPath
	repositories := s.agent.Describe().Repositories
	i := slices.IndexFunc(repositories, func(r deploy.AgentRepository) bool { return r.ID == p.Repo.Id })
	if i < 0 {
		return out, status.Error(codes.NotFound, "The requested repository is not found in the Piped configuration")
	}
	dir, file := path.Clean(p.Path), cmp.Or(p.ConfigFilename, defaultConfigFile)
	if dir == ".." || strings.HasPrefix(dir, "../") || path.IsAbs(dir) {
		return out, deploy.Errorf(deploy.Invalid, "path %q is not in the repository: give the directory of the application from the repository's root", p.Path)
	}
	if !config.IsApplicationConfig(file) || path.Base(file) != file {
		return out, deploy.Errorf(deploy.Invalid, "%q is not a valid name of an application configuration: use app.pipecd.yaml or <name>.pipecd.yaml", file)
	}
	r := repositories[i]
	return deploy.GitPath{RepoID: r.ID, Remote: r.Remote, Branch: r.Branch, Dir: dir, ConfigFile: file}, nil
}

// knownProvider rejects a platform provider that is not configured; "" is valid.
func (s *apiService) knownProvider(name string) error {
	providers := s.agent.Describe().Providers
	if name == "" || slices.ContainsFunc(providers, func(p deploy.AgentProvider) bool { return p.Name == name }) {
		return nil
	}
	names := make([]string, len(providers))
	for i, p := range providers {
		names[i] = p.Name
	}
	return deploy.Errorf(deploy.Invalid, "no platform provider %q is configured; there are: %s", name, strings.Join(names, ", "))
}

// registered returns an application that is not deleted.
func (s *apiService) registered(ctx context.Context, id string) (deploy.Application, error) {
	app, err := s.store.Application(ctx, id)
	if err == nil && app.Deleted {
		err = deploy.Errorf(deploy.NotFound, "application %s is deleted", id)
	}
	return app, named(err, applicationNotFound)
}

// UpdateApplication changes the platform provider. The path of an application can be
// changed only in Git.
func (s *apiService) UpdateApplication(ctx context.Context, req *apiservice.UpdateApplicationRequest) (*apiservice.UpdateApplicationResponse, error) {
	if err := s.checkPipedID(req.PipedId); err != nil {
		return nil, err
	}
	app, err := s.registered(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	git, err := s.place(req.GitPath)
	if err == nil {
		err = s.knownProvider(req.PlatformProvider)
	}
	if err != nil {
		return nil, err
	}
	if err := checkSamePath(app, git); err != nil {
		return nil, err
	}
	if err := s.store.SetRegisteredProvider(ctx, app.ID, req.PlatformProvider); err != nil {
		return nil, named(err, applicationNotFound)
	}
	return &apiservice.UpdateApplicationResponse{ApplicationId: app.ID}, nil
}

// checkSamePath rejects a change of an application's path.
func checkSamePath(app deploy.Application, to deploy.GitPath) error {
	if to.Place() == app.Git.Place() {
		return nil
	}
	return deploy.Errorf(deploy.Illegal, "application %s cannot be moved from %s of repository %s to %s of %s by request: inside a repository, move its files in one commit, "+
		"which the application follows; otherwise delete it and add the new place, whose application takes over what runs",
		app.ID, app.Git.ConfigPath(), app.Git.RepoID, to.ConfigPath(), to.RepoID)
}

// RenameApplicationConfigFile succeeds if all applications have that file name already.
// Otherwise it returns an error that explains how to rename the file in Git.
func (s *apiService) RenameApplicationConfigFile(ctx context.Context, req *apiservice.RenameApplicationConfigFileRequest) (*apiservice.RenameApplicationConfigFileResponse, error) {
	for _, id := range req.ApplicationIds {
		app, err := s.registered(ctx, id)
		if err != nil {
			return nil, err
		}
		to := app.Git
		to.ConfigFile = req.NewFilename
		if err := checkSamePath(app, to); err != nil {
			return nil, err
		}
	}
	return &apiservice.RenameApplicationConfigFileResponse{}, nil
}

// UpdateApplicationDeployTargets sets the platform provider to the only target of the
// plugin of its kind.
func (s *apiService) UpdateApplicationDeployTargets(ctx context.Context, req *apiservice.UpdateApplicationDeployTargetsRequest) (*apiservice.UpdateApplicationDeployTargetsResponse, error) {
	app, err := s.registered(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	plugin := pluginOf(app.Kind)
	targets := req.DeployTargetsByPlugin[plugin].GetDeployTargets()
	if len(req.DeployTargetsByPlugin) != 1 || len(targets) != 1 || targets[0] == "" {
		return nil, deploy.Errorf(deploy.Invalid, "an application has one deploy target: give {%q: [<platform provider>]}", plugin)
	}
	if err := s.knownProvider(targets[0]); err != nil {
		return nil, err
	}
	if err := s.store.SetRegisteredProvider(ctx, app.ID, targets[0]); err != nil {
		return nil, named(err, applicationNotFound)
	}
	return &apiservice.UpdateApplicationDeployTargetsResponse{}, nil
}

// DeleteApplication unregisters an application until it is added again. Its objects stay.
func (s *apiService) DeleteApplication(ctx context.Context, req *apiservice.DeleteApplicationRequest) (*apiservice.DeleteApplicationResponse, error) {
	if err := s.store.DeleteApplication(ctx, req.ApplicationId); err != nil {
		return nil, named(err, applicationNotFound)
	}
	return &apiservice.DeleteApplicationResponse{ApplicationId: req.ApplicationId}, nil
}

// EnableApplication enables an application and evaluates the head at once, so that missed
// changes are deployed.
func (s *apiService) EnableApplication(ctx context.Context, req *apiservice.EnableApplicationRequest) (*apiservice.EnableApplicationResponse, error) {
	if err := s.store.SetDisabled(ctx, req.ApplicationId, false); err != nil {
		return nil, named(err, applicationNotFound)
	}
	return &apiservice.EnableApplicationResponse{ApplicationId: req.ApplicationId}, nil
}

// DisableApplication stops triggering and cancels pending deployments. Running ones
// continue.
func (s *apiService) DisableApplication(ctx context.Context, req *apiservice.DisableApplicationRequest) (*apiservice.DisableApplicationResponse, error) {
	if err := s.store.SetDisabled(ctx, req.ApplicationId, true); err != nil {
		return nil, named(err, applicationNotFound)
	}
	return &apiservice.DisableApplicationResponse{ApplicationId: req.ApplicationId}, nil
}
