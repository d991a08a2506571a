package control

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

const (
	// summaryDeployments is the number of deployments in a summary.
	summaryDeployments = 5
	// summaryLive limits the read of live objects for a summary.
	summaryLive = 2 * time.Second
	// maxWaits limits the deployments in a summary that have not ended.
	maxWaits = 20
)

// GetApplicationSummary returns what one screen shows of an application.
func (s *controlService) GetApplicationSummary(ctx context.Context, req *controlv1.GetApplicationSummaryRequest) (*controlv1.GetApplicationSummaryResponse, error) {
	app, err := s.store.Application(ctx, req.ApplicationId)
	if err != nil {
		return nil, err
	}
	known, err := readSituations(ctx, s.store, []deploy.Application{app})
	if err != nil {
		return nil, err
	}
	now := known[0]
	at := s.readHealth(ctx, &now, acceptedAge(req))
	m := s.convert.summary(now, s.now())
	return &controlv1.GetApplicationSummaryResponse{Summary: m, LiveReadAtMs: millis(at)}, s.addDeployments(ctx, app, m)
}

// readHealth reads the health of the live objects, unless that is known from a read at most age
// ago, and returns when they were read. If that fails, the stored health remains, and the reason
// explains why it is not known if there is none.
func (s *controlService) readHealth(ctx context.Context, known *deploy.Situation, age time.Duration) (at time.Time) {
	if s.live == nil || known.App.Deleted || known.App.LastTriggered == nil {
		return at // nothing was applied yet
	}
	ctx, cancel := context.WithTimeout(ctx, summaryLive)
	defer cancel()
	state, err := s.sharedLiveState(ctx, known.App, deploy.AllChildren, age)
	if err != nil {
		known.HealthReason = cmp.Or(known.HealthReason, "the live objects cannot be read: "+err.Error())
		return at
	}
	since := known.HealthSince
	if known.Health != state.Health {
		since = time.Time{}
	}
	known.Health, known.HealthReason, known.HealthSince = state.Health, cmp.Or(worstReason(state.Objects, state.Health), state.Incomplete), since
	return state.ReadAt
}

// worstReason returns the object that causes the health of all, with the reason of it or of
// what it created.
func worstReason(objects []deploy.LiveObject, health deploy.Health) string {
	for _, o := range objects {
		if o.Health != health || health == deploy.Healthy {
			continue
		}
		if reason := deepestReason(o); reason != "" {
			return o.Object.String() + ": " + reason
		}
	}
	return ""
}

// deepestReason returns the reason of a pod or another object that o created and that has the
// same health, else that of o.
func deepestReason(o deploy.LiveObject) string {
	for _, child := range o.Children {
		if child.Health != o.Health {
			continue
		}
		if reason := deepestReason(child); reason != "" {
			return reason
		}
	}
	return o.Reason
}

// summary converts what is known of an application, without its earlier deployments.
func (c converter) summary(known deploy.Situation, now time.Time) *controlv1.ApplicationSummary {
	app := known.App
	m := &controlv1.ApplicationSummary{
		Headline: text(deploy.Headline(known, now)), Status: appStatus(deploy.StateOf(known), now), Application: c.application(app),
		Health: healths[known.Health], HealthReason: text(known.HealthReason), WantedCommit: text(app.Desired()),
	}
	if r := app.LastSuccessful; r != nil {
		m.RunningCommit, m.RunningVersions = text(r.Trigger.Commit.Hash), versions(r.Versions)
	}
	wanted := known.Last
	if d := known.Current; d != nil {
		wanted, m.WantedCommit, m.Wait = d, text(d.Trigger.Commit.Hash), wait(d.Wait())
	}
	if wanted != nil {
		m.WantedVersions = versions(wanted.Versions)
	}
	if line := known.Drift.Line(); line.Text != "" {
		m.Drift = &controlv1.DriftSummary{
			Text: text(line.Text), Objects: int32(line.Objects), Fields: int32(line.Fields), Managers: textList(line.Managers), SinceMs: millis(known.Drift.BeganAt),
		}
	}
	return m
}

// addDeployments adds the last deployments, those that wait for approval and the last failure.
func (s *controlService) addDeployments(ctx context.Context, app deploy.Application, m *controlv1.ApplicationSummary) error {
	list, _, err := s.store.ListDeployments(ctx, store.DeploymentQuery{ApplicationIDs: []string{app.ID}, Limit: maxWaits, ActiveStages: true})
	if err != nil {
		return err
	}
	for _, d := range list {
		if w := wait(d.Wait()); w.GetApproval() {
			m.Approvals = append(m.Approvals, &controlv1.WaitingDeployment{
				DeploymentId: text(d.ID), ApplicationId: text(app.ID), ApplicationName: text(app.Name), Wait: w,
			})
		}
	}
	slices.SortStableFunc(list, func(a, b deploy.Deployment) int { return b.CreatedAt.Compare(a.CreatedAt) })
	for _, d := range list[:min(len(list), summaryDeployments)] {
		m.Deployments = append(m.Deployments, brief(d))
	}
	failed, err := lastFailed(ctx, s.store, app.ID)
	if failed != nil {
		m.LastFailure = brief(*failed)
	}
	return err
}
