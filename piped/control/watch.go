package control

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// maxCompleted limits the number of ended deployments at the start of a watch.
const maxCompleted = 1000

// deploymentFilter selects deployments; empty conditions match all.
type deploymentFilter struct {
	ids, applications []string
	labels            map[string]string
}

// matches reports whether all conditions are met.
func (f *deploymentFilter) matches(d *deploy.Deployment) bool {
	for name, value := range f.labels {
		if has, ok := d.Labels[name]; !ok || has != value {
			return false
		}
	}
	return f.mayMatch(deploy.Change{ID: d.ID, ApplicationID: d.ApplicationID})
}

// mayMatch returns false if the change cannot concern a matching deployment.
func (f *deploymentFilter) mayMatch(c deploy.Change) bool {
	return (len(f.ids) == 0 || slices.Contains(f.ids, c.ID)) &&
		(len(f.applications) == 0 || slices.Contains(f.applications, c.ApplicationID))
}

// WatchDeployments streams the matching deployments, then each changed one.
func (s *controlService) WatchDeployments(req *controlv1.WatchDeploymentsRequest, stream grpc.ServerStreamingServer[controlv1.WatchDeploymentsResponse]) error {
	if req.CompletedLimit > maxCompleted {
		return deploy.Errorf(deploy.Invalid, "completed_limit is %d: a watch starts with at most %d ended deployments; list them instead", req.CompletedLimit, maxCompleted)
	}
	f := &deploymentFilter{ids: nonEmpty(req.DeploymentIds), applications: nonEmpty(req.ApplicationIds), labels: req.Labels}
	sub := s.hub.subscribe(f, false)
	defer sub.close()
	// After a restart of the agent, all clients call again at once.
	present, err := s.begins.answer(stream.Context(), req, func(ctx context.Context) ([]*modelv1.Deployment, error) {
		return s.begin(ctx, f, int(req.CompletedLimit))
	})
	if err != nil {
		return err
	}
	// The subscription started earlier and may contain older states than these.
	sent := make(map[string]int64, len(present))
	for _, m := range present {
		if err := stream.Send(&controlv1.WatchDeploymentsResponse{Deployment: m}); err != nil {
			return err
		}
		sent[m.Id] = m.Revision
	}
	if err := stream.Send(&controlv1.WatchDeploymentsResponse{CaughtUp: true}); err != nil {
		return err
	}
	see := seen(stream.Context(), s.store, func(d *deploy.Deployment) string { return d.ApplicationID })
	return sub.each(stream.Context(), sent, see, func(m *modelv1.Deployment) error {
		return stream.Send(&controlv1.WatchDeploymentsResponse{Deployment: m})
	})
}

// begin returns the messages of the deployments at the start of a watch.
func (s *controlService) begin(ctx context.Context, f *deploymentFilter, completed int) ([]*modelv1.Deployment, error) {
	list, err := s.present(ctx, f, completed)
	out := make([]*modelv1.Deployment, len(list))
	for i, d := range list {
		out[i] = s.convert.deployment(d, nil)
	}
	return out, err
}

// seen returns a check of whether the caller may view the application of a changed state, nil
// for a caller who may view all.
func seen[V any](ctx context.Context, s Store, applicationID func(*V) string) func(*V) (bool, error) {
	if viewOf(ctx).All {
		return nil
	}
	return func(v *V) (bool, error) {
		_, err := s.Application(ctx, applicationID(v))
		if deploy.IsKind(err, deploy.NotFound) {
			return false, nil
		}
		return err == nil, err
	}
}

// present returns the deployments at the start of a watch: the named ones; or those that have
// not ended, then ended ones, newest first, at most completed.
func (s *controlService) present(ctx context.Context, f *deploymentFilter, completed int) ([]deploy.Deployment, error) {
	if len(f.ids) > 0 {
		list, err := s.store.DeploymentsByID(ctx, f.ids)
		slices.SortFunc(list, func(a, b deploy.Deployment) int {
			return cmp.Compare(slices.Index(f.ids, a.ID), slices.Index(f.ids, b.ID))
		})
		return slices.DeleteFunc(list, func(d deploy.Deployment) bool { return !f.matches(&d) }), err
	}
	list, err := s.store.DeploymentsIn(ctx, deploy.Pending, deploy.Planned, deploy.Running, deploy.RollingBack)
	list = slices.DeleteFunc(list, func(d deploy.Deployment) bool { return !f.matches(&d) })
	if err != nil || completed <= 0 {
		return list, err
	}
	ended, _, err := s.store.ListDeployments(ctx, store.DeploymentQuery{
		Statuses: []deploy.Status{deploy.Success, deploy.Failure, deploy.Cancelled}, ApplicationIDs: f.applications, Labels: f.labels, Limit: completed,
	})
	// A deployment that ended between the two reads is in both.
	known := make(map[string]bool, len(list))
	for _, d := range list {
		known[d.ID] = true
	}
	return append(list, slices.DeleteFunc(ended, func(d deploy.Deployment) bool { return known[d.ID] })...), err
}
