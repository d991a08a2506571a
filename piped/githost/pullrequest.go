package githost

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// PullRequest is a pull request to open.
type PullRequest struct {
	Remote string // fetch URL of the repository
	Head   string // branch to merge
	Base   string // branch to merge into
	Title  string
	Body   string
}

// Proposed is an existing pull request.
type Proposed struct {
	Number int    // within the repository
	Head   string // head commit of the branch to merge
	Base   string // branch to merge into
	Open   bool
	Merged bool
}

// OpenRequest is an open pull request in a list.
type OpenRequest struct {
	Number int
	Head   string // branch to merge
	Commit string // full hash of its head commit
	Base   string // branch to merge into
	Fork   bool   // the head is in another repository
	Ref    string // of the head in this repository, such as refs/pull/7/head
	Labels []string
}

// maxOpenPages limits how many pages of perPage open pull requests are read.
const maxOpenPages = 50

// OpenPullRequests returns all open pull requests of a repository. A pull request that is closed
// meanwhile can hide another one: call PullRequest before a missing one counts as closed. More
// than the limit of pages is an error, because an incomplete list would look like closed ones.
func (a *API) OpenPullRequests(ctx context.Context, remote string) (all []OpenRequest, err error) {
	err = a.at(remote, "list open pull requests", func(path string) error {
		for page := 1; page <= maxOpenPages; page++ {
			found, more, err := a.openPullRequests(ctx, path, page)
			if all = append(all, found...); err != nil || !more {
				return err
			}
		}
		return deploy.Errorf(deploy.Invalid, "there are more than %d", maxOpenPages*perPage)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// OpenPullRequest opens a pull request and returns the URL of its page. It is idempotent.
// The error is of kind Invalid if the host rejects the pull request or does not know the
// repository or the token, else Unavailable.
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
	err = a.at(remote, "read a pull request", func(path string) (err error) {
		p, err = a.pullRequest(ctx, path, number)
		return err
	})
	return p, err
}

// MergedBy returns the pull requests whose merge, squash or rebase brought a commit into a
// branch.
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
