package git

import (
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
)

// ChangedBy returns the commits in the history of head, and not in that of base, that changed
// one of the directories, the newest first. A merge counts only if a directory differs from
// that of every parent: otherwise the merged commits made the change. The error is of kind
// NotFound if the mirror lacks base or head.
func (r *Repo) ChangedBy(ctx context.Context, base, head string, dirs ...string) ([]deploy.Commit, error) {
	from, err := r.commit(base)
	if err != nil {
		return nil, err
	}
	to, err := r.commit(head)
	if err != nil {
		return nil, err
	}
	marks, _, err := r.objects.commonAncestors(ctx, to, from)
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "read the history between commits %s and %s of %s: %w", base, head, r.Remote(), err)
	}
	var out []deploy.Commit
	for hash, mark := range marks {
		if mark != ofOurs {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c, err := r.commit(hash.String())
		if err != nil {
			return nil, err
		}
		changed, err := r.changesOne(c, dirs)
		if err != nil {
			return nil, err
		}
		if changed {
			out = append(out, r.describe(c))
		}
	}
	slices.SortFunc(out, func(a, b deploy.Commit) int { return b.At.Compare(a.At) })
	return out, nil
}

// changesOne reports whether one of the directories differs between c and each of its parents.
func (r *Repo) changesOne(c *object.Commit, dirs []string) (bool, error) {
	for _, dir := range dirs {
		has, err := r.TreeHash(c.Hash.String(), dir)
		if err != nil {
			return false, err
		}
		changed := len(c.ParentHashes) > 0 || has != ""
		for _, parent := range c.ParentHashes {
			had, err := r.TreeHash(parent.String(), dir)
			if err != nil {
				return false, err
			}
			changed = changed && had != has
		}
		if changed {
			return true, nil
		}
	}
	return false, nil
}
