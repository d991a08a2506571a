package event

import (
	"context"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

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
// so, and at least one was changed or failed, it finishes the event.
func (w *Watcher) markHandled(ctx context.Context, settings Settings, repoID, eventID string) error {
	w.mu.Lock()
	if w.done[eventID] == nil {
		w.done[eventID] = map[string]bool{}
	}
	w.done[eventID][repoID] = true
	all := true
	for _, repo := range settings.Repositories {
		all = all && w.done[eventID][repo.ID]
	}
	w.mu.Unlock()
	if !all {
		return nil
	}
	e, err := w.Store.RegisteredEvent(ctx, eventID)
	if err != nil || e.Status != deploy.EventOpen || len(e.Handlings) == 0 {
		return err
	}
	status, description := outcome(e.Handlings)
	if status == deploy.EventOpen {
		return nil
	}
	return w.finish(ctx, e, status, description)
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
