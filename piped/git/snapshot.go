package git

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/c785c783/piped/piped/deploy"
)

// Snapshot is a commit of a local repository, read in place. It is for command-line tools; the
// agent reads from mirrors.
type Snapshot struct {
	// FS contains the files of the commit as Repo.At returns them.
	fs.FS
	Commit string

	objects *objects
}

// OpenHead opens the commit of HEAD in a repository. dir is a bare repository or the .git
// directory of a worktree. It writes nothing. The error is of kind NotFound if dir is not a
// repository and Invalid if HEAD is not a commit.
func OpenHead(dir string) (*Snapshot, error) {
	if !isRepository(dir) {
		return nil, deploy.Errorf(deploy.NotFound, "%s is no Git repository", dir)
	}
	sto := filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(objectCacheSize), filesystem.Options{
		MaxOpenDescriptors: openPacks, LargeObjectThreshold: largeObjectToDisk, AlternatesFS: osfs.New(string(filepath.Separator)),
	})
	o := &objects{dir: dir, limits: defaultBounds(), sto: sto, trees: map[plumbing.Hash][]object.TreeEntry{}}
	s, err := o.head()
	if err != nil {
		return nil, errors.Join(deploy.Errorf(deploy.Invalid, "read HEAD of the Git repository %s: %w", dir, err), o.close())
	}
	return s, nil
}

// head returns the snapshot of HEAD.
func (o *objects) head() (*Snapshot, error) {
	ref, err := storer.ResolveReference(o.sto, plumbing.HEAD)
	if errors.Is(err, plumbing.ErrReferenceNotFound) || errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("it names no commit; commit something first")
	}
	if err != nil {
		return nil, err
	}
	c, err := o.commit(ref.Hash())
	if err != nil {
		return nil, err
	}
	tree := &treeFS{objects: o, root: c.TreeHash, maxSize: defaultMaxFileSize, at: c.Committer.When.UTC()}
	return &Snapshot{FS: tree, Commit: c.Hash.String(), objects: o}, nil
}

// Close releases the repository. The files must not be read after it.
func (s *Snapshot) Close() error { return s.objects.close() }
