package drift

import (
	"context"
	"errors"
	"fmt"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// gitDiff is the cached comparison of two commits.
type gitDiff struct {
	deployed, head string
	commits        []string
	differs        bool
	problem        string // a permanent error
	known          bool
	tried          *tried // for the last triggered deployment; nil until needed
}

// tried reports whether a commit has the same manifests as the head.
type tried struct {
	commit string
	same   bool
}

// checkGit finds undeployed commits that change the application's manifests, up to the
// head or the commit of a hold. Commits of a pending deployment count only after
// Patience, since a sync window may hold it. While the configuration is invalid, the
// earlier finding is retained.
func (e *evaluation) checkGit(ctx context.Context) error {
	deployed, head := e.expected.commit, e.app.Desired()
	if head == "" || head == deployed {
		return nil
	}
	if e.app.Sync.Status == deploy.SyncInvalidConfig {
		if e.wasBehind() {
			e.behind, e.undeployed = true, e.open.Undeployed
		}
		return nil
	}
	if !e.git.known || e.git.deployed != deployed || e.git.head != head {
		missed, err := e.missed(ctx, gitKey{e.id, false}, deployed, head)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		e.git = gitDiff{deployed: deployed, head: head, commits: missed.commits, differs: missed.differs, known: true}
		if err != nil {
			e.git.problem, e.git.known = err.Error(), deploy.IsKind(err, deploy.Invalid)
			e.retryNeeded = !e.git.known
		}
	}
	e.gitProblem = e.git.problem
	if !e.git.differs {
		return nil
	}
	since, err := e.waiting(ctx)
	if err != nil {
		return err
	}
	waited := e.Now().Sub(since)
	switch {
	case since.IsZero(), waited >= e.Patience:
		e.behind, e.undeployed = true, e.git.commits
		e.tried = since.IsZero() && e.triedHead(ctx, head)
	case e.wasBehind():
		e.behind, e.undeployed = true, e.open.Undeployed // retained until the pending deployment ends
	default:
		e.enqueueAfter(e.id, e.Patience-waited)
	}
	return nil
}

// missed is the result of Git.Undeployed for two commits of an application.
type missed struct {
	commits []string
	differs bool
}

// gitKey identifies a comparison: with the last triggered commit (tried), or with the
// deployed one.
type gitKey struct {
	applicationID string
	tried         bool
}

// missed calls Git.Undeployed in the background. If it takes longer than GitPatience, the
// error wraps a *background.Running, and the application is enqueued again when it ends.
func (e *evaluation) missed(ctx context.Context, key gitKey, from, head string) (missed, error) {
	app := e.desired()
	answer, err := e.renderings.Do(ctx, key, from+" "+head, func() { e.enqueueAfter(e.id, 0) }, func(ctx context.Context) (m missed, err error) {
		m.commits, m.differs, err = e.Git.Undeployed(ctx, app, from, head)
		return m, err
	})
	var running *background.Running
	if errors.As(err, &running) {
		err = fmt.Errorf("render commits %s and %s: %w", deploy.ShortHash(from), deploy.ShortHash(head), err)
	}
	return answer, err
}

// wasBehind reports whether the open report lists undeployed commits, or none because
// the branch was rewritten.
func (e *evaluation) wasBehind() bool {
	return e.open != nil && (len(e.open.Undeployed) > 0 || len(e.open.Objects) == 0)
}

// triedHead reports whether the head's manifests were deployed last, without success.
func (e *evaluation) triedHead(ctx context.Context, head string) bool {
	last := e.app.LastTriggered
	if last == nil || last.DeploymentID == e.app.LastSuccessful.DeploymentID {
		return false
	}
	commit := last.Trigger.Commit.Hash
	if commit == head {
		return true
	}
	if e.git.tried == nil || e.git.tried.commit != commit {
		missed, err := e.missed(ctx, gitKey{e.id, true}, commit, head)
		if err != nil { // retried; while the commits are rendered, assume that head was deployed
			return errors.As(err, new(*background.Running))
		}
		e.git.tried = &tried{commit, !missed.differs}
	}
	return e.git.tried.same
}

// desired returns the application with the Git path of the commit that should be deployed:
// the path of the hold if there is one.
func (e *evaluation) desired() deploy.Application {
	app := e.app
	if app.Hold != nil {
		app.Git = app.Hold.Git
	}
	return app
}
