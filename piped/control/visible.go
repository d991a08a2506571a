package control

import (
	"context"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// visible is the store as a caller may see it: what belongs to an application that the caller
// may not view does not exist. Lists are filtered in the query, so that pages stay full. A
// context without a caller sees nothing.
//
// It embeds no Store, so that a new method cannot be forgotten here.
type visible struct{ all Store }

var _ Store = visible{}

// sees returns an error of kind NotFound, worded as that of an unknown ID, unless the caller
// may view the application. A caller who may view all causes no read.
func (v visible) sees(ctx context.Context, applicationID, what, id string) error {
	scope := viewOf(ctx)
	if scope.All {
		return nil
	}
	app, err := v.all.Application(ctx, applicationID)
	if err != nil && !deploy.IsKind(err, deploy.NotFound) {
		return err
	}
	if err == nil && scope.Contains(app) {
		return nil
	}
	return deploy.Errorf(deploy.NotFound, "there is no %s %s", what, id)
}

// seesDeployment is sees for the application of a deployment.
func (v visible) seesDeployment(ctx context.Context, id string) error {
	if viewOf(ctx).All {
		return nil
	}
	_, err := v.Deployment(ctx, id)
	return err
}

// only returns the values whose application the caller may view.
func only[T any](ctx context.Context, s Store, list []T, applicationID func(T) string) ([]T, error) {
	scope := viewOf(ctx)
	if scope.All || len(list) == 0 {
		return list, nil
	}
	ids := make([]string, len(list))
	for i, v := range list {
		ids[i] = applicationID(v)
	}
	slices.Sort(ids)
	apps, err := s.ApplicationsByID(ctx, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, a := range apps {
		seen[a.ID] = scope.Contains(a)
	}
	return slices.DeleteFunc(list, func(v T) bool { return !seen[applicationID(v)] }), nil
}

// restriction returns the scope for a query, nil for a caller who may view all.
func restriction(ctx context.Context) *deploy.Scope {
	scope := viewOf(ctx)
	if scope.All {
		return nil
	}
	return &scope
}

func (v visible) Application(ctx context.Context, id string) (deploy.Application, error) {
	app, err := v.all.Application(ctx, id)
	if err == nil && !viewOf(ctx).Contains(app) {
		return deploy.Application{}, deploy.Errorf(deploy.NotFound, "there is no application %s", id)
	}
	return app, err
}

func (v visible) ApplicationsByID(ctx context.Context, ids []string) ([]deploy.Application, error) {
	apps, err := v.all.ApplicationsByID(ctx, ids)
	scope := viewOf(ctx)
	return slices.DeleteFunc(apps, func(a deploy.Application) bool { return !scope.Contains(a) }), err
}

func (v visible) ListApplications(ctx context.Context, q store.ApplicationQuery) ([]deploy.Application, string, error) {
	q.Scope = restriction(ctx)
	return v.all.ListApplications(ctx, q)
}

func (v visible) ListDeployments(ctx context.Context, q store.DeploymentQuery) ([]deploy.Deployment, string, error) {
	q.Scope = restriction(ctx)
	return v.all.ListDeployments(ctx, q)
}

func (v visible) ListRollouts(ctx context.Context, q store.RolloutList) ([]deploy.Rollout, string, error) {
	q.Scope = restriction(ctx)
	return v.all.ListRollouts(ctx, q)
}

func (v visible) ListDriftReports(ctx context.Context, q store.DriftQuery) ([]deploy.DriftReport, string, error) {
	q.Scope = restriction(ctx)
	return v.all.ListDriftReports(ctx, q)
}

func applicationOf(d deploy.Deployment) string { return d.ApplicationID }

func (v visible) DeploymentsIn(ctx context.Context, statuses ...deploy.Status) ([]deploy.Deployment, error) {
	list, err := v.all.DeploymentsIn(ctx, statuses...)
	if err != nil {
		return nil, err
	}
	return only(ctx, v.all, list, applicationOf)
}

func (v visible) DeploymentsAtStage(ctx context.Context, name string) ([]deploy.Deployment, error) {
	list, err := v.all.DeploymentsAtStage(ctx, name)
	if err != nil {
		return nil, err
	}
	return only(ctx, v.all, list, applicationOf)
}

func (v visible) DeploymentsByID(ctx context.Context, ids []string) ([]deploy.Deployment, error) {
	list, err := v.all.DeploymentsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	return only(ctx, v.all, list, applicationOf)
}

// maxPrefixed limits the deployments read for an ID prefix by a caller who sees only some.
const maxPrefixed = 1000

func (v visible) DeploymentsByPrefix(ctx context.Context, prefix string, limit int) ([]deploy.Deployment, error) {
	read := limit
	if !viewOf(ctx).All {
		read = max(limit, maxPrefixed)
	}
	list, err := v.all.DeploymentsByPrefix(ctx, prefix, read)
	if err != nil {
		return nil, err
	}
	list, err = only(ctx, v.all, list, applicationOf)
	return list[:min(limit, len(list))], err
}

func (v visible) Deployment(ctx context.Context, id string) (deploy.Deployment, error) {
	d, err := v.all.Deployment(ctx, id)
	if err == nil {
		err = v.sees(ctx, d.ApplicationID, "deployment", id)
	}
	if err != nil {
		return deploy.Deployment{}, err
	}
	return d, nil
}

func (v visible) Transitions(ctx context.Context, deploymentID string) ([]deploy.Transition, error) {
	if err := v.seesDeployment(ctx, deploymentID); err != nil {
		return nil, err
	}
	return v.all.Transitions(ctx, deploymentID)
}

func (v visible) StageLogs(ctx context.Context, deploymentID string) (map[string][]deploy.LogBlock, error) {
	if err := v.seesDeployment(ctx, deploymentID); err != nil {
		return nil, err
	}
	return v.all.StageLogs(ctx, deploymentID)
}

func (v visible) StageLogAfter(ctx context.Context, deploymentID, stageID string, index int64, limit int) ([]deploy.LogBlock, error) {
	if err := v.seesDeployment(ctx, deploymentID); err != nil {
		return nil, err
	}
	return v.all.StageLogAfter(ctx, deploymentID, stageID, index, limit)
}

func (v visible) StageLogBefore(ctx context.Context, deploymentID, stageID string, index int64, limit int) ([]deploy.LogBlock, error) {
	if err := v.seesDeployment(ctx, deploymentID); err != nil {
		return nil, err
	}
	return v.all.StageLogBefore(ctx, deploymentID, stageID, index, limit)
}

func (v visible) LastLogIndex(ctx context.Context, deploymentID, stageID string) (int64, error) {
	if err := v.seesDeployment(ctx, deploymentID); err != nil {
		return -1, err
	}
	return v.all.LastLogIndex(ctx, deploymentID, stageID)
}

// Commits returns the commits with a visible deployment.
func (v visible) Commits(ctx context.Context, q store.CommitQuery) ([]deploy.CommitRef, error) {
	q.Scope = restriction(ctx)
	return v.all.Commits(ctx, q)
}

func (v visible) StatusChanges(ctx context.Context, deploymentIDs []string) (map[string][]deploy.Transition, error) {
	if viewOf(ctx).All {
		return v.all.StatusChanges(ctx, deploymentIDs)
	}
	list, err := v.DeploymentsByID(ctx, deploymentIDs)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, d := range list {
		ids = append(ids, d.ID)
	}
	return v.all.StatusChanges(ctx, ids)
}

func (v visible) AnalysisChecks(ctx context.Context, deploymentID, stageID string) ([]deploy.AnalysisCheck, error) {
	if err := v.seesDeployment(ctx, deploymentID); err != nil {
		return nil, err
	}
	return v.all.AnalysisChecks(ctx, deploymentID, stageID)
}

func (v visible) AnalysisSamples(ctx context.Context, deploymentID, stageID string) ([]deploy.AnalysisSample, error) {
	if err := v.seesDeployment(ctx, deploymentID); err != nil {
		return nil, err
	}
	return v.all.AnalysisSamples(ctx, deploymentID, stageID)
}

// Events and pull requests belong to no application. GetDeploymentTrace returns those of
// commits with a visible deployment.

func (v visible) RegisteredEvent(ctx context.Context, id string) (deploy.RegisteredEvent, error) {
	return v.all.RegisteredEvent(ctx, id)
}

func (v visible) RegisteredEventsByID(ctx context.Context, ids []string) ([]deploy.RegisteredEvent, error) {
	return v.all.RegisteredEventsByID(ctx, ids)
}

func (v visible) RegisteredEventsBySource(ctx context.Context, prefix string, limit int) ([]deploy.RegisteredEvent, error) {
	return v.all.RegisteredEventsBySource(ctx, prefix, limit)
}

func (v visible) EventCommits(ctx context.Context, commits []deploy.CommitRef) ([]store.EventCommit, error) {
	return v.all.EventCommits(ctx, commits)
}

func (v visible) PullRequestsOf(ctx context.Context, commits []deploy.CommitRef) ([]deploy.PullRequestCommit, error) {
	return v.all.PullRequestsOf(ctx, commits)
}

func (v visible) CommitsOfPullRequest(ctx context.Context, repoID string, number, limit int) ([]deploy.PullRequestCommit, error) {
	return v.all.CommitsOfPullRequest(ctx, repoID, number, limit)
}

// Places returns only IDs by path, from which no call shows more than the caller has asked
// about.
func (v visible) Places(ctx context.Context, repoID string) (deploy.Places, error) {
	return v.all.Places(ctx, repoID)
}

// Watch is for the components of the server, not for calls.
func (v visible) Watch(topics ...deploy.Topic) *store.Watch { return v.all.Watch(topics...) }

// Chain returns a chain without the members that the caller may not view.
func (v visible) Chain(ctx context.Context, id string) (deploy.Chain, error) {
	c, err := v.all.Chain(ctx, id)
	if err != nil || viewOf(ctx).All {
		return c, err
	}
	var blocks []deploy.ChainBlock
	for _, b := range c.Blocks {
		nodes, err := only(ctx, v.all, b.Nodes, func(n deploy.ChainNode) string { return n.ApplicationID })
		if err != nil {
			return deploy.Chain{}, err
		}
		if len(nodes) > 0 {
			blocks = append(blocks, deploy.ChainBlock{Nodes: nodes})
		}
	}
	if c.Blocks = blocks; len(blocks) == 0 {
		return deploy.Chain{}, deploy.Errorf(deploy.NotFound, "there is no deployment chain %s", id)
	}
	return c, nil
}

// Candidates returns the candidates that would be visible as applications.
func (v visible) Candidates(ctx context.Context) ([]deploy.Candidate, error) {
	list, err := v.all.Candidates(ctx)
	scope := viewOf(ctx)
	return slices.DeleteFunc(list, func(c deploy.Candidate) bool {
		return !scope.Contains(deploy.Application{Name: c.Name, Labels: c.Labels, Git: c.Git})
	}), err
}

// Command returns a command about an application that the caller may view. One about no
// application, such as a plan preview, is visible to the account that requested it.
func (v visible) Command(ctx context.Context, id string) (deploy.Command, error) {
	c, err := v.all.Command(ctx, id)
	switch {
	case err != nil:
		return c, err
	case c.ApplicationID != "":
		err = v.sees(ctx, c.ApplicationID, "command", id)
	case !viewOf(ctx).All && !requesterOf(ctx).Requested(c):
		err = deploy.Errorf(deploy.NotFound, "there is no command %s", id)
	}
	if err != nil {
		return deploy.Command{}, err
	}
	return c, nil
}

// requesterOf returns the caller as it requests plan previews.
func requesterOf(ctx context.Context) deploy.Requester {
	c := callerOf(ctx)
	return deploy.Requester{Account: c.Account(), Subject: c.Subject}
}

func (v visible) CreateCommand(ctx context.Context, c deploy.Command) (deploy.Command, error) {
	if c.ApplicationID != "" {
		if err := v.sees(ctx, c.ApplicationID, "application", c.ApplicationID); err != nil {
			return deploy.Command{}, err
		}
	}
	return v.all.CreateCommand(ctx, c)
}

func (v visible) AddApplication(ctx context.Context, a deploy.Application) error {
	return v.all.AddApplication(ctx, a)
}

func (v visible) DeleteApplication(ctx context.Context, id string) error {
	if err := v.sees(ctx, id, "application", id); err != nil {
		return err
	}
	return v.all.DeleteApplication(ctx, id)
}

func (v visible) SetDisabled(ctx context.Context, id string, disabled bool) error {
	if err := v.sees(ctx, id, "application", id); err != nil {
		return err
	}
	return v.all.SetDisabled(ctx, id, disabled)
}

func (v visible) SetRegisteredProvider(ctx context.Context, id, provider string) error {
	if err := v.sees(ctx, id, "application", id); err != nil {
		return err
	}
	return v.all.SetRegisteredProvider(ctx, id, provider)
}

func (v visible) RemoveApplication(ctx context.Context, c deploy.Command) (deploy.Command, error) {
	if err := v.sees(ctx, c.ApplicationID, "application", c.ApplicationID); err != nil {
		return deploy.Command{}, err
	}
	return v.all.RemoveApplication(ctx, c)
}

// PlanPreview returns a plan preview without the applications that the caller may not view:
// neither as they are, nor as the previewed commit would make them, because whoever wrote that
// commit chose its labels.
func (v visible) PlanPreview(ctx context.Context, commandID string) (deploy.PlanPreview, error) {
	p, err := v.all.PlanPreview(ctx, commandID)
	scope := viewOf(ctx)
	if err != nil || scope.All {
		return p, err
	}
	c, err := v.Command(ctx, commandID)
	if err != nil {
		return deploy.PlanPreview{}, err
	}
	var results []deploy.ApplicationPreview
	for i, outline := range p.Outlines() {
		seen, err := v.seesPreviewed(ctx, c.PlanPreview.RepoID, outline)
		if err != nil {
			return deploy.PlanPreview{}, err
		}
		if seen {
			results = append(results, p.Results[i])
		}
	}
	if p.Results = results; p.Error != "" {
		p.Error = hiddenPreviewError
	}
	return p, nil
}

// hiddenPreviewError is the error of a failed plan preview for a caller who may not view all
// applications: its text can name others.
const hiddenPreviewError = "the plan preview failed; its reason is visible to callers who may view all applications"

// seesPreviewed reports whether the caller may view an application of a plan preview, as it is
// and as the previewed commit would make it.
func (v visible) seesPreviewed(ctx context.Context, repoID string, o deploy.PreviewOutline) (bool, error) {
	scope := viewOf(ctx)
	if !scope.Contains(deploy.Application{Name: o.Name, Labels: o.Labels, Git: deploy.GitPath{RepoID: repoID}}) {
		return false, nil
	}
	is, err := v.all.Application(ctx, o.ApplicationID)
	if deploy.IsKind(err, deploy.NotFound) {
		return true, nil
	}
	return err == nil && scope.Contains(is), err
}

// PlanPreviews returns all plan previews to a caller who may view all applications, and to
// others those that they requested, as PlanPreview does.
func (v visible) PlanPreviews(ctx context.Context, q store.PlanPreviewQuery) ([]deploy.PlanPreviewBrief, string, error) {
	if viewOf(ctx).All {
		return v.all.PlanPreviews(ctx, q)
	}
	requester := requesterOf(ctx)
	q.Requester = &requester
	list, cursor, err := v.all.PlanPreviews(ctx, q)
	if err != nil {
		return nil, "", err
	}
	for i, b := range list {
		list[i].Outlines = nil
		for _, o := range b.Outlines {
			seen, err := v.seesPreviewed(ctx, b.Request.RepoID, o)
			if err != nil {
				return nil, "", err
			}
			if seen {
				list[i].Outlines = append(list[i].Outlines, o)
			}
		}
		if b.Error != "" {
			list[i].Error = hiddenPreviewError
		}
	}
	return list, cursor, nil
}

// PullPreviews returns all previews; the handlers convert only what the caller may view, because a
// preview that waits has applications that do not exist.
func (v visible) PullPreviews(ctx context.Context, repoID string, number int) ([]deploy.PullPreview, error) {
	return v.all.PullPreviews(ctx, repoID, number)
}

func (v visible) DismissPullPreview(ctx context.Context, repoID string, number int, head, by string) error {
	return v.all.DismissPullPreview(ctx, repoID, number, head, by)
}

func (v visible) ExtendPullPreview(ctx context.Context, repoID string, number int, head string, until time.Time) error {
	return v.all.ExtendPullPreview(ctx, repoID, number, head, until)
}

func (v visible) Adoptions(ctx context.Context) ([]deploy.Adoption, error) {
	list, err := v.all.Adoptions(ctx)
	if err != nil {
		return nil, err
	}
	list, err = only(ctx, v.all, list, func(a deploy.Adoption) string { return a.ApplicationID })
	for _, a := range list {
		for i, o := range a.Objects {
			if v.sees(ctx, o.OwnerApplicationID, "application", o.OwnerApplicationID) != nil {
				a.Objects[i].OwnerApplicationID = ""
			}
		}
	}
	return list, err
}

func (v visible) CheckDecision(ctx context.Context, appID, token string) error {
	if err := v.sees(ctx, appID, "application", appID); err != nil {
		return err
	}
	return v.all.CheckDecision(ctx, appID, token)
}

func (v visible) DriftReport(ctx context.Context, applicationID string) (deploy.DriftReport, error) {
	if err := v.sees(ctx, applicationID, "application", applicationID); err != nil {
		return deploy.DriftReport{}, err
	}
	return v.all.DriftReport(ctx, applicationID)
}

func (v visible) Degradations(ctx context.Context) ([]deploy.Degradation, error) {
	list, err := v.all.Degradations(ctx)
	if err != nil {
		return nil, err
	}
	return only(ctx, v.all, list, func(d deploy.Degradation) string { return d.ApplicationID })
}

// What follows is about the agent; the guard admits only callers who may use it.

func (v visible) Agent(ctx context.Context) (deploy.AgentRecord, error) { return v.all.Agent(ctx) }

func (v visible) UpdateAgent(ctx context.Context, fn func(*deploy.AgentRecord)) (deploy.AgentRecord, error) {
	return v.all.UpdateAgent(ctx, fn)
}

func (v visible) RegisterEvent(ctx context.Context, e deploy.RegisteredEvent) (deploy.RegisteredEvent, error) {
	return v.all.RegisterEvent(ctx, e)
}

func (v visible) RegisteredEvents(ctx context.Context, q store.RegisteredEventQuery) ([]deploy.RegisteredEvent, string, error) {
	return v.all.RegisteredEvents(ctx, q)
}

func (v visible) APIKey(ctx context.Context, id string) (deploy.APIKey, error) {
	return v.all.APIKey(ctx, id)
}

func (v visible) APIKeys(ctx context.Context) ([]deploy.APIKey, error) { return v.all.APIKeys(ctx) }

func (v visible) CreateAPIKey(ctx context.Context, k deploy.APIKey) error {
	return v.all.CreateAPIKey(ctx, k)
}

func (v visible) DisableAPIKey(ctx context.Context, id string) error {
	return v.all.DisableAPIKey(ctx, id)
}

func (v visible) ReplayDeadLetters(ctx context.Context, receiver string) (int, error) {
	return v.all.ReplayDeadLetters(ctx, receiver)
}

func (v visible) DropDeadLetters(ctx context.Context, receiver string) (int, error) {
	return v.all.DropDeadLetters(ctx, receiver)
}

func (v visible) AppendAudit(ctx context.Context, records ...deploy.AuditRecord) error {
	return v.all.AppendAudit(ctx, records...)
}

// ListAudit returns the records of applications that the caller may view. Who administers the
// agent sees all, also those about no application.
func (v visible) ListAudit(ctx context.Context, q store.AuditQuery) ([]deploy.AuditRecord, string, error) {
	if !administers(ctx) {
		q.Scope, q.OfApplications = restriction(ctx), true
	}
	return v.all.ListAudit(ctx, q)
}

func (v visible) Sessions(ctx context.Context, q store.SessionQuery) ([]deploy.Session, string, error) {
	return v.all.Sessions(ctx, q)
}

func (v visible) EndSession(ctx context.Context, id string) error { return v.all.EndSession(ctx, id) }

func (v visible) DisableUser(ctx context.Context, issuer, subject, by string) error {
	return v.all.DisableUser(ctx, issuer, subject, by)
}

func (v visible) EnableUser(ctx context.Context, issuer, subject string) error {
	return v.all.EnableUser(ctx, issuer, subject)
}

func (v visible) DisabledUsers(ctx context.Context) ([]deploy.DisabledUser, error) {
	return v.all.DisabledUsers(ctx)
}

func (v visible) Session(ctx context.Context, id string) (deploy.Session, error) {
	return v.all.Session(ctx, id)
}

func (v visible) NoteSessionUse(ctx context.Context, used map[string]time.Time) error {
	return v.all.NoteSessionUse(ctx, used)
}

func (v visible) NoteAPIKeyUse(ctx context.Context, used map[string]time.Time) error {
	return v.all.NoteAPIKeyUse(ctx, used)
}
