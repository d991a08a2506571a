package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/c785c783/piped/examples/leftovers"
)

// endTimeout is how long processes get to end on their own after the last step.
const endTimeout = 15 * time.Second

// inMemory is a file system in memory, on Linux. The tests need less than 1 GiB in it.
const (
	inMemory       = "/dev/shm"
	wantedInMemory = 6 << 30
)

func freeBytes(dir string) (uint64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return fs.Bavail * uint64(fs.Bsize), nil
}

// scratch is the temporary directory of a run. The steps, and all that they start, have
// it as TMPDIR, or a home in it, which distinguishes their processes from all others.
type scratch struct{ dir string }

// newScratch makes the directory in memory where the machine has room for it there: what
// hundreds of databases write need not reach a disk.
func newScratch() (scratch, error) {
	parent := ""
	if free, err := freeBytes(inMemory); err == nil && free > wantedInMemory {
		parent = inMemory
	}
	dir, err := os.MkdirTemp(parent, "piped-checks-")
	if err != nil {
		return scratch{}, err
	}
	return scratch{dir}, os.Chmod(dir, 0o755) // PostgreSQL runs as another user
}

func (s scratch) remove() error { return os.RemoveAll(s.dir) }

// end ends what the steps have left, and returns it: processes that still run and files
// that still exist. After an interrupt that is no defect, and nothing is returned.
func (s scratch) end(ctx context.Context) (left []string) { return s.endAfter(ctx, endTimeout) }

// endAfter is end for processes that get so long to end on their own.
func (s scratch) endAfter(ctx context.Context, wait time.Duration) (left []string) {
	for _, p := range leftovers.EndThose(s.owns, wait) {
		left = append(left, p.String())
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		left = append(left, err.Error())
	}
	for _, e := range entries {
		left = append(left, "file "+filepath.Join(s.dir, e.Name()))
	}
	if err := s.remove(); err != nil {
		left = append(left, err.Error())
	}
	if ctx.Err() != nil {
		return nil
	}
	return left
}

// owns reports whether the environment or the command line of a process names the
// directory.
func (s scratch) owns(environ, command []byte) bool {
	return bytes.Contains(environ, []byte(s.dir)) || bytes.Contains(command, []byte(s.dir))
}
