package trigger

import (
	"context"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// Signatures checks which commits may be deployed.
type Signatures interface {
	// Signer returns the signer of a commit, "" if the application at the Git path requires
	// no signature. The error is of kind deploy.Invalid if the commit lacks a required
	// signature.
	Signer(ctx context.Context, at deploy.GitPath, commit string) (string, error)
	// MustDescend returns the name of the rule that refuses a head for the application at the
	// Git path unless it descends from the commit that was in effect before; "" if there is
	// none.
	MustDescend(at deploy.GitPath) (rule string)
}

// refusal returns why a commit is refused for the application at a Git path, nil if it is
// accepted. err reports that the check itself failed.
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

// headRefusal is refusal for the head. It also checks that the head descends from the
// application's last commit, if a rule requires that. app is the zero value if the
// application is not registered.
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

// screen marks an entry as refused if its commit is refused for the application.
func (w *watcher) screen(ctx context.Context, e *entry, commit string) error {
	refused, err := w.refusal(ctx, e.git, commit)
	e.refuse(refused)
	return err
}

// refuse makes refused the error of the entry and removes its configuration. It does
// nothing if refused is nil.
func (e *entry) refuse(refused error) {
	if e.refused = refused; refused != nil {
		e.candidate.Config, e.candidate.Err = nil, refused
	}
}

// unsigned begins the notice on an application for which the head is refused.
const unsigned = "The head is not deployed: "

// sayRefused stores a notice on the application that the head is refused for it, or removes
// that notice if refused is nil. It logs each change.
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
