package deploy

import (
	"net/url"
	"path"
	"regexp"
	"strconv"
	"time"
)

// CommitRef names a commit of a repository.
type CommitRef struct {
	RepoID string
	Hash   string
}

// PullRequestLink is how a commit belongs to a pull request.
type PullRequestLink string

// The links. A commit has one link with a pull request: Merged replaces the others, Named
// replaces Head.
const (
	LinkHead   PullRequestLink = "HEAD"   // it was the head of the pull request's branch
	LinkMerged PullRequestLink = "MERGED" // the Git host reported that the merge brought it into the branch
	LinkNamed  PullRequestLink = "NAMED"  // the first line of its message names the pull request
)

// PullRequestCommit records that a commit belongs to a pull request.
type PullRequestCommit struct {
	CommitRef
	Number int
	Link   PullRequestLink
	At     time.Time // when the store recorded it
}

// namedPullRequest matches the subjects that GitHub and Gitea write: of a merge commit
// "Merge pull request #12 from …" and "Merge pull request 'title' (#12) from …", of a squash
// "title (#12)".
var namedPullRequest = regexp.MustCompile(`^Merge pull request (?:#([0-9]+) from |'.*' \(#([0-9]+)\) from )|\(#([0-9]+)\)$`)

// NamedPullRequest returns the number of the pull request that the first line of a commit's
// message names, 0 if it names none.
func NamedPullRequest(subject string) int {
	for _, digits := range append(namedPullRequest.FindStringSubmatch(subject), "")[1:] {
		if n := pullRequestNumber(digits); n > 0 {
			return n
		}
	}
	return 0
}

// PullRequestOfPage returns the number of a pull request from the URL of its page, whose path
// ends in it on GitHub, GitLab and Gitea; 0 if it does not.
func PullRequestOfPage(page string) int {
	u, err := url.Parse(page)
	if err != nil {
		return 0
	}
	return pullRequestNumber(path.Base(u.Path))
}

// pullRequestNumber returns a number above 0, 0 for any other text.
func pullRequestNumber(digits string) int {
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int(n)
}
