package git

import (
	"container/heap"
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Marks of a commit during the search for common ancestors.
const (
	ofOurs = 1 << iota
	ofTheirs
	common // its ancestors are no best common ancestor
)

// mergeBases returns the best common ancestors of two commits, the oldest first: those that
// are not ancestors of another common ancestor.
func (o *objects) mergeBases(ctx context.Context, ours, theirs *object.Commit) ([]*object.Commit, error) {
	if ours.Hash == theirs.Hash {
		return []*object.Commit{ours}, nil
	}
	_, found, err := o.commonAncestors(ctx, ours, theirs)
	if err != nil {
		return nil, err
	}
	best, err := o.independent(ctx, found)
	slices.SortStableFunc(best, func(a, b *object.Commit) int { return a.Committer.When.Compare(b.Committer.When) })
	return best, err
}

// commonAncestors walks both histories from the newest commit on, until only ancestors of
// common ancestors are left. It returns the marks of the visited commits and the common
// ancestors found. With wrong committer clocks one of them may be an ancestor of another.
func (o *objects) commonAncestors(ctx context.Context, ours, theirs *object.Commit) (marks map[plumbing.Hash]int, found []*object.Commit, err error) {
	marks = map[plumbing.Hash]int{ours.Hash: ofOurs, theirs.Hash: ofTheirs}
	next := &history{}
	heap.Push(next, ours)
	heap.Push(next, theirs)
	isOpen := func(c *object.Commit) bool { return marks[c.Hash]&common == 0 }
	for slices.ContainsFunc(*next, isOpen) {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		c := heap.Pop(next).(*object.Commit)
		mark := marks[c.Hash]
		if mark == ofOurs|ofTheirs {
			if !slices.ContainsFunc(found, func(f *object.Commit) bool { return f.Hash == c.Hash }) {
				found = append(found, c)
			}
			mark |= common
		}
		for _, parent := range c.ParentHashes {
			if marks[parent]|mark == marks[parent] {
				continue
			}
			p, err := o.commit(parent)
			if err != nil {
				return nil, nil, err
			}
			marks[parent] |= mark
			heap.Push(next, p)
		}
	}
	return marks, slices.DeleteFunc(found, func(c *object.Commit) bool { return !isOpen(c) }), nil
}

// independent returns the commits that are not ancestors of another one in the list.
func (o *objects) independent(ctx context.Context, commits []*object.Commit) ([]*object.Commit, error) {
	if len(commits) < 2 {
		return commits, nil
	}
	reached := map[plumbing.Hash]bool{}
	for _, c := range commits {
		for _, parent := range c.ParentHashes {
			if err := o.reach(ctx, parent, reached); err != nil {
				return nil, err
			}
		}
	}
	return slices.DeleteFunc(commits, func(c *object.Commit) bool { return reached[c.Hash] }), nil
}

// reach adds a commit and its ancestors to reached. The ancestors of each commit in reached
// are also in it.
func (o *objects) reach(ctx context.Context, from plumbing.Hash, reached map[plumbing.Hash]bool) error {
	for todo := []plumbing.Hash{from}; len(todo) > 0; {
		h := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if reached[h] {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		reached[h] = true
		c, err := o.commit(h)
		if err != nil {
			return err
		}
		todo = append(todo, c.ParentHashes...)
	}
	return nil
}
