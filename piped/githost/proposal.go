package githost

import (
	"encoding/hex"
	"slices"
)

// Proposal is a pull request that was opened, opened again or pushed to. Those from
// another repository, such as a fork, are none: their commits are not in this one.
type Proposal struct {
	Number int    // by which people name it in its repository
	Head   string // the branch to merge
	Commit string // the full hash of its newest commit
	Base   string // the branch to merge it into
}

// proposal returns what was read, nil when it is not all there.
func proposal(p Proposal) *Proposal {
	if hash, err := hex.DecodeString(p.Commit); err != nil || len(hash) < 20 || p.Number <= 0 || p.Head == "" || p.Base == "" {
		return nil
	}
	return &p
}

// pullRequestEvent is a change of a pull request as GitHub, Gitea and Forgejo write
// it.
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

// readPullRequest reads a change of a pull request; actions are those after which
// its head is new.
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
