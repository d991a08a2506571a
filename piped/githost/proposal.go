package githost

import (
	"encoding/hex"
	"slices"
)

// Proposal is a pull request that was opened, reopened or pushed to, from a branch of the
// same repository. Pull requests from forks are excluded: their commits are not in the
// repository.
type Proposal struct {
	Number int    // within the repository
	Head   string // branch to merge
	Commit string // full hash of the head commit
	Base   string // branch to merge into
}

// proposal returns p, or nil if the payload it comes from is incomplete: a field is empty, or
// the commit is no full hash.
func proposal(p Proposal) *Proposal {
	if hash, err := hex.DecodeString(p.Commit); err != nil || len(hash) < 20 || p.Number <= 0 || p.Head == "" || p.Base == "" {
		return nil
	}
	return &p
}

// pullRequestEvent is a change of a pull request in the format of GitHub, Gitea and
// Forgejo.
type pullRequestEvent struct {
	Action      string
	Number      int
	PullRequest struct {
		Head struct {
			Ref, SHA string
			Repo     struct {
				FullName string `json:"full_name"`
			}
		}
		Base struct{ Ref string }
	} `json:"pull_request"`
	Repository struct {
		eventRepository
		FullName string `json:"full_name"`
	}
}

// readPullRequest parses a change of a pull request; actions are those that set a new head.
func readPullRequest(payload []byte, actions ...string) (Push, error) {
	e, err := decode[pullRequestEvent](payload)
	head := e.PullRequest.Head
	if err != nil || !slices.Contains(actions, e.Action) || head.Repo.FullName != e.Repository.FullName {
		return Push{}, err
	}
	return Push{
		Remotes:  e.Repository.remotes(),
		Proposal: proposal(Proposal{Number: e.Number, Head: head.Ref, Commit: head.SHA, Base: e.PullRequest.Base.Ref}),
	}, nil
}
