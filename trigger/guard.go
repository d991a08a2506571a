package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// The loop guard: so many self-heals of one commit in so long a time, and the
// application still drifts. Somebody else wants another state; healing goes on
// only after something has changed.
const (
	maxHeals   = 3
	healWindow = time.Hour
)

// heals counts the self-heals of what the application is in Git within the
// window: those since the last commit that was deployed or the begin of the hold that
// lasts, and not those before healing was resumed. Where no commit is deployed by itself,
// the hash of the desired commit distinguishes one state in Git from another.
func (w *watcher) heals(ctx context.Context, app deploy.Application, on config.OnCommit, desired deploy.Commit) (int, error) {
	since, commit := w.Now().Add(-healWindow), ""
	if on.Disabled {
		commit = desired.Hash
	}
	deployed, err := w.Store.LastTriggered(ctx, app.ID, deploy.OnCommit)
	if err != nil {
		return 0, err
	}
	starts := []time.Time{deployed, app.NoticeAt}
	if app.Hold != nil {
		starts = append(starts, app.Hold.Since)
	}
	for _, at := range starts {
		if at.After(since) {
			since = at
		}
	}
	return w.Store.CountTriggered(ctx, app.ID, deploy.OnOutOfSync, commit, since)
}

// stopped begins the notice on an application that the loop guard has stopped.
const stopped = "Self-healing stopped: "

func healingStopped(app deploy.Application) bool { return strings.HasPrefix(app.Notice, stopped) }

// stopHealing says on the application, in the log and in one notification that
// it is not healed any more.
func (w *watcher) stopHealing(ctx context.Context, app deploy.Application, head deploy.Commit) error {
	notice := fmt.Sprintf(stopped+"the live state differs from Git again after %d self-heals of commit %s within %s. "+
		"Find out what changes it, and correct that or Git. Healing resumes with a commit to the application, "+
		"when a sync by hand succeeds, or when the live state is as in Git", maxHeals, head.Short(), strings.TrimSuffix(healWindow.String(), "0m0s"))
	payload, err := json.Marshal(map[string]any{"application": app.Name, "commit": head, "reason": notice})
	if err != nil {
		return err
	}
	event := &deploy.Event{
		// One for each time that it stops: a healing deployment was the last one before.
		Key:  fmt.Sprintf("%s/self-heal-stopped/%s/%s", app.ID, head.Hash, app.LastTriggered.DeploymentID),
		Type: deploy.EventSelfHealStopped, ApplicationID: app.ID, DeploymentID: app.LastTriggered.DeploymentID,
		Payload: payload, At: w.Now(),
	}
	changed, err := w.Store.SetNotice(ctx, app.ID, notice, event)
	if changed {
		w.log.Warn("self-healing stopped", "app", app.Name, "commit", head.Short(), "heals", maxHeals, "window", healWindow)
	}
	return err
}

// resume lets healing go on if there is a reason to, and returns the application
// as it is then.
func (w *watcher) resume(ctx context.Context, app deploy.Application, on config.OnCommit) (deploy.Application, error) {
	reason, err := w.reasonToResume(ctx, app, on)
	if err != nil || reason == "" {
		return app, err
	}
	if _, err := w.Store.SetNotice(ctx, app.ID, "", nil); err != nil {
		return app, err
	}
	w.log.Info("self-healing resumed", "app", app.Name, "reason", reason)
	app.Notice, app.NoticeAt = "", w.Now()
	return app, nil
}

// reasonToResume says why an application whose healing has stopped may be healed
// again, "" if it may not.
func (w *watcher) reasonToResume(ctx context.Context, app deploy.Application, on config.OnCommit) (string, error) {
	byHand := app.LastSuccessful != nil && app.LastSuccessful.Trigger.Kind == deploy.OnCommand && app.LastSuccessful.CompletedAt.After(app.NoticeAt)
	switch {
	case app.Sync.Status == deploy.Synced:
		return "the live state is as in Git", nil
	case byHand:
		return "a sync by hand succeeded", nil
	case on.Disabled:
		n, err := w.Store.CountTriggered(ctx, app.ID, deploy.OnOutOfSync, w.catalog.commit.Hash, time.Time{})
		if err != nil || n > 0 {
			return "", err
		}
		return "there is a new commit", nil
	}
	deployed, err := w.Store.LastTriggered(ctx, app.ID, deploy.OnCommit)
	if err != nil || !deployed.After(app.NoticeAt) {
		return "", err
	}
	return "a commit to the application was deployed", nil
}
