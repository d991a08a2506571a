package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// workspace is the directory of one run. Nobody but the agent's user can enter it.
type workspace struct {
	dir  string // holds the others
	tree string // the commit's files
	home string // HOME
	tmp  string // TMPDIR
}

// newWorkspace makes a workspace below dir; the tree is still missing.
func newWorkspace(dir string) (workspace, error) {
	own, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return workspace{}, fmt.Errorf("make a directory for the script: %w", err)
	}
	w := workspace{dir: own, tree: filepath.Join(own, "tree"), home: filepath.Join(own, "home"), tmp: filepath.Join(own, "tmp")}
	if err := errors.Join(os.Mkdir(w.home, 0o700), os.Mkdir(w.tmp, 0o700)); err != nil {
		return w, errors.Join(fmt.Errorf("make a directory for the script: %w", err), removeAll(own))
	}
	return w, nil
}

// removeAll removes dir, also where a script took away its own right to do so,
// as programs do that keep a read-only cache in HOME.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	if err := unlock(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// unlock makes every directory of dir one that can be emptied.
func unlock(dir string) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if entry == nil || !entry.IsDir() {
			return err
		}
		if err := os.Chmod(name, 0o700); err != nil {
			return err
		}
		return nil
	})
}

// openDir makes dir and removes what a killed agent left in it, processes first.
func openDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of script stages: %w", err)
	}
	killMarked(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for what script stages left behind: %w", err)
	}
	for _, e := range entries {
		if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove what a script stage left behind: %w", err)
		}
	}
	return nil
}
