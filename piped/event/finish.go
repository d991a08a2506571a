package event

import (
	"context"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// conclude is finish in the replica that does so with what no repository handles.
func (w *Watcher) conclude(ctx context.Context, e deploy.RegisteredEvent, status deploy.EventStatus, description string) error {
	right, ok := w.Rights.Own(ctx, e.ID)
	if !ok {
		return nil
	}
	defer right.Done()
	return w.finish(right.Context, e, status, description)
}

// finish sets the final status of an open event.
func (w *Watcher) finish(ctx context.Context, e deploy.RegisteredEvent, status deploy.EventStatus, description string) error {
	err := w.Store.FinishEvent(ctx, e.ID, status, description)
	if deploy.IsKind(err, deploy.Conflict) {
		return nil
	}
	if err == nil {
		w.Logger.Info("event handled", "event", e.Name, "eventID", e.ID, "status", status, "description", description)
	}
	return err
}

// markHandled records that a repository has handled an event. When all repositories have done
// so, here or in other replicas, and at least one was changed or failed, it finishes the event.
func (w *Watcher) markHandled(ctx context.Context, settings Settings, repoID, eventID string) error {
	w.mu.Lock()
	if w.done[eventID] == nil {
		w.done[eventID] = map[string]bool{}
	}
	w.done[eventID][repoID] = true
	var others []Repository
	for _, repo := range settings.Repositories {
		if !w.done[eventID][repo.ID] {
			others = append(others, repo)
		}
	}
	w.mu.Unlock()
	if len(others) > 0 && !w.shared {
		return nil
	}
	e, err := w.Store.RegisteredEvent(ctx, eventID)
	if err != nil || e.Status != deploy.EventOpen || len(e.Handlings) == 0 {
		return err
	}
	for _, repo := range others {
		if handled, err := w.handledElsewhere(ctx, repo, e); err != nil || !handled {
			return err
		}
	}
	status, description := outcome(e.Handlings)
	if status == deploy.EventOpen {
		return nil
	}
	return w.finish(ctx, e, status, description)
}

// handledElsewhere reports whether another replica has handled an event in a repository, or has nothing
// to do there. Of replicas that handle an event at the same time, the last one to store its result finds
// those of the others.
func (w *Watcher) handledElsewhere(ctx context.Context, repo Repository, e deploy.RegisteredEvent) (bool, error) {
	if right, ok := w.Rights.Own(ctx, repo.ID); ok {
		right.Done()
		return false, nil // its pass finishes the event
	}
	head, ok := w.head(ctx, repo)
	if !ok {
		return false, nil
	}
	s, err := w.readRules(ctx, repo, head)
	if err != nil {
		return false, err
	}
	for _, pullRequest := range []bool{false, true} {
		if len(s.of(e, pullRequest)) > 0 && e.Handling(repo.ID, pullRequest).Status == deploy.EventOpen {
			return false, nil
		}
	}
	return true, nil
}

// outcome combines handlings: failed if one has failed, else open if one is open, else
// handled.
func outcome(handlings []deploy.EventHandling) (deploy.EventStatus, string) {
	status := deploy.EventHandled
	var all []string
	for _, h := range handlings {
		switch {
		case h.Status == deploy.EventFailure:
			status = deploy.EventFailure
		case h.Status == deploy.EventOpen && status == deploy.EventHandled:
			status = deploy.EventOpen
		}
		all = append(all, h.Description)
	}
	return status, strings.Join(all, "; ")
}

// expired returns the final status of an event that exceeded maxAge.
func expired(e deploy.RegisteredEvent) (deploy.EventStatus, string) {
	if len(e.Handlings) == 0 {
		return deploy.EventOutdated, "not handled within an hour: no rule of an enabled application names this event and exactly these labels"
	}
	status, description := outcome(e.Handlings)
	if status != deploy.EventOpen {
		return status, description
	}
	for _, h := range e.Handlings {
		if h.Status == deploy.EventHandled {
			status = deploy.EventFailure // it was written to some repositories only
		}
	}
	if status == deploy.EventOpen {
		status = deploy.EventOutdated
	}
	return status, "not handled within an hour: " + description
}
