package store

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// hashRange adds the condition that a column with commit hashes begins with prefix. An index
// of the column finds them: all digits of hashes sort before "g".
func (f *filter) hashRange(column, prefix string) {
	f.add(column+" >= ? AND "+column+" < ?", prefix, prefix+"g")
}

// CommitQuery selects commits by the beginning of their hash.
type CommitQuery struct {
	Prefix string        // hexadecimal digits, in lower case
	RepoID string        // "" for all repositories
	Scope  *deploy.Scope // must contain an application of which the commit has a deployment; nil: no restriction, and no deployment is needed
	Limit  int           // of one kind of record; 0: no limit
}

// commitOfDeployment selects the commits of deployments.
const commitOfDeployment = "SELECT DISTINCT (SELECT o.repo_id FROM applications o WHERE o.id = deployments.application_id) AS repository, commit_hash FROM deployments"

// Commits returns the commits that q selects: those of deployments, and without a scope also
// those of events and pull requests.
func (s *Store) Commits(ctx context.Context, q CommitQuery) ([]deploy.CommitRef, error) {
	var f filter
	f.hashRange("commit_hash", q.Prefix)
	if q.RepoID != "" {
		f.add("(SELECT o.repo_id FROM applications o WHERE o.id = deployments.application_id) = ?", q.RepoID)
	}
	if _, err := s.scoped(ctx, &f, q.Scope, scopedList{"deployments", "application_id", "updated_at"}, true, q.Limit, ""); err != nil {
		return nil, s.fail(err, "find commits")
	}
	found, err := all(ctx, s, scanCommitRef, f.limit(commitOfDeployment+f.where()+" ORDER BY commit_hash", q.Limit), f.args...)
	if err != nil || q.Scope != nil {
		return found, s.fail(err, "find commits")
	}
	for _, table := range []string{"event_commits", "pull_request_commits"} {
		var f filter
		f.hashRange("commit_hash", q.Prefix)
		f.equal("repo_id", q.RepoID)
		more, err := all(ctx, s, scanCommitRef, f.limit("SELECT DISTINCT repo_id, commit_hash FROM "+table+f.where()+" ORDER BY commit_hash", q.Limit), f.args...)
		if err != nil {
			return nil, s.fail(err, "find commits")
		}
		found = append(found, more...)
	}
	return distinct(found), nil
}

func scanCommitRef(row scanner) (c deploy.CommitRef, err error) {
	return c, row.Scan(&c.RepoID, &c.Hash)
}

// distinct returns the values without repetitions, in order.
func distinct[T comparable](list []T) (out []T) {
	seen := map[T]bool{}
	for _, v := range list {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// of returns the values of some commits, which a query found by their hashes alone.
func of[T any](list []T, commits []deploy.CommitRef, commit func(T) deploy.CommitRef) (out []T) {
	wanted := map[deploy.CommitRef]bool{}
	for _, c := range commits {
		wanted[c] = true
	}
	for _, v := range list {
		if wanted[commit(v)] {
			out = append(out, v)
		}
	}
	return out
}

func hashes(commits []deploy.CommitRef) []string {
	out := make([]string, len(commits))
	for i, c := range commits {
		out[i] = c.Hash
	}
	return distinct(out)
}

// EventCommit records that an event wrote a commit.
type EventCommit struct {
	deploy.CommitRef
	EventID string
}

// EventCommits returns which events wrote these commits.
func (s *Store) EventCommits(ctx context.Context, commits []deploy.CommitRef) ([]EventCommit, error) {
	if len(commits) == 0 {
		return nil, nil
	}
	var f filter
	in(&f, "commit_hash", hashes(commits))
	found, err := all(ctx, s, func(row scanner) (c EventCommit, err error) {
		return c, row.Scan(&c.RepoID, &c.Hash, &c.EventID)
	}, "SELECT repo_id, commit_hash, event_id FROM event_commits"+f.where()+" ORDER BY commit_hash, repo_id, event_id", f.args...)
	return of(found, commits, func(c EventCommit) deploy.CommitRef { return c.CommitRef }), s.fail(err, "find the events of commits")
}

// RegisteredEventsByID returns those of the events that exist, the first registered first.
func (s *Store) RegisteredEventsByID(ctx context.Context, ids []string) ([]deploy.RegisteredEvent, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var f filter
	in(&f, "id", ids)
	events, err := all(ctx, s, scanRegistered, selectRegistered+f.where()+" ORDER BY created_at, id", f.args...)
	return events, s.fail(err, "read events")
}

// RegisteredEventsBySource returns up to limit events whose source commit begins with prefix,
// the first registered first.
func (s *Store) RegisteredEventsBySource(ctx context.Context, prefix string, limit int) ([]deploy.RegisteredEvent, error) {
	var f filter
	f.add("source_commit <> ''")
	f.hashRange("source_commit", prefix)
	events, err := all(ctx, s, scanRegistered, f.limit(selectRegistered+f.where()+" ORDER BY created_at, id", limit), f.args...)
	return events, s.fail(err, "find events by their source commit")
}

const selectPullRequestCommit = "SELECT repo_id, commit_hash, pull_request, link, at FROM pull_request_commits"

func scanPullRequestCommit(row scanner) (c deploy.PullRequestCommit, err error) {
	var at int64
	err = row.Scan(&c.RepoID, &c.Hash, &c.Number, &c.Link, &at)
	c.At = fromMilli(at)
	return c, err
}

// PullRequestsOf returns which pull requests these commits belong to.
func (s *Store) PullRequestsOf(ctx context.Context, commits []deploy.CommitRef) ([]deploy.PullRequestCommit, error) {
	if len(commits) == 0 {
		return nil, nil
	}
	var f filter
	in(&f, "commit_hash", hashes(commits))
	found, err := all(ctx, s, scanPullRequestCommit, selectPullRequestCommit+f.where()+" ORDER BY commit_hash, repo_id, pull_request", f.args...)
	return of(found, commits, func(c deploy.PullRequestCommit) deploy.CommitRef { return c.CommitRef }), s.fail(err, "find the pull requests of commits")
}

// CommitsOfPullRequest returns up to limit commits of a pull request, the last recorded first.
func (s *Store) CommitsOfPullRequest(ctx context.Context, repoID string, number, limit int) ([]deploy.PullRequestCommit, error) {
	f := filter{}
	f.add("repo_id = ? AND pull_request = ?", repoID, number)
	found, err := all(ctx, s, scanPullRequestCommit, f.limit(selectPullRequestCommit+f.where()+" ORDER BY at DESC, commit_hash", limit), f.args...)
	return found, s.fail(err, "find the commits of a pull request")
}

// SavePullRequestCommit records that a commit belongs to a pull request. The store sets the
// time.
func (s *Store) SavePullRequestCommit(ctx context.Context, c deploy.PullRequestCommit) error {
	err := s.write(ctx, func(t *tx) error { return t.linkPullRequest(ctx, c) })
	return s.fail(err, "store the pull request of commit "+deploy.ShortHash(c.Hash))
}

// linkPullRequest records that a commit belongs to a pull request; a number of 0 records
// nothing.
func (t *tx) linkPullRequest(ctx context.Context, c deploy.PullRequestCommit) error {
	if c.Number <= 0 || c.Hash == "" {
		return nil
	}
	_, err := t.exec(ctx, `INSERT INTO pull_request_commits (repo_id, pull_request, commit_hash, link, at) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (repo_id, pull_request, commit_hash) DO UPDATE SET link = excluded.link, at = excluded.at
		WHERE pull_request_commits.link <> excluded.link AND (excluded.link = 'MERGED' OR pull_request_commits.link = 'HEAD')`,
		c.RepoID, c.Number, c.Hash, string(c.Link), toMilli(t.store.now()))
	return err
}

// linkEvent records the commit and the pull request of a handling.
func (t *tx) linkEvent(ctx context.Context, eventID string, h deploy.EventHandling) error {
	if h.Commit == "" {
		return nil
	}
	_, err := t.exec(ctx, "INSERT INTO event_commits (event_id, repo_id, commit_hash) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", eventID, h.RepoID, h.Commit)
	if err != nil {
		return err
	}
	return t.linkPullRequest(ctx, deploy.PullRequestCommit{
		CommitRef: deploy.CommitRef{RepoID: h.RepoID, Hash: h.Commit}, Number: deploy.PullRequestOfPage(h.PullRequestURL), Link: deploy.LinkHead,
	})
}

// oldPullRequests deletes records of commits without a deployment.
const oldPullRequests = `DELETE FROM pull_request_commits WHERE (repo_id, pull_request, commit_hash) IN (
	SELECT p.repo_id, p.pull_request, p.commit_hash FROM pull_request_commits p WHERE p.at < ?
		AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.commit_hash = p.commit_hash) ORDER BY p.at LIMIT ?)`

// RemovePullRequestCommits deletes up to limit records of pull requests' commits that were
// written before a time and have no deployment, in one transaction, and returns how many were
// deleted.
func (s *Store) RemovePullRequestCommits(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	err = s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, oldPullRequests, toMilli(before), limit)
		removed = int(n)
		return err
	})
	if err != nil {
		return 0, s.fail(err, "remove old records of pull requests")
	}
	return removed, nil
}

// StatusChanges returns the transitions of deployments without those of their stages, by
// deployment, in chronological order.
func (s *Store) StatusChanges(ctx context.Context, deploymentIDs []string) (map[string][]deploy.Transition, error) {
	out := map[string][]deploy.Transition{}
	if len(deploymentIDs) == 0 {
		return out, nil
	}
	var f filter
	in(&f, "deployment_id", deploymentIDs)
	f.add("stage_id = ''")
	list, err := all(ctx, s, scanTransition, selectTransition+f.where()+" ORDER BY deployment_id, revision, position", f.args...)
	for _, t := range list {
		out[t.DeploymentID] = append(out[t.DeploymentID], t)
	}
	return out, s.fail(err, "read the statuses of deployments")
}
