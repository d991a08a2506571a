package git

import (
	"container/heap"
	"context"
	"math"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
)

// Newest returns the newest of the commits that are in the history of head, head
// included; ok is false if none is. Invalid hashes and commits that the mirror lacks are
// ignored.
func (r *Repo) Newest(ctx context.Context, head string, of []string) (c deploy.Commit, ok bool, err error) {
	of = slices.DeleteFunc(slices.Clone(of), func(hash string) bool {
		return !plumbing.IsHash(hash) || !r.objects.has(plumbing.NewHash(hash))
	})
	if len(of) == 0 {
		return deploy.Commit{}, false, nil
	}
	return r.find(ctx, head, math.MaxInt, func(c *object.Commit) bool { return slices.Contains(of, c.Hash.String()) })
}

// find returns the newest wanted commit among the newest most commits of head's history, head
// included; ok is false if there is none.
func (r *Repo) find(ctx context.Context, head string, most int, wanted func(*object.Commit) bool) (c deploy.Commit, ok bool, err error) {
	start, err := r.commit(head)
	if err != nil {
		return deploy.Commit{}, false, err
	}
	next, seen := history{start}, map[plumbing.Hash]bool{start.Hash: true}
	for n := 0; len(next) > 0 && n < most && ctx.Err() == nil; n++ {
		commit := heap.Pop(&next).(*object.Commit)
		if wanted(commit) {
			return r.describe(commit), true, nil
		}
		for _, parent := range commit.ParentHashes {
			if seen[parent] {
				continue
			}
			seen[parent] = true
			c, err := r.commit(parent.String())
			if err != nil {
				return deploy.Commit{}, false, err
			}
			heap.Push(&next, c)
		}
	}
	return deploy.Commit{}, false, context.Cause(ctx)
}

// history is a heap of commits, the newest on top.
type history []*object.Commit

func (h history) Len() int           { return len(h) }
func (h history) Less(i, j int) bool { return h[i].Committer.When.After(h[j].Committer.When) }
func (h history) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *history) Push(c any)        { *h = append(*h, c.(*object.Commit)) }
func (h *history) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
