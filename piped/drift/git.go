package drift

import (
	"context"
	"errors"
	"fmt"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// gitSide is what was found out about two commits.
type gitSide struct {
	deployed, head string
	commits        []string
	differs        bool
	problem        string // why it cannot be told, whenever it is asked
	known          bool
	tried          *tried // of the deployment that was triggered last; nil until it is asked for
}

// tried says whether a commit declares what the head does.
type tried struct {
	commit string
	same   bool
}

// askGit finds out whether commits are not deployed that change what the application
// declares: up to the head, or up to the commit that the application is held at. While one is about to be deployed, or the configuration is invalid so that
// the head declares nothing, none is missed that was not before. One that is held back,
// by a sync window for instance, is missed after a while.
func (j *judgement) askGit(ctx context.Context) error {
	deployed, head := j.expected.commit, j.app.Desired()
	if head == "" || head == deployed {
		return nil
	}
	if j.app.Sync.Status == deploy.SyncInvalidConfig {
		if j.wasBehind() {
			j.behind, j.undeployed = true, j.open.Undeployed
		}
		return nil
	}
	if !j.git.known || j.git.deployed != deployed || j.git.head != head {
		missed, err := j.missed(ctx, gitKey{j.id, false}, deployed, head)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		j.git = gitSide{deployed: deployed, head: head, commits: missed.commits, differs: missed.differs, known: true}
		if err != nil {
			j.git.problem, j.git.known = err.Error(), deploy.IsKind(err, deploy.Invalid)
			j.unsettled = !j.git.known
		}
	}
	j.gitProblem = j.git.problem
	if !j.git.differs {
		return nil
	}
	since, err := j.waiting(ctx)
	if err != nil {
		return err
	}
	waited := j.Now().Sub(since)
	switch {
	case since.IsZero(), waited >= j.Patience:
		j.behind, j.undeployed = true, j.git.commits
		j.tried = since.IsZero() && j.triedHead(ctx, head)
	case j.wasBehind():
		j.behind, j.undeployed = true, j.open.Undeployed // it lasts until that one's end
	default:
		j.later(j.id, j.Patience-waited)
	}
	return nil
}

// missed are the commits that are not deployed.
type missed struct {
	commits []string
	differs bool
}

// gitKey names a question to Git about an application: about the commit that was tried
// last, or the one that is deployed.
type gitKey struct {
	applicationID string
	tried         bool
}

// missed asks Git what of an application is missed between two commits. While that takes
// long, because it is rendered, the error is a *background.Running, and its end has the
// application judged again.
func (j *judgement) missed(ctx context.Context, key gitKey, from, head string) (missed, error) {
	app := j.desired()
	answer, err := j.questions.Do(ctx, key, from+" "+head, func() { j.later(j.id, 0) }, func(ctx context.Context) (m missed, err error) {
		m.commits, m.differs, err = j.Git.Undeployed(ctx, app, from, head)
		return m, err
	})
	var running *background.Running
	if errors.As(err, &running) {
		err = fmt.Errorf("render commits %s and %s: %w", deploy.ShortHash(from), deploy.ShortHash(head), err)
	}
	return answer, err
}

// wasBehind reports whether the period that lasts tells of commits that are not
// deployed. They have no names when the branch was rewritten.
func (j *judgement) wasBehind() bool {
	return j.open != nil && (len(j.open.Undeployed) > 0 || len(j.open.Objects) == 0)
}

// triedHead reports whether what the head declares was deployed last, without success.
func (j *judgement) triedHead(ctx context.Context, head string) bool {
	last := j.app.LastTriggered
	if last == nil || last.DeploymentID == j.app.LastSuccessful.DeploymentID {
		return false
	}
	commit := last.Trigger.Commit.Hash
	if commit == head {
		return true
	}
	if j.git.tried == nil || j.git.tried.commit != commit {
		missed, err := j.missed(ctx, gitKey{j.id, true}, commit, head)
		if err != nil { // it is asked again; while it takes long, nothing is healed that may have been tried
			return errors.As(err, new(*background.Running))
		}
		j.git.tried = &tried{commit, !missed.differs}
	}
	return j.git.tried.same
}

// desired returns the application as it is in the commit that should run.
func (j *judgement) desired() deploy.Application {
	app := j.app
	if app.Hold != nil {
		app.Git = app.Hold.Git
	}
	return app
}
