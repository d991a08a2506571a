package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/c785c783/piped/piped/marked"
)

// workspace is the directory of one run. Only the agent's user and the script's user
// can enter it.
type workspace struct {
	dir  string // parent of the others
	tree string // the commit's files
	home string // HOME
	tmp  string // TMPDIR
	root string // empty: mount point of an isolated script's root directory

	// lock is locked while any process of the run may exist, even after its agent was
	// killed.
	lock *os.File
}

// newWorkspace creates a workspace below dir, without the tree.
func newWorkspace(dir string) (workspace, error) {
	own, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return workspace{}, fmt.Errorf("make a directory for the script: %w", err)
	}
	w := workspace{
		dir: own, tree: filepath.Join(own, "tree"), home: filepath.Join(own, "home"), tmp: filepath.Join(own, "tmp"), root: filepath.Join(own, "root"),
	}
	w.lock, err = lockFile(own+lockSuffix, 0)
	if err := errors.Join(err, os.Mkdir(w.home, 0o700), os.Mkdir(w.tmp, 0o700), os.Mkdir(w.root, 0o700)); err != nil {
		return w, errors.Join(fmt.Errorf("make a directory for the script: %w", err), w.remove())
	}
	return w, nil
}

// remove removes the workspace, whose processes have ended.
func (w workspace) remove() error {
	err := removeAll(w.dir)
	if w.lock == nil {
		return err
	}
	return errors.Join(err, os.Remove(w.lock.Name()), w.lock.Close())
}

const (
	lockSuffix = ".lock"
	lockPoll   = 20 * time.Millisecond
)

// lockFile opens a file and locks it. It waits up to patience while another process holds
// the lock.
func lockFile(name string, patience time.Duration) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(lockPoll) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), file.Close())
		}
	}
}

// removeAll removes dir, including directories that a script made read-only, such as
// caches in HOME.
func removeAll(dir string) error {
	if os.RemoveAll(dir) == nil {
		return nil
	}
	if err := unlock(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// unlock makes every directory below dir writable.
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

// leftoverTime bounds the wait for the scripts of a killed agent. Their launchers kill them.
const leftoverTime = 20 * time.Second

// Clean removes what a killed agent left in the directory of script stages, processes first. New
// does so, too.
func Clean(dir string) error { return openDir(dir) }

// openDir creates dir, or removes what a killed agent left in it, processes first.
func openDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of script stages: %w", err)
	}
	marked.Kill(markVariable, dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("find leftovers of script stages: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), lockSuffix) {
			if err := awaitEnd(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for _, e := range entries {
		if err := removeAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("remove leftovers of a script stage: %w", err)
		}
	}
	return nil
}

// awaitEnd waits until the lock of a run is free.
func awaitEnd(lock string) error {
	file, err := lockFile(lock, leftoverTime)
	if err != nil {
		return fmt.Errorf("wait for the end of a script of an earlier agent process (look for processes named piped-script): %w", err)
	}
	return file.Close()
}
