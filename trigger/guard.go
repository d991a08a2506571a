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

// The loop guard stops self-healing if an application drifts again after maxHeals self-heals
// of one commit within healWindow: then another client changes the live state repeatedly.
// Self-healing resumes after a change; see reasonToResume.
const (
	maxHeals   = 3
	healWindow = time.Hour
)

// heals counts the self-heals of the application within healWindow. It starts at the last
// deployment of a commit, the start of the present hold, or the last change of the notice,
// whichever is the latest. If commits do not deploy the application (on.Disabled), only
// self-heals of the desired commit count.
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

// stopHealing stores the notice that self-healing has stopped, publishes one event and logs
// it.
func (w *watcher) stopHealing(ctx context.Context, app deploy.Application, head deploy.Commit) error {
	notice := fmt.Sprintf(stopped+"the live state differs from Git again after %d self-heals of commit %s within %s. "+
		"Find out what changes it, and correct that or Git. Healing resumes with a commit to the application, "+
		"when a sync by hand succeeds, or when the live state is as in Git", maxHeals, head.Short(), strings.TrimSuffix(healWindow.String(), "0m0s"))
	payload, err := json.Marshal(map[string]any{"application": app.Name, "commit": head, "reason": notice})
	if err != nil {
		return err
	}
	event := &deploy.Event{
		// The last deployment is a self-heal, so the key differs each time that healing stops.
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

// resume removes the notice of an application, which resumes self-healing, if there is a
// reason for that. It returns the updated application.
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

// reasonToResume returns why an application whose self-healing has stopped may be healed
// again, "" if it must not.
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
