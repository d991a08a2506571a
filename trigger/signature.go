package trigger

import (
	"context"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Signatures tells who signed commits. Signer returns "" when that is of no
// interest for the application configured at a place; the error is of kind
// deploy.Invalid when the commit does not count for it because it is not signed as
// it must be.
type Signatures interface {
	Signer(ctx context.Context, at deploy.GitPath, commit string) (string, error)
}

// refusal says why a commit does not count for the application at a place, nil if
// it does. An error means that it could not be found out.
func (w *watcher) refusal(ctx context.Context, at deploy.GitPath, commit string) (refused, err error) {
	if w.Signatures == nil {
		return nil, nil
	}
	_, err = w.Signatures.Signer(ctx, at, commit)
	if deploy.IsKind(err, deploy.Invalid) {
		return err, nil
	}
	return nil, err
}

// screen takes out of an entry what a commit says that does not count for it: then
// it is as one that cannot be used, and says why.
func (w *watcher) screen(ctx context.Context, e *entry, commit string) (err error) {
	e.refused, err = w.refusal(ctx, e.git, commit)
	if e.refused != nil {
		e.candidate.Config, e.candidate.Err = nil, e.refused
	}
	return err
}

// unsigned begins the notice on an application for which the head does not count.
const unsigned = "The head is not deployed: "

// sayRefused says on an application, and once in the log, that the head does not
// count for it, or (nil) that it does again.
func (w *watcher) sayRefused(ctx context.Context, app deploy.Application, refused error) error {
	notice := ""
	if refused != nil {
		notice = unsigned + refused.Error()
	}
	if notice == app.Notice || refused == nil && !strings.HasPrefix(app.Notice, unsigned) {
		return nil
	}
	changed, err := w.Store.SetNotice(ctx, app.ID, notice, nil)
	switch {
	case !changed:
	case refused != nil:
		w.log.Warn("the head does not count for an application", "app", app.Name, "commit", w.catalog.commit.Short(), "reason", refused)
	default:
		w.log.Info("the head counts again for an application", "app", app.Name, "commit", w.catalog.commit.Short())
	}
	return err
}
