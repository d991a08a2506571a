package git

import (
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// maxCommitSize bounds the size of commit objects.
const maxCommitSize = 4 << 20

// CommitObject returns the content of a commit object, the bytes that are hashed and signed,
// without Git's object header. The hash is verified. The error is of kind NotFound if the
// mirror has no such commit.
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
