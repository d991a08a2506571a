package git

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// References of the mirror. Those of the remote are not mirrored under their own names.
const (
	headRefs = "refs/piped/heads/"
	pinRefs  = "refs/piped/pins/"

	originName = "origin"
)

func headRef(branch string) plumbing.ReferenceName { return plumbing.ReferenceName(headRefs + branch) }

// mirrorDir returns the mirror's directory, which is unique for each ID.
func mirrorDir(dir, id string) string { return filepath.Join(dir, url.PathEscape(id)+".git") }

var errOtherRemote = errors.New("it mirrors another remote")

// openMirror opens the mirror at dir and checks its remote and that the head of branch can be
// read. The error is fs.ErrNotExist if there is no mirror.
func openMirror(dir, remote, branch string) (*objects, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	o := openObjects(dir)
	if err := checkMirror(o, remote, branch); err != nil {
		return nil, errors.Join(err, o.close())
	}
	o.removeLeftovers()
	return o, nil
}

// checkMirror returns an error unless o mirrors the remote and the head of branch can be read.
func checkMirror(o *objects, remote, branch string) error {
	if _, err := os.Stat(filepath.Join(o.dir, "HEAD")); err != nil {
		return errors.New("it is not a Git repository")
	}
	cfg, err := o.sto.Config()
	if err != nil {
		return fmt.Errorf("read its config: %w", err)
	}
	if origin := cfg.Remotes[originName]; origin == nil || len(origin.URLs) != 1 || origin.URLs[0] != remote {
		return errOtherRemote
	}
	// The search for an object that never exists reads the index of every pack.
	if err := o.sto.HasEncodedObject(plumbing.ZeroHash); err != plumbing.ErrObjectNotFound {
		return fmt.Errorf("read its object database: %w", err)
	}
	head, err := o.ref(headRef(branch))
	if err != nil {
		return nil // nothing fetched yet, or an incomplete reference: the next Sync writes it
	}
	return checkCommit(o, head)
}

// checkCommit reads a commit and its root directory.
func checkCommit(o *objects, h plumbing.Hash) error {
	c, err := o.commit(h)
	if err != nil {
		return fmt.Errorf("read commit %s: %w", h, err)
	}
	_, err = o.tree(c.TreeHash)
	return err
}

// createMirror creates an empty mirror of remote at dir. It is a valid Git repository, with an
// unborn HEAD.
func createMirror(dir, remote string) (*objects, error) {
	fresh := dir + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(fresh, 0o700); err != nil {
		return nil, err
	}
	sto := filesystem.NewStorage(osfs.New(fresh), cache.NewObjectLRU(0))
	if err := sto.Init(); err != nil {
		return nil, err
	}
	if err := sto.SetReference(plumbing.NewSymbolicReference(plumbing.HEAD, plumbing.Master)); err != nil {
		return nil, err
	}
	if err := writeOrigin(sto, remote); err != nil {
		return nil, err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return nil, err
	}
	return openObjects(dir), nil
}

// writeOrigin writes the mirror's config.
func writeOrigin(sto *filesystem.Storage, remote string) error {
	cfg := config.NewConfig()
	cfg.Core.IsBare = true
	cfg.Remotes[originName] = &config.RemoteConfig{Name: originName, URLs: []string{remote}}
	return sto.SetConfig(cfg)
}

// ensureMirror opens or creates the mirror. A mirror of another remote is redirected to this
// remote and keeps its objects. An unusable mirror is renamed to <dir>.corrupt, which replaces
// an older one.
func ensureMirror(c Config, remote string) (*objects, error) {
	// Create the directory first, so that a failure has the same cause on every attempt.
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	dir := mirrorDir(c.Dir, c.ID)
	o, err := openMirror(dir, remote, c.Branch)
	if errors.Is(err, errOtherRemote) {
		c.Logger.Info("git mirror follows another remote", "repo", c.ID, "dir", dir, "remote", remote)
		if err = redirectMirror(dir, remote); err == nil {
			o, err = openMirror(dir, remote, c.Branch)
		}
	}
	switch {
	case err == nil:
		return o, nil
	case errors.Is(err, fs.ErrNotExist) && !exists(dir):
	default:
		aside := dir + ".corrupt"
		c.Logger.Warn("git mirror cannot be used: moved aside and fetched again", "repo", c.ID, "dir", dir, "movedTo", aside, "error", err)
		if err := os.RemoveAll(aside); err != nil {
			return nil, err
		}
		if err := os.Rename(dir, aside); err != nil {
			return nil, err
		}
	}
	return createMirror(dir, remote)
}

// redirectMirror changes the remote of the mirror at dir.
func redirectMirror(dir, remote string) error {
	o := openObjects(dir)
	return errors.Join(o.setOrigin(remote), o.close())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
