package control

import (
	"context"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Limits of a trace.
const (
	maxTracedCommits     = 200
	maxTracedDeployments = 1000
	maxTracedRollouts    = 2000
	maxTracedText        = 1000 // bytes of an event's data and description
	maxCandidateHashes   = 20   // in the error about an ambiguous commit
)

// history reads how changes, deployments and rollouts belong together.
type history interface {
	// Commits returns commits by the beginning of their hash.
	Commits(ctx context.Context, q store.CommitQuery) ([]deploy.CommitRef, error)
	// RegisteredEvent returns an event; RegisteredEventsByID returns those that exist;
	// RegisteredEventsBySource those whose source commit begins with prefix; EventCommits which
	// events wrote commits.
	RegisteredEvent(ctx context.Context, id string) (deploy.RegisteredEvent, error)
	RegisteredEventsByID(ctx context.Context, ids []string) ([]deploy.RegisteredEvent, error)
	RegisteredEventsBySource(ctx context.Context, prefix string, limit int) ([]deploy.RegisteredEvent, error)
	EventCommits(ctx context.Context, commits []deploy.CommitRef) ([]store.EventCommit, error)
	// PullRequestsOf returns which pull requests commits belong to, CommitsOfPullRequest the
	// commits of one.
	PullRequestsOf(ctx context.Context, commits []deploy.CommitRef) ([]deploy.PullRequestCommit, error)
	CommitsOfPullRequest(ctx context.Context, repoID string, number, limit int) ([]deploy.PullRequestCommit, error)
	// StatusChanges returns the transitions of deployments without those of stages.
	StatusChanges(ctx context.Context, deploymentIDs []string) (map[string][]deploy.Transition, error)
	// AnalysisChecks and AnalysisSamples return the checks of analyses and their samples, by
	// stage and check; stageID "" means all stages.
	AnalysisChecks(ctx context.Context, deploymentID, stageID string) ([]deploy.AnalysisCheck, error)
	AnalysisSamples(ctx context.Context, deploymentID, stageID string) ([]deploy.AnalysisSample, error)
}

// GetDeploymentTrace returns what came of a commit, an event, a pull request or a deployment.
func (s *controlService) GetDeploymentTrace(ctx context.Context, req *controlv1.GetDeploymentTraceRequest) (*controlv1.GetDeploymentTraceResponse, error) {
	t := &tracer{store: s.store, all: viewOf(ctx).All}
	unknown, err := t.start(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := t.follow(ctx); err != nil {
		return nil, err
	}
	if t.prune(); len(t.commits) == 0 && len(t.events) == 0 {
		return nil, unknown
	}
	m, err := t.message(ctx)
	if err != nil {
		return nil, err
	}
	return &controlv1.GetDeploymentTraceResponse{Trace: m}, nil
}

// validGetDeploymentTrace validates the request itself.
func validGetDeploymentTrace(r *controlv1.GetDeploymentTraceRequest) error {
	given := 0
	for _, is := range []bool{r.Commit != "", r.EventId != "", r.PullRequest != 0, r.DeploymentId != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return broken("GetDeploymentTraceRequest", "exactly one of commit, event_id, pull_request and deployment_id must be given")
	case r.PullRequest != 0 && r.RepositoryId == "":
		return required("GetDeploymentTraceRequest.RepositoryId", "")
	}
	return notNegative("GetDeploymentTraceRequest.PullRequest", r.PullRequest)
}

// tracer collects a trace. It is used once.
type tracer struct {
	store Store
	all   bool // the caller may view all applications

	requested map[deploy.CommitRef]bool
	commits   []deploy.CommitRef
	events    []deploy.RegisteredEvent
	writers   map[deploy.CommitRef][]string // IDs of the events that wrote a commit
	pulls     map[deploy.CommitRef][]deploy.PullRequestCommit

	deployments map[deploy.CommitRef][]deploy.Deployment // with those that follow in chains
	truncated   bool
}

// start finds the commits and events that are requested. unknown is the error if nothing
// visible belongs to them.
func (t *tracer) start(ctx context.Context, req *controlv1.GetDeploymentTraceRequest) (unknown, err error) {
	switch {
	case req.Commit != "":
		unknown = deploy.Errorf(deploy.NotFound, "there is no deployment of commit %s, nor of a commit that it caused", req.Commit)
		err = t.fromCommit(ctx, req.Commit, req.RepositoryId)
	case req.EventId != "":
		unknown = deploy.Errorf(deploy.NotFound, "there is no event %s", req.EventId)
		err = t.fromEvent(ctx, req.EventId)
	case req.PullRequest != 0:
		unknown = deploy.Errorf(deploy.NotFound,
			"there is no deployment of pull request %d of repository %s: the agent knows the commits of a pull request from its plan previews, from the Git host (spec.gitHosts), and from subjects of commits that name it",
			req.PullRequest, req.RepositoryId)
		err = t.fromPullRequest(ctx, req.RepositoryId, int(req.PullRequest))
	default:
		unknown = deploy.Errorf(deploy.NotFound, "there is no deployment %s", req.DeploymentId)
		err = t.fromDeployment(ctx, req.DeploymentId)
	}
	t.requested = map[deploy.CommitRef]bool{}
	for _, c := range t.commits {
		t.requested[c] = true
	}
	return unknown, err
}

// fromCommit starts with the commit whose hash begins with prefix, or that caused events.
func (t *tracer) fromCommit(ctx context.Context, prefix, repoID string) error {
	if !hashPrefix.MatchString(prefix) {
		return notAHash(prefix)
	}
	found, err := t.store.Commits(ctx, store.CommitQuery{Prefix: prefix, RepoID: repoID, Limit: maxTracedCommits})
	if err != nil {
		return err
	}
	var hashes []string
	for _, c := range found {
		hashes = append(hashes, c.Hash)
	}
	t.commits = found
	if repoID == "" {
		caused, err := t.store.RegisteredEventsBySource(ctx, prefix, maxTracedCommits)
		if err != nil {
			return err
		}
		for _, e := range caused {
			written := commitsOf(e)
			if written, err = t.visible(ctx, written); err != nil {
				return err
			}
			if t.all || len(written) > 0 {
				hashes, t.events, t.commits = append(hashes, e.Trigger.Hash), append(t.events, e), append(t.commits, written...)
			}
		}
	}
	slices.Sort(hashes)
	if hashes = slices.Compact(hashes); len(hashes) > 1 {
		return deploy.Errorf(deploy.Invalid, "commit %s means %s: give more digits", prefix, strings.Join(hashes[:min(len(hashes), maxCandidateHashes)], ", "))
	}
	return nil
}

// commitsOf returns the commits that an event wrote.
func commitsOf(e deploy.RegisteredEvent) (commits []deploy.CommitRef) {
	for _, h := range e.Handlings {
		if h.Commit != "" {
			commits = append(commits, deploy.CommitRef{RepoID: h.RepoID, Hash: h.Commit})
		}
	}
	return commits
}

// visible returns the commits that have, or whose pull requests have, a visible deployment.
func (t *tracer) visible(ctx context.Context, commits []deploy.CommitRef) ([]deploy.CommitRef, error) {
	if t.all || len(commits) == 0 {
		return commits, nil
	}
	one := &tracer{store: t.store, commits: commits}
	if err := one.follow(ctx); err != nil {
		return nil, err
	}
	if one.prune(); len(one.commits) == 0 {
		return nil, nil
	}
	return commits, nil
}

func (t *tracer) fromEvent(ctx context.Context, id string) error {
	e, err := t.store.RegisteredEvent(ctx, id)
	if err != nil {
		return err
	}
	t.events, t.commits = []deploy.RegisteredEvent{e}, commitsOf(e)
	return nil
}

func (t *tracer) fromPullRequest(ctx context.Context, repoID string, number int) error {
	found, err := t.store.CommitsOfPullRequest(ctx, repoID, number, maxTracedCommits)
	for _, c := range found {
		t.commits = append(t.commits, c.CommitRef)
	}
	return err
}

// fromDeployment starts with the commit that started the chain of a deployment, else with its
// own.
func (t *tracer) fromDeployment(ctx context.Context, id string) error {
	d, err := t.store.Deployment(ctx, id)
	if err != nil {
		return err
	}
	if d.ChainID != "" && d.ChainBlock > 0 {
		chain, _, err := t.store.ListDeployments(ctx, store.DeploymentQuery{ChainIDs: []string{d.ChainID}, Limit: maxTracedDeployments})
		if err != nil {
			return err
		}
		for _, other := range chain {
			if other.ChainBlock == 0 {
				d = other
			}
		}
	}
	t.commits = []deploy.CommitRef{commitOf(d)}
	return nil
}

func commitOf(d deploy.Deployment) deploy.CommitRef {
	return deploy.CommitRef{RepoID: d.Git.RepoID, Hash: d.Trigger.Commit.Hash}
}

// follow adds the other commits of the commits' pull requests, the events of all, and the
// deployments.
func (t *tracer) follow(ctx context.Context) error {
	if err := t.followPullRequests(ctx); err != nil {
		return err
	}
	if err := t.followEvents(ctx); err != nil {
		return err
	}
	return t.followDeployments(ctx)
}

// pullRequest identifies a pull request.
type pullRequest struct {
	repo   string
	number int
}

func pullRequestOf(p deploy.PullRequestCommit) pullRequest { return pullRequest{p.RepoID, p.Number} }

func (t *tracer) followPullRequests(ctx context.Context) error {
	t.add(nil)
	of, err := t.store.PullRequestsOf(ctx, t.commits)
	if err != nil {
		return err
	}
	followed := map[pullRequest]bool{}
	for _, p := range of {
		key := pullRequestOf(p)
		if followed[key] || len(t.commits) >= maxTracedCommits {
			continue
		}
		followed[key] = true
		more, err := t.store.CommitsOfPullRequest(ctx, p.RepoID, p.Number, maxTracedCommits)
		if err != nil {
			return err
		}
		for _, c := range more {
			t.add([]deploy.CommitRef{c.CommitRef})
		}
	}
	if of, err = t.store.PullRequestsOf(ctx, t.commits); err != nil {
		return err
	}
	t.pulls = map[deploy.CommitRef][]deploy.PullRequestCommit{}
	for _, p := range of {
		t.pulls[p.CommitRef] = append(t.pulls[p.CommitRef], p)
	}
	return nil
}

// add adds commits, without repetitions and within the limit.
func (t *tracer) add(more []deploy.CommitRef) {
	seen := map[deploy.CommitRef]bool{}
	t.commits = slices.DeleteFunc(append(t.commits, more...), func(c deploy.CommitRef) bool {
		again := seen[c]
		seen[c] = true
		return again || c.Hash == ""
	})
	t.commits = t.commits[:min(len(t.commits), maxTracedCommits)]
}

func (t *tracer) followEvents(ctx context.Context) error {
	written, err := t.store.EventCommits(ctx, t.commits)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, e := range t.events {
		known[e.ID] = true
		for _, c := range commitsOf(e) { // also of an event of an earlier version
			written = append(written, store.EventCommit{CommitRef: c, EventID: e.ID})
		}
	}
	t.writers = map[deploy.CommitRef][]string{}
	var ids []string
	for _, w := range written {
		if !slices.Contains(t.writers[w.CommitRef], w.EventID) {
			t.writers[w.CommitRef] = append(t.writers[w.CommitRef], w.EventID)
		}
		if !known[w.EventID] && len(known) < maxTracedCommits {
			known[w.EventID] = true
			ids = append(ids, w.EventID)
		}
	}
	more, err := t.store.RegisteredEventsByID(ctx, ids)
	t.events = append(t.events, more...)
	slices.SortStableFunc(t.events, func(a, b deploy.RegisteredEvent) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return err
}

// followDeployments adds the deployments of the commits, and those that follow them in their
// chains, each once.
func (t *tracer) followDeployments(ctx context.Context) error {
	t.deployments = map[deploy.CommitRef][]deploy.Deployment{}
	if len(t.commits) == 0 {
		return nil
	}
	var hashes []string
	known := map[deploy.CommitRef]bool{}
	for _, c := range t.commits {
		hashes, known[c] = append(hashes, c.Hash), true
	}
	own, _, err := t.store.ListDeployments(ctx, store.DeploymentQuery{Commits: hashes, Limit: maxTracedDeployments + 1})
	if err != nil {
		return err
	}
	own = slices.DeleteFunc(own, func(d deploy.Deployment) bool { return !known[commitOf(d)] })
	chains := map[string]deploy.CommitRef{}
	var ids []string
	for _, d := range own {
		if d.ChainID != "" && d.ChainBlock == 0 {
			chains[d.ChainID] = commitOf(d)
			ids = append(ids, d.ChainID)
		}
	}
	var followers []deploy.Deployment
	if len(ids) > 0 {
		followers, _, err = t.store.ListDeployments(ctx, store.DeploymentQuery{ChainIDs: ids, Limit: maxTracedDeployments + 1})
		if err != nil {
			return err
		}
	}
	placed := map[string]bool{}
	for _, d := range slices.Concat(own, followers) {
		if placed[d.ID] {
			continue
		}
		if len(placed) == maxTracedDeployments {
			t.truncated = true
			break
		}
		placed[d.ID] = true
		at := commitOf(d)
		if origin, ok := chains[d.ChainID]; ok && d.ChainID != "" {
			at = origin
		}
		t.deployments[at] = append(t.deployments[at], d)
	}
	return nil
}

// prune removes commits without a deployment, unless they are requested or an event wrote them.
// For a caller who may not view everything, a pull request of such a commit must also have a
// visible deployment, and events that wrote none of the remaining commits are removed.
func (t *tracer) prune() {
	deployed := map[pullRequest]bool{}
	for _, c := range t.commits {
		for _, p := range t.pulls[c] {
			if len(t.deployments[c]) > 0 {
				deployed[pullRequestOf(p)] = true
			}
		}
	}
	t.commits = slices.DeleteFunc(t.commits, func(c deploy.CommitRef) bool {
		if len(t.deployments[c]) > 0 {
			return false
		}
		related := slices.ContainsFunc(t.pulls[c], func(p deploy.PullRequestCommit) bool { return deployed[pullRequestOf(p)] })
		return !related && !t.all || len(t.writers[c]) == 0 && !t.requested[c]
	})
	if t.all {
		return
	}
	shown := map[string]bool{}
	for _, c := range t.commits {
		for _, id := range t.writers[c] {
			shown[id] = true
		}
	}
	t.events = slices.DeleteFunc(t.events, func(e deploy.RegisteredEvent) bool { return !shown[e.ID] })
}
