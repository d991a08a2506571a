package event

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

// maxAttempts is how often a push is tried that others come before, and retryPause
// how long to wait at first.
const (
	maxAttempts = 6
	retryPause  = 200 * time.Millisecond
)

// pass does in one repository what its rules say of open events. It ends early
// when the repository does not do what it is asked; then the next pass goes on.
func (w *Watcher) pass(ctx context.Context, settings Settings, repo Repository, events []deploy.RegisteredEvent) {
	defer w.survive(repo)
	head, ok := repo.Git.Head()
	if !ok {
		return // nothing was fetched yet: the trigger says why
	}
	s, err := w.readRules(ctx, repo, head)
	for _, e := range events {
		if err != nil {
			break
		}
		s, err = w.handle(ctx, settings, repo, s, e)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		w.rest(repo.ID)
		w.Logger.Warn("cannot work off events in a repository; trying again", "repo", repo.ID, "error", err)
	default:
		w.recovered(repo.ID)
	}
}

// survive keeps a panic on what a repository holds from ending the agent.
func (w *Watcher) survive(repo Repository) {
	if cause := recover(); cause != nil {
		w.rest(repo.ID)
		w.Logger.Error("internal error on working off events", "repo", repo.ID, "error", fmt.Sprint(cause))
	}
}

// handle does what the rules of a repository say of one event. It returns the rules
// of the last head that it saw. That a pull request cannot be opened now is no error:
// what else is to be written does not wait for it.
func (w *Watcher) handle(ctx context.Context, settings Settings, repo Repository, s *ruleSet, e deploy.RegisteredEvent) (*ruleSet, error) {
	waits := false
	for _, pullRequest := range []bool{false, true} {
		if len(s.of(e, pullRequest)) == 0 || e.Handling(repo.ID, pullRequest).Status != deploy.EventOpen {
			continue
		}
		if waits = pullRequest && w.pausing(pullsOf(repo.ID)); waits {
			continue
		}
		job := &job{Watcher: w, settings: settings, repo: repo, rules: s, event: e, pullRequest: pullRequest}
		handling, err := job.run(ctx)
		s = job.rules
		if ctx.Err() != nil {
			return s, ctx.Err()
		}
		if handling == nil {
			return s, err // the event counts no more, or the store does not answer
		}
		if err := w.Store.SaveEventHandling(ctx, e.ID, *handling); err != nil {
			return s, err
		}
		var host hostError
		switch {
		case errors.As(err, &host):
			waits = true
			w.rest(pullsOf(repo.ID))
			w.Logger.Warn("cannot open a pull request for an event; trying again", "event", e.Name, "eventID", e.ID, "repo", repo.ID, "error", err)
		case err != nil:
			return s, err
		case pullRequest:
			w.recovered(pullsOf(repo.ID))
		}
	}
	if waits {
		return s, nil
	}
	return s, w.noted(ctx, settings, repo.ID, e.ID)
}

// pullsOf names the pull requests of a repository among what is left alone.
func pullsOf(repoID string) string { return repoID + "\x00pull requests" }

// hostError is an error of a host's API: the repository does what it is asked.
type hostError struct{ error }

func (e hostError) Unwrap() error { return e.error }

// job is one event in one repository, on its branch or in a pull request.
type job struct {
	*Watcher
	settings    Settings
	repo        Repository
	rules       *ruleSet
	event       deploy.RegisteredEvent
	pullRequest bool
}

// run makes and pushes the commit. When another push comes first, all is decided
// anew on the new head. The handling is nil when the event counts no more. An error
// beside an open handling says why it is to be tried again.
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
		if counts, err := j.anew(ctx); err != nil || !counts {
			return nil, err
		}
	}
}

// anew fetches the new head and reads its rules; counts is false when a newer event
// came meanwhile.
func (j *job) anew(ctx context.Context) (counts bool, err error) {
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

// attempt makes the commit on the head that is known and pushes it. The kind of the
// error is Conflict when the head is another one.
func (j *job) attempt(ctx context.Context) (*deploy.EventHandling, error) {
	rules := j.rules.of(j.event, j.pullRequest)
	if len(rules) == 0 {
		return j.handling(deploy.EventHandled, "nothing to commit: "+j.repo.ID+" has no rule for it any more"), nil
	}
	if !j.pullRequest {
		made, ok, err := j.repo.Git.WithTrailer(ctx, j.rules.commit.Hash, IDTrailer, j.event.ID)
		if err != nil {
			return nil, err
		}
		if ok { // by an agent that was stopped before it could say so
			return j.committed(made.Hash), nil
		}
	}
	files, err := apply(j.rules, rules, j.event)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return j.handling(deploy.EventHandled, "nothing to commit: the files of "+j.repo.ID+" hold the value already"), nil
	}
	if j.rules.signed != "" && !j.pullRequest {
		return nil, deploy.Errorf(deploy.Invalid,
			"for application %s in repository %s only signed commits count, and the agent signs none; set makePullRequest in %s, and sign when it is merged", j.rules.signed, j.repo.ID, rules[0].file)
	}
	text, err := message(rules, j.event)
	if err != nil {
		return nil, err
	}
	return j.push(ctx, text, files)
}

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
	// What follows is based on the new head; that it cannot be fetched now is told by
	// those who need it.
	if head, _, err := j.repo.Git.Sync(ctx); err == nil {
		if next, err := j.readRules(ctx, j.repo, head); err == nil {
			j.rules = next
		}
	}
	j.Look(j.repo.ID)
	return j.committed(commit), nil
}

// open opens the pull request of a branch that was pushed.
func (j *job) open(ctx context.Context, branch, commit, text string) (*deploy.EventHandling, error) {
	h := j.handling(deploy.EventHandled, "")
	h.Commit = commit
	if j.repo.PullRequests == nil {
		h.Description = fmt.Sprintf("pushed branch %s; open a pull request for it to %s at %s: no entry of spec.gitHosts is for its host", branch, j.repo.Branch, j.repo.Git.Remote())
		return h, nil
	}
	title, body := titled(text)
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

func (j *job) committed(commit string) *deploy.EventHandling {
	h := j.handling(deploy.EventHandled, fmt.Sprintf("committed %s to branch %s of %s", deploy.ShortHash(commit), j.repo.Branch, j.repo.ID))
	h.Commit = commit
	return h
}

func (j *job) handling(status deploy.EventStatus, description string) *deploy.EventHandling {
	return &deploy.EventHandling{RepoID: j.repo.ID, PullRequest: j.pullRequest, Status: status, Description: description}
}
