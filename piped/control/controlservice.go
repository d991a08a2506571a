package control

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// controlService implements ControlService. Methods that it lacks return Unimplemented.
type controlService struct {
	controlv1.UnimplementedControlServiceServer

	store          Store
	planner        Planner
	status         Status
	remover        Remover
	live           Live
	objects        Objects
	pods           PodLines
	drift          Drift
	figures        Figures
	configurations Configurations
	hub            *deploymentHub
	drifts         *driftHub
	previews       *previewHub
	catalog        *catalog
	entries        *entryHub
	now            func() time.Time
	convert        converter
	newID          func() string
	policy         func() *access.Policy

	// Reads shared by concurrent followers of logs, watches that begin, and callers who ask for
	// the state of the agent.
	deployments reads[deploy.Deployment]
	logs        reads[[]deploy.LogBlock]
	begins      reads[[]*modelv1.Deployment]
	states      recents[*controlv1.GetStatusResponse]
	results     results // of searches

	liveStates recents[deploy.LiveState] // shared by calls that request the same application
	openLogs   openLogs
}

// hashPrefix matches a full or abbreviated commit hash.
var hashPrefix = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// submit stores a command of the caller and returns its ID.
func (s *controlService) submit(ctx context.Context, c deploy.Command) (string, error) {
	c.ID, c.Commander, c.CommanderGroups = s.newID(), callerOf(ctx).Subject, callerOf(ctx).Groups
	stored, err := s.store.CreateCommand(ctx, c)
	return stored.ID, err
}

// SyncApplication requests a deployment of the head or of a given commit. Whether the
// commit is in the branch is checked by the trigger and reported on the command.
func (s *controlService) SyncApplication(ctx context.Context, req *controlv1.SyncApplicationRequest) (*controlv1.SyncApplicationResponse, error) {
	wanted, ok := modelv1.SyncStrategy_name[int32(req.Strategy)]
	switch {
	case !ok:
		return nil, noStrategy(req.Strategy)
	case req.Commit != "" && !hashPrefix.MatchString(req.Commit):
		return nil, notAHash(req.Commit)
	}
	app, err := s.deployable(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	id, err := s.submit(ctx, deploy.Command{
		Type: deploy.CommandSync, ApplicationID: app.ID, Strategy: deploy.Strategy(wanted), Commit: req.Commit,
		OverrideWindows: req.OverrideSyncWindows,
	})
	return &controlv1.SyncApplicationResponse{CommandId: id}, err
}

// RollbackApplication requests a quick sync of an earlier successfully deployed commit and
// holds the application at that commit.
func (s *controlService) RollbackApplication(ctx context.Context, req *controlv1.RollbackApplicationRequest) (*controlv1.RollbackApplicationResponse, error) {
	if req.DeploymentId != "" && req.Commit != "" {
		return nil, deploy.Errorf(deploy.Invalid, "deployment_id and commit exclude each other: give one of them")
	}
	app, err := s.deployable(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	source, err := s.rollbackSource(ctx, app, req)
	if err != nil {
		return nil, err
	}
	open, err := s.openDeployments(ctx, app)
	if err != nil {
		return nil, err
	}
	commit := source.Trigger.Commit.Hash
	id, err := s.submit(ctx, deploy.Command{
		Type: deploy.CommandSync, ApplicationID: app.ID, Strategy: deploy.StrategyQuickSync, Commit: commit,
		Metadata: map[string]string{deploy.MetaRollbackTo: source.ID}, Reason: req.Reason, WaitForRunning: req.WaitForRunning,
	})
	return &controlv1.RollbackApplicationResponse{CommandId: id, Commit: commit, Open: open}, err
}

// openDeployments returns the application's deployments that have not ended.
func (s *controlService) openDeployments(ctx context.Context, app deploy.Application) (open []*modelv1.Deployment, err error) {
	list, _, err := s.store.ListDeployments(ctx, store.DeploymentQuery{
		ApplicationIDs: []string{app.ID}, Statuses: []deploy.Status{deploy.Pending, deploy.Planned, deploy.Running, deploy.RollingBack},
	})
	for _, d := range list {
		open = append(open, s.convert.deployment(d, nil))
	}
	return open[:fit(open)], err
}

func noStrategy(number modelv1.SyncStrategy) error {
	return deploy.Errorf(deploy.Invalid, "there is no sync strategy %d: use AUTO, QUICK_SYNC or PIPELINE", number)
}

// notAHash returns the error for a commit that does not match hashPrefix.
func notAHash(commit string) error {
	return deploy.Errorf(deploy.Invalid, "commit %q is not a hash: give at least its first 7 digits, in lower case", commit)
}

// registered returns an application that is not deleted.
func (s *controlService) registered(ctx context.Context, id string) (deploy.Application, error) {
	app, err := s.store.Application(ctx, id)
	if err == nil && app.Deleted {
		err = deploy.Errorf(deploy.NotFound, "application %s is deleted", id)
	}
	return app, err
}

// deployable returns an application that is neither deleted nor disabled.
func (s *controlService) deployable(ctx context.Context, id string) (deploy.Application, error) {
	app, err := s.registered(ctx, id)
	if err == nil && app.Disabled {
		err = deploy.Errorf(deploy.Illegal, "application %s is disabled: enable it first", id)
	}
	return app, err
}

// rollbackSource returns the successful deployment whose commit is to be restored.
func (s *controlService) rollbackSource(ctx context.Context, app deploy.Application, req *controlv1.RollbackApplicationRequest) (deploy.Deployment, error) {
	if req.DeploymentId == "" {
		return s.earlierSuccess(ctx, app, req.Commit)
	}
	d, err := s.store.Deployment(ctx, req.DeploymentId)
	switch {
	case err != nil:
		return d, err
	case d.ApplicationID != app.ID:
		return d, deploy.Errorf(deploy.NotFound, "deployment %s is not one of application %s", d.ID, app.ID)
	case d.Status != deploy.Success:
		return d, deploy.Errorf(deploy.Illegal, "deployment %s is %s: name one that succeeded", d.ID, d.Status)
	}
	return d, nil
}

// earlierSuccess returns the newest success of a commit, given by a hash prefix; without
// a prefix, the newest success of another commit than that of the last success.
func (s *controlService) earlierSuccess(ctx context.Context, app deploy.Application, prefix string) (deploy.Deployment, error) {
	if prefix != "" && !hashPrefix.MatchString(prefix) {
		return deploy.Deployment{}, notAHash(prefix)
	}
	var found *deploy.Deployment
	last := ""
	if app.LastSuccessful != nil {
		last = app.LastSuccessful.Trigger.Commit.Hash
	}
	for cursor := ""; ; {
		list, next, err := s.store.ListDeployments(ctx, store.DeploymentQuery{
			ApplicationIDs: []string{app.ID}, Statuses: []deploy.Status{deploy.Success}, Limit: maxPage, Cursor: cursor,
		})
		if err != nil {
			return deploy.Deployment{}, err
		}
		for _, d := range list {
			switch hash := d.Trigger.Commit.Hash; {
			case prefix == "" && hash == last, !strings.HasPrefix(hash, prefix):
			case found == nil:
				found = &d
			case prefix != "" && hash != found.Trigger.Commit.Hash:
				return d, deploy.Errorf(deploy.Invalid, "commit %s means both %s and %s: give more digits", prefix, found.Trigger.Commit.Hash, hash)
			}
		}
		if cursor = next; cursor == "" || (prefix == "" && found != nil) {
			break
		}
	}
	switch {
	case found != nil:
		return *found, nil
	case prefix == "":
		return deploy.Deployment{}, deploy.Errorf(deploy.NotFound,
			"application %s has no earlier successful deployment to go back to: sync to a commit instead", app.ID)
	}
	return deploy.Deployment{}, deploy.Errorf(deploy.NotFound,
		"application %s has no successful deployment of commit %s: name another, or sync to the commit instead", app.ID, prefix)
}
