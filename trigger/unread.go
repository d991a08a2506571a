package trigger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// unread begins the notice on an application whose configuration contains parts that the
// agent ignores, such as unknown keys.
const unread = "Not all of the configuration is read: "

// unreadNotice returns the notice about the ignored parts of an application's
// configuration, "" if there are none.
func (w *watcher) unreadNotice(id string) string {
	e, ok := w.catalog.entries[id]
	if !ok || e.candidate.Err != nil || len(e.candidate.Config.Unread) == 0 {
		return ""
	}
	lines := e.candidate.Config.Unread
	if more := len(lines) - maxShown; more > 0 {
		lines = append(lines[:maxShown:maxShown], fmt.Sprintf("%d more", more))
	}
	return unread + strings.Join(lines, "; ")
}

// setUnreadNotices stores the notices about ignored parts on the applications without
// another notice, and updates apps.
func (w *watcher) setUnreadNotices(ctx context.Context, apps map[string]deploy.Application) error {
	var errs []error
	for id, app := range apps {
		notice := w.unreadNotice(id)
		if app.Deleted || notice == app.Notice || app.Notice != "" && !strings.HasPrefix(app.Notice, unread) {
			continue
		}
		changed, err := w.Store.SetNotice(ctx, id, notice, nil)
		if errs = append(errs, err); err != nil {
			continue
		}
		app.Notice = notice
		apps[id] = app
		if changed && notice != "" {
			w.log.Warn("an application's configuration is not read in whole", "app", app.Name, "commit", w.catalog.commit.Short(), "reason", notice)
		}
	}
	return errors.Join(errs...)
}
