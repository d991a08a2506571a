package event

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/ownership"
)

// Retries of a push after a concurrent push: number of attempts and first delay.
const (
	maxAttempts = 6
	retryPause  = 200 * time.Millisecond
)

// pass handles the open events in one repository. On an error it stops; the next pass
// continues.
func (w *Watcher) pass(ctx context.Context, settings Settings, repo Repository, events []deploy.RegisteredEvent) {
	defer w.recoverPanic(repo)
	head, ok := w.head(ctx, repo)
	if !ok {
		return // not fetched yet; the trigger reports that
	}
	s, err := w.readRules(ctx, repo, head)
	for _, e := range events {
		if err != nil {
			break
		}
		s, err = w.handle(ctx, settings, repo, s, e)
	}
	switch {
	case ownership.Over(ctx, err):
	case err != nil:
		w.backOff(repo.ID)
		w.Logger.Warn("cannot handle events in a repository; retrying", "repo", repo.ID, "error", err)
	default:
		w.recovered(repo.ID)
	}
}

// head returns the head of a repository. Where another replica may have watched it until now, it is
// read from the remote.
func (w *Watcher) head(ctx context.Context, repo Repository) (deploy.Commit, bool) {
	if w.shared {
		head, _, err := repo.Git.Sync(ctx)
		return head, err == nil
	}
	return repo.Git.Head()
}

// recoverPanic recovers from a panic caused by the content of a repository.
func (w *Watcher) recoverPanic(repo Repository) {
	if cause := recover(); cause != nil {
		w.backOff(repo.ID)
		w.Logger.Error("internal error while handling events", "repo", repo.ID, "error", fmt.Sprint(cause))
	}
}

// handle applies the rules s of a repository to one event and stores the result. It returns s,
// or the rules of the new head if it fetched one. A pull request that cannot be opened now is
// not an error, so that it does not block other changes.
func (w *Watcher) handle(ctx context.Context, settings Settings, repo Repository, s *ruleSet, e deploy.RegisteredEvent) (*ruleSet, error) {
	waits := false
	for _, pullRequest := range []bool{false, true} {
		if len(s.of(e, pullRequest)) == 0 || e.Handling(repo.ID, pullRequest).Status != deploy.EventOpen {
			continue
		}
		if waits = pullRequest && w.inBackoff(pullsOf(repo.ID)); waits {
			continue
		}
		job := &job{Watcher: w, settings: settings, repo: repo, rules: s, event: e, pullRequest: pullRequest}
		handling, err := job.run(ctx)
		s = job.rules
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		if handling == nil {
			return s, err // the event was superseded, or the store is unavailable
		}
		if err := w.Store.SaveEventHandling(ctx, e.ID, *handling); err != nil {
			return s, err
		}
		var host hostError
		switch {
		case errors.As(err, &host):
			waits = true
			w.backOff(pullsOf(repo.ID))
			w.Logger.Warn("cannot open a pull request for an event; retrying", "event", e.Name, "eventID", e.ID, "repo", repo.ID, "error", err)
		case err != nil:
			return s, err
		case pullRequest:
			w.recovered(pullsOf(repo.ID))
		}
	}
	if waits {
		return s, nil
	}
	return s, w.markHandled(ctx, settings, repo.ID, e.ID)
}

// pullsOf returns the backoff key of a repository's pull requests.
func pullsOf(repoID string) string { return repoID + "\x00pull requests" }

// hostError is an error of the host's API, which does not concern the repository itself.
type hostError struct{ error }

func (e hostError) Unwrap() error { return e.error }

// job handles one event in one repository, on its branch or in a pull request.
type job struct {
	*Watcher
	settings    Settings
	repo        Repository
	rules       *ruleSet
	event       deploy.RegisteredEvent
	pullRequest bool
}

// run creates and pushes the commit, and repeats that on the new head if another push comes
// first. It returns nil if the event was superseded. If the handling remains open, it also
// returns the error that caused this.
func (j *job) run(ctx context.Context) (*deploy.EventHandling, error) {
	pause := retryPause
	for attempt := 1; ; attempt++ {
		handling, err := j.attempt(ctx)
		switch {
		case err == nil:
			return handling, nil
		case deploy.IsKind(err, deploy.Invalid):
			return j.handling(deploy.EventFailure, err.Error()), nil
		case !deploy.IsKind(err, deploy.Conflict) || attempt == maxAttempts:
			return j.handling(deploy.EventOpen, err.Error()), err
		}
		if attempt > 1 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(pause):
			}
			pause *= 2
		}
		if counts, err := j.refetch(ctx); err != nil || !counts {
			return nil, err
		}
	}
}

// refetch fetches the new head and reads its rules; counts is false if the event was
// superseded in the meantime.
func (j *job) refetch(ctx context.Context) (counts bool, err error) {
	head, _, err := j.repo.Git.Sync(ctx)
	if err != nil {
		return false, err
	}
	if j.rules, err = j.readRules(ctx, j.repo, head); err != nil {
		return false, err
	}
	e, err := j.Store.RegisteredEvent(ctx, j.event.ID)
	return err == nil && e.Status == deploy.EventOpen && e.Newer == "", err
}

// attempt commits the new values on top of the known head, pushes the commit, and returns the
// result to store, even if there is nothing to commit. The error is of kind Conflict if the
// remote head has moved.
func (j *job) attempt(ctx context.Context) (*deploy.EventHandling, error) {
	rules := j.rules.of(j.event, j.pullRequest)
	if len(rules) == 0 {
		return j.handling(deploy.EventHandled, "nothing to commit: "+j.repo.ID+" no longer has a rule for the event"), nil
	}
	if !j.pullRequest {
		made, ok, err := j.repo.Git.WithTrailer(ctx, j.rules.commit.Hash, IDTrailer, j.event.ID)
		if err != nil {
			return nil, err
		}
		if ok { // pushed before the agent stopped without recording it
			return j.committed(made.Hash), nil
		}
	}
	files, err := apply(j.rules, rules, j.event)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return j.handling(deploy.EventHandled, "nothing to commit: the files of "+j.repo.ID+" already have the value"), nil
	}
	if j.rules.signed != "" && !j.pullRequest {
		return nil, deploy.Errorf(deploy.Invalid,
			"application %s in repository %s requires signed commits, and the agent does not sign; set makePullRequest in %s and sign the merge", j.rules.signed, j.repo.ID, rules[0].file)
	}
	text, err := message(rules, j.event)
	if err != nil {
		return nil, err
	}
	return j.push(ctx, text, files)
}

// push pushes the files as a commit to the repository's branch, or to the event's
// branch, for which it then opens a pull request.
func (j *job) push(ctx context.Context, text string, files map[string][]byte) (*deploy.EventHandling, error) {
	branch := j.repo.Branch
	if j.pullRequest {
		branch = branchOf(j.event)
	}
	commit, err := j.repo.Git.Push(ctx, branch, git.Change{
		Parent: j.rules.commit.Hash, Files: files, Message: text, Author: j.settings.Author, Email: j.settings.Email, At: j.Now(),
	})
	switch {
	case j.pullRequest && (err == nil || deploy.IsKind(err, deploy.Exists)):
		return j.open(ctx, branch, commit, text)
	case err != nil:
		return nil, err
	}
	j.Logger.Info("event committed", "event", j.event.Name, "eventID", j.event.ID, "repo", j.repo.ID, "commit", commit)
	// Further commits are based on the new head. An error is ignored: the next fetch
	// reports it.
	if head, _, err := j.repo.Git.Sync(ctx); err == nil {
		if next, err := j.readRules(ctx, j.repo, head); err == nil {
			j.rules = next
		}
	}
	j.Poll(j.repo.ID)
	return j.committed(commit), nil
}

// open opens the pull request of a pushed branch.
func (j *job) open(ctx context.Context, branch, commit, text string) (*deploy.EventHandling, error) {
	h := j.handling(deploy.EventHandled, "")
	h.Commit = commit
	if j.repo.PullRequests == nil {
		h.Description = fmt.Sprintf("pushed branch %s; open a pull request from it to %s at %s yourself, or add the host to spec.gitHosts", branch, j.repo.Branch, j.repo.Git.Remote())
		return h, nil
	}
	title, body := splitTitle(text)
	page, err := j.repo.PullRequests.Open(ctx, branch, j.repo.Branch, title, body)
	if deploy.IsKind(err, deploy.Invalid) {
		h.Status, h.Description = deploy.EventFailure, fmt.Sprintf("pushed branch %s, but: %s", branch, err)
		return h, nil
	}
	if err != nil {
		return nil, hostError{err}
	}
	h.Description, h.PullRequestURL = "opened pull request "+page, page
	return h, nil
}

// committed returns the handling after a commit was pushed.
func (j *job) committed(commit string) *deploy.EventHandling {
	h := j.handling(deploy.EventHandled, fmt.Sprintf("committed %s to branch %s of %s", deploy.ShortHash(commit), j.repo.Branch, j.repo.ID))
	h.Commit = commit
	return h
}

// handling returns a handling of the job's event in its repository.
func (j *job) handling(status deploy.EventStatus, description string) *deploy.EventHandling {
	return &deploy.EventHandling{RepoID: j.repo.ID, PullRequest: j.pullRequest, Status: status, Description: description}
}
