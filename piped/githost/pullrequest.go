package githost

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// PullRequest is one that is to be opened.
type PullRequest struct {
	Remote string // of the repository, as it is fetched from
	Head   string // the branch to merge
	Base   string // the branch to merge it into
	Title  string
	Body   string
}

// Proposed is a pull request that is there.
type Proposed struct {
	Number int    // by which people name it in its repository
	Head   string // the newest commit of the branch to merge
	Base   string // the branch to merge it into
	Open   bool
	Merged bool
}

// OpenPullRequest opens a pull request and returns the address of its page. Asked
// again it returns the page of the one that it opened before. The kind is Invalid
// when the host refuses it, or does not know the repository or the token, else
// Unavailable.
func (a *API) OpenPullRequest(ctx context.Context, p PullRequest) (page string, err error) {
	err = a.at(p.Remote, "open a pull request for branch "+p.Head, func(path string) (err error) {
		page, err = a.open(ctx, path, p)
		if deploy.IsKind(err, deploy.Denied) {
			return &deploy.Error{Kind: deploy.Invalid, Err: err}
		}
		return err
	})
	return page, err
}

// PullRequest returns a pull request of a repository.
func (a *API) PullRequest(ctx context.Context, remote string, number int) (p Proposed, err error) {
	err = a.at(remote, "look at a pull request", func(path string) (err error) {
		p, err = a.pullRequest(ctx, path, number)
		return err
	})
	return p, err
}

// MergedBy returns the pull requests whose merge brought a commit into a branch,
// whether it was a merge, a squash or a rebase.
func (a *API) MergedBy(ctx context.Context, remote, branch, commit string) (merged []Proposed, err error) {
	err = a.at(remote, "find the pull request of commit "+deploy.ShortHash(commit), func(path string) error {
		found, err := a.pullRequestsOf(ctx, path, commit)
		for _, p := range found {
			if p.Merged && p.Base == branch {
				merged = append(merged, p)
			}
		}
		return err
	})
	return merged, err
}
