package git

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// Since returns the commits from head back to base along first parents: head, its first
// parent, and so on, up to the history of base. The newest comes first. Each has its first
// parent, with which to compare it. ok is false, without commits, if base is not in head's
// history, as after a force-push. The error is of kind NotFound if the mirror lacks one of the
// two.
func (r *Repo) Since(ctx context.Context, base, head string) (steps []Step, ok bool, err error) {
	from, err := r.commit(base)
	if err != nil {
		return nil, false, err
	}
	to, err := r.commit(head)
	if err != nil {
		return nil, false, err
	}
	if from.Hash == to.Hash {
		return nil, true, nil
	}
	marks, _, err := r.objects.commonAncestors(ctx, to, from)
	if err != nil {
		return nil, false, deploy.Errorf(deploy.Internal, "read the history between commits %s and %s of %s: %w", base, head, r.Remote(), err)
	}
	if marks[from.Hash]&ofOurs == 0 {
		return nil, false, nil
	}
	for c := to; marks[c.Hash] == ofOurs && len(c.ParentHashes) > 0; {
		parent, err := r.commit(c.ParentHashes[0].String())
		if err != nil {
			return nil, false, err
		}
		steps = append(steps, Step{Commit: c.Hash.String(), Parent: parent.Hash.String()})
		c = parent
	}
	return steps, true, nil
}

// Step is a commit of a branch and the previous head of the branch.
type Step struct{ Commit, Parent string }
