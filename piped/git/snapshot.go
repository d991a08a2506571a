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

// Snapshot is one commit of a repository on this machine, read where it lies. It
// is for looking at somebody's repository once; the agent works from mirrors.
type Snapshot struct {
	// FS are the commit's files, as Repo.At gives them.
	fs.FS
	Commit string

	objects *objects
}

// OpenHead opens the commit that HEAD names in a repository: dir is a bare one,
// or the .git directory of another. Nothing is written. The kind is NotFound
// when dir is no repository and Invalid when HEAD names no commit.
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

// Close releases the repository. The files must not be read any more.
func (s *Snapshot) Close() error { return s.objects.close() }
