package git

import (
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/deploy"
)

// bounds limit what a repository can make this process store and compute. They apply to every
// repository, because the operator of the agent does not control the pushed content.
type bounds struct {
	pack    int64 // bytes of a received pack
	objects int   // objects of a pack
	blob    int64 // bytes of a file
	meta    int64 // bytes of a directory, a commit or a tag
	delta   int64 // bytes of the instructions of a delta
	base    int64 // bytes of each object that is a direct or indirect base of a file's delta
	// inflated and ratio limit the inflated size of all objects of a pack: in bytes,
	// and in multiples of the pack's size.
	inflated, ratio int64

	paths     int   // files and directories of a commit
	pathBytes int64 // of their paths, together
	depth     int   // of nested directories
}

func defaultBounds() bounds {
	return bounds{
		pack: 4 << 30, objects: 3_000_000, blob: 1 << 30, meta: 8 << 20, delta: 64 << 20, base: 128 << 20,
		inflated: 4 << 30, ratio: 256,
		paths: 500_000, pathBytes: 48 << 20, depth: 256,
	}
}

// ErrRefused is the cause of Sync's error for a head that exceeds the bounds. The last valid
// head stays Head until the branch moves.
var ErrRefused = errors.New("refused")

// refuseHead returns the error, of kind Invalid, for a head that exceeds the bounds. why
// contains the path, if there is one.
func (r *Repo) refuseHead(h plumbing.Hash, why error) error {
	return deploy.Errorf(deploy.Invalid, "commit %s of branch %s of %s is %w, and the last good commit stays in effect: %w; correct that in a new commit",
		deploy.ShortHash(h.String()), r.follows().branch, r.Remote(), ErrRefused, why)
}

// ErrBeyond is the cause of every error about a commit or a response of a remote that exceeds
// the bounds.
var ErrBeyond = errors.New("more than the agent reads")

// beyond returns an error with the cause ErrBeyond.
func beyond(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrBeyond)...)
}
