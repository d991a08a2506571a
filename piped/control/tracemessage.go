package control

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// message reads the statuses and rollouts of the deployments and returns the trace.
func (t *tracer) message(ctx context.Context) (*controlv1.DeploymentTrace, error) {
	var ids []string
	for _, c := range t.commits {
		for _, d := range t.deployments[c] {
			ids = append(ids, d.ID)
		}
	}
	changes, err := t.store.StatusChanges(ctx, ids)
	if err != nil {
		return nil, err
	}
	m := &controlv1.DeploymentTrace{DeploymentsTruncated: t.truncated}
	rollouts, err := t.rollouts(ctx, ids, m)
	if err != nil {
		return nil, err
	}
	for _, e := range t.events {
		m.Events = append(m.Events, t.event(e))
	}
	for _, c := range t.commits {
		m.Commits = append(m.Commits, t.commit(c, changes, rollouts))
	}
	slices.SortStableFunc(m.Commits, func(a, b *controlv1.TracedCommit) int { // those without a time are last
		return cmp.Or(cmp.Compare(uint64(a.CommittedAtMs-1), uint64(b.CommittedAtMs-1)), cmp.Compare(a.Hash, b.Hash))
	})
	fitTrace(m)
	return m, nil
}

// rollouts returns the rollouts of deployments, by deployment, the last started first.
func (t *tracer) rollouts(ctx context.Context, deploymentIDs []string, m *controlv1.DeploymentTrace) (map[string][]deploy.Rollout, error) {
	out := map[string][]deploy.Rollout{}
	if len(deploymentIDs) == 0 {
		return out, nil
	}
	list, next, err := t.store.ListRollouts(ctx, store.RolloutList{DeploymentIDs: deploymentIDs, Limit: maxTracedRollouts})
	m.RolloutsTruncated = next != ""
	for _, r := range list {
		out[r.DeploymentID] = append(out[r.DeploymentID], r)
	}
	return out, err
}

// event converts an event. What depends on repositories that the caller may not view is omitted.
func (t *tracer) event(e deploy.RegisteredEvent) *controlv1.TracedEvent {
	m := &controlv1.TracedEvent{
		EventId: text(e.ID), Name: text(e.Name), Data: cutText(e.Data), SourceCommit: text(e.Trigger.Hash), SourceUrl: text(e.Trigger.URL),
		RegisteredAtMs: millis(e.CreatedAt),
	}
	if t.all {
		m.Status = new(modelv1.EventStatus(modelv1.EventStatus_value[eventPrefix+string(e.Status)]))
		m.StatusDescription = cutText(e.StatusDescription)
	}
	for _, h := range e.Handlings {
		if m.PullRequestUrl == "" && (t.all || slices.Contains(t.commits, deploy.CommitRef{RepoID: h.RepoID, Hash: h.Commit})) {
			m.PullRequestUrl = text(h.PullRequestURL)
		}
	}
	return m
}

// cutText returns the first bytes of a text.
func cutText(s string) string { return text(s[:min(len(s), maxTracedText)]) }

var pullRequestLinks = map[deploy.PullRequestLink]controlv1.PullRequestLink{
	deploy.LinkHead:   controlv1.PullRequestLink_PULL_REQUEST_LINK_HEAD,
	deploy.LinkMerged: controlv1.PullRequestLink_PULL_REQUEST_LINK_MERGED,
	deploy.LinkNamed:  controlv1.PullRequestLink_PULL_REQUEST_LINK_NAMED,
}

// commit converts a commit with its deployments. Its values are those of the newest deployment.
func (t *tracer) commit(c deploy.CommitRef, changes map[string][]deploy.Transition, rollouts map[string][]deploy.Rollout) *controlv1.TracedCommit {
	m := &controlv1.TracedCommit{RepositoryId: text(c.RepoID), Hash: text(c.Hash), EventIds: textList(t.writers[c])}
	for _, p := range t.pulls[c] {
		m.PullRequests = append(m.PullRequests, &controlv1.TracedPullRequest{Number: int32(p.Number), Link: pullRequestLinks[p.Link]})
	}
	deployments := slices.SortedFunc(slices.Values(t.deployments[c]), func(a, b deploy.Deployment) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for _, d := range deployments {
		if commit := d.Trigger.Commit; commitOf(d) == c {
			m.Message, m.Author, m.Branch, m.Url = text(commit.Message), text(commit.Author), text(commit.Branch), text(commit.URL)
			m.CommittedAtMs, m.SourceCommit = millis(commit.At), text(commit.Trace)
		}
		m.Deployments = append(m.Deployments, tracedDeployment(d, changes[d.ID], rollouts[d.ID]))
	}
	return m
}

func tracedDeployment(d deploy.Deployment, changes []deploy.Transition, rollouts []deploy.Rollout) *controlv1.TracedDeployment {
	m := &controlv1.TracedDeployment{
		Deployment: brief(d), ApplicationId: text(d.ApplicationID), ApplicationName: text(d.ApplicationName), Kind: kindNumber(d.Kind), PlatformProvider: text(d.Provider),
		TriggerKind: modelv1.TriggerKind(modelv1.TriggerKind_value[triggerPrefix+string(d.Trigger.Kind)]), ChainId: text(d.ChainID), ChainBlock: int32(d.ChainBlock),
	}
	for i, c := range changes {
		phase := &controlv1.DeploymentPhase{Status: deploymentStatus(deploy.Status(c.To)), FromMs: millis(c.At)}
		if i+1 < len(changes) {
			phase.ToMs = millis(changes[i+1].At)
		}
		m.Phases = append(m.Phases, phase)
	}
	for _, r := range slices.Backward(rollouts) {
		m.Rollouts = append(m.Rollouts, &controlv1.TracedRollout{
			RolloutId: text(r.ID), StageId: text(r.StageID), Cluster: text(r.Cluster),
			WorkloadKind: text(r.Workload.Kind), WorkloadNamespace: text(r.Workload.Namespace), WorkloadName: text(r.Workload.Name),
			Outcome: outcomes[r.Phase], Reason: text(r.Reason), StartedAtMs: millis(r.StartedAt), CompletedAtMs: millis(r.CompletedAt),
		})
	}
	return m
}

// fitTrace drops rollouts, then the first deployments, until a trace fits into a response.
func fitTrace(m *controlv1.DeploymentTrace) {
	size := proto.Size(m)
	for _, c := range m.Commits {
		for _, d := range c.Deployments {
			if size > maxResponse && len(d.Rollouts) > 0 {
				whole := proto.Size(d)
				d.Rollouts, m.RolloutsTruncated = nil, true
				size -= whole - proto.Size(d)
			}
		}
	}
	for _, c := range m.Commits {
		for len(c.Deployments) > 0 && size > maxResponse {
			size -= proto.Size(c.Deployments[0])
			c.Deployments, m.DeploymentsTruncated = c.Deployments[1:], true
		}
	}
}
