package drift

import (
	"context"

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
		commits, differs, err := j.Git.Undeployed(ctx, j.desired(), deployed, head)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		j.git = gitSide{deployed: deployed, head: head, commits: commits, differs: differs, known: true}
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
		_, differs, err := j.Git.Undeployed(ctx, j.desired(), commit, head)
		if err != nil {
			return false // it is asked again
		}
		j.git.tried = &tried{commit, !differs}
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
