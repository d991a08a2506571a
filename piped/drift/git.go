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
}

// askGit finds out whether commits are not deployed that change what the application
// declares. While one waits to be deployed, none is missed.
func (j *judgement) askGit(ctx context.Context) error {
	deployed, head := j.expected.commit, j.app.EvaluatedCommit
	if head == "" || head == deployed || j.app.Sync.Status == deploy.SyncInvalidConfig {
		return nil
	}
	if !j.git.known || j.git.deployed != deployed || j.git.head != head {
		commits, differs, err := j.Git.Undeployed(ctx, j.app, deployed, head)
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
	waiting, err := j.waiting(ctx)
	if err == nil && !waiting {
		j.behind, j.undeployed = true, j.git.commits
	}
	return err
}
