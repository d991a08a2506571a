package control

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Status provides the state of the agent.
type Status interface {
	// State returns the last known state of all components. It calls no cluster or
	// remote, so that it responds during their outage.
	State(ctx context.Context) deploy.AgentState
}

// GetStatus returns the state of the agent itself. It needs several queries, which concurrent
// callers share.
func (s *controlService) GetStatus(ctx context.Context, req *controlv1.GetStatusRequest) (*controlv1.GetStatusResponse, error) {
	return s.states.answer(ctx, req, s.readStatus)
}

func (s *controlService) readStatus(ctx context.Context) (*controlv1.GetStatusResponse, error) {
	var state deploy.AgentState
	if s.status != nil {
		state = s.status.State(ctx)
	}
	resp := &controlv1.GetStatusResponse{
		Agent: &controlv1.AgentStatus{
			PipedId: text(s.convert.pipedID), Name: text(state.Name), Version: text(state.Version), BuildCommit: text(state.BuildCommit),
			GoVersion: text(state.GoVersion), StartedAtMs: millis(state.StartedAt),
			ConfigLoadedAtMs: millis(state.ConfigLoadedAt), ConfigError: text(state.ConfigError), Disabled: state.Disabled,
		},
		Store: &controlv1.StoreStatus{
			Engine: text(state.Store.Engine), SchemaVersion: state.Store.SchemaVersion, SizeBytes: state.Store.SizeBytes, Error: text(state.Store.Error),
			Standbys: textList(state.Store.Standbys), Replicas: replicaStatuses(state.Store.Replicas), Handovers: state.Store.Handovers, Fenced: state.Store.Fenced,
		},
		Scripts: &controlv1.ScriptsStatus{
			Isolation: text(state.Scripts.Isolation), EndedBy: text(state.Scripts.EndedBy), Holds: text(state.Scripts.Holds), Error: text(state.Scripts.Error),
		},
	}
	for _, q := range state.Queues {
		resp.Queues = append(resp.Queues, &controlv1.QueueStatus{
			Name: text(q.Name), Waiting: int32(q.Waiting), Active: int32(q.Active), Limit: int32(q.Limit), OldestWaitingSinceMs: millis(q.OldestWaiting),
		})
	}
	for _, r := range state.Repositories {
		resp.Repositories = append(resp.Repositories, &controlv1.RepositoryStatus{
			Id: text(r.ID), Remote: text(r.Remote), Branch: text(r.Branch), Head: text(r.Head),
			CheckedAtMs: millis(r.CheckedAt), FetchedAtMs: millis(r.FetchedAt),
			Error: text(r.Error), FailingSinceMs: millis(r.FailingSince), Applications: int32(r.Applications),
		})
	}
	for _, c := range state.Clusters {
		resp.Clusters = append(resp.Clusters, clusterStatus(c))
	}
	for _, s := range deploy.SyncStatuses() {
		if n := state.SyncStates[s]; n > 0 {
			resp.SyncStates = append(resp.SyncStates, &controlv1.SyncStateCount{Status: syncStatus(s), Applications: int32(n)})
		}
	}
	for _, r := range state.Receivers {
		resp.Receivers = append(resp.Receivers, receiverStatus(r))
	}
	var err error
	if resp.Approvals, err = s.approvals(ctx); err != nil && resp.Store.Error == "" {
		resp.Store.Error = text(err.Error())
	}
	return resp, nil
}

func receiverStatus(r deploy.ReceiverState) *controlv1.ReceiverStatus {
	m := &controlv1.ReceiverStatus{
		Name: text(r.Name), Pending: int32(r.Pending), OldestPendingSinceMs: millis(r.OldestPending),
		DeadLetterCount: int32(r.Dead), Error: text(r.Error),
	}
	for _, d := range r.DeadLetters {
		m.DeadLetters = append(m.DeadLetters, deadLetter(d))
	}
	if !r.OldestDead.GivenUpAt.IsZero() {
		m.OldestDeadLetter = deadLetter(r.OldestDead)
	}
	return m
}

func deadLetter(d deploy.Delivery) *controlv1.DeadLetter {
	return &controlv1.DeadLetter{
		Key: text(d.Event.Key), Event: text(string(d.Event.Type)), DeploymentId: text(d.Event.DeploymentID),
		Attempts: int32(d.Attempts), Error: text(d.Error), GivenUpAtMs: millis(d.GivenUpAt),
	}
}

func clusterStatus(c deploy.ClusterState) *controlv1.ClusterStatus {
	m := &controlv1.ClusterStatus{
		Name: text(c.Name), Version: text(c.Version), Reachable: c.Reachable, Error: text(c.Error), FailingSinceMs: millis(c.FailingSince),
		WatchedKinds: int32(c.WatchedKinds), WatchedObjects: int64(c.WatchedObjects),
	}
	for _, p := range c.WatchProblems {
		m.WatchProblems = append(m.WatchProblems, &controlv1.WatchProblem{Kind: text(p.Kind), Error: text(p.Error), FailingSinceMs: millis(p.Since)})
	}
	return m
}

func replicaStatuses(replicas []deploy.ReplicaState) (out []*controlv1.ReplicaStatus) {
	for _, r := range replicas {
		out = append(out, &controlv1.ReplicaStatus{
			Host: text(r.Host), Version: text(r.Version), StartedAtMs: millis(r.StartedAt), Active: r.Active, Partitions: int32(r.Partitions), LastHandoverAtMs: millis(r.LastHandover),
		})
	}
	return out
}
