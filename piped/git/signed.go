package git

import (
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// maxCommitSize bounds the commit objects whose bytes are read.
const maxCommitSize = 4 << 20

// CommitObject returns the bytes of a commit object as they are hashed and
// signed, without git's header. The kind is NotFound when the mirror has no such
// commit. The content is that of the hash: it is computed again.
func (r *Repo) CommitObject(hash string) ([]byte, error) {
	if _, err := r.commit(hash); err != nil {
		return nil, err
	}
	h := plumbing.NewHash(hash)
	raw, err := r.objects.content(plumbing.CommitObject, "it", h, maxCommitSize)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "read commit %s of %s: %w", hash, r.Remote(), err)
	}
	if got := plumbing.ComputeHash(plumbing.CommitObject, raw); got != h {
		return nil, deploy.Errorf(deploy.Invalid, "read commit %s of %s: its content is that of %s: the mirror is damaged", hash, r.Remote(), got)
	}
	return raw, nil
}
