package trigger

import (
	"context"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Signatures returns the signers of commits. Signer returns "" when that is of no
// interest for the application configured at a place; the error is of kind
// deploy.Invalid when the commit does not count for it because it is not signed as
// it must be.
type Signatures interface {
	Signer(ctx context.Context, at deploy.GitPath, commit string) (string, error)
	// MustDescend returns the name of the rule by which a head counts for the
	// application configured at a place only if it descends from the one before, "" if
	// there is none.
	MustDescend(at deploy.GitPath) (rule string)
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

// headRefusal is refusal for the head, of an application as it is known; the zero value
// is one that is not.
func (w *watcher) headRefusal(ctx context.Context, app deploy.Application, at deploy.GitPath, head string) (refused, err error) {
	refused, err = w.refusal(ctx, at, head)
	if refused != nil || err != nil || w.Signatures == nil {
		return refused, err
	}
	rule, before := w.Signatures.MustDescend(at), app.EvaluatedCommit
	if before == "" && app.LastTriggered != nil {
		before = app.LastTriggered.Trigger.Commit.Hash
	}
	if rule == "" || before == "" {
		return nil, nil
	}
	_, descends, err := w.repo.Git.Since(ctx, before, head)
	if err != nil && !deploy.IsKind(err, deploy.NotFound) || descends {
		return nil, err
	}
	return deploy.Errorf(deploy.Invalid, "tenancy %q does not allow commit %s: it does not descend from commit %s, which was in effect before (verifyCommits.requireDescendant); "+
		"push a commit that does, or ask those who run the agent to accept the rewritten branch", rule, deploy.ShortHash(head), deploy.ShortHash(before)), nil
}

// screen takes out of an entry what a commit says that does not count for it: then
// it is as one that cannot be used, and says why.
func (w *watcher) screen(ctx context.Context, e *entry, commit string) error {
	refused, err := w.refusal(ctx, e.git, commit)
	e.refuse(refused)
	return err
}

// refuse makes an entry one of a commit that does not count, unless refused is nil.
func (e *entry) refuse(refused error) {
	if e.refused = refused; refused != nil {
		e.candidate.Config, e.candidate.Err = nil, refused
	}
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
