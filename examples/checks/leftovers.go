package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Processes get endTimeout to end on their own after the last step, and removeTimeout
// after they were asked to.
const (
	endTimeout    = 15 * time.Second
	removeTimeout = 20 * time.Second
)

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
// it as TMPDIR, or a home in it, which tells their processes from all others.
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
	for _, p := range s.await(wait) {
		left = append(left, fmt.Sprintf("process %d: %s", p.pid, p.command))
		_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may have ended meanwhile
	}
	for _, p := range s.await(removeTimeout) {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
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

// process is a running process of this run.
type process struct {
	pid     int
	command string
}

// await returns the processes that still run when the time is over, at once when there
// are none.
func (s scratch) await(timeout time.Duration) []process {
	for deadline := time.Now().Add(timeout); ; time.Sleep(100 * time.Millisecond) {
		running := s.processes()
		if len(running) == 0 || time.Now().After(deadline) {
			return running
		}
	}
}

// processes returns the running processes whose environment or command line names the
// directory. It reads /proc; a process that ends meanwhile is none.
func (s scratch) processes() (running []process) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range entries {
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err != nil || pid == os.Getpid() {
			continue
		}
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		command, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if len(command) == 0 || !bytes.Contains(environ, []byte(s.dir)) && !bytes.Contains(command, []byte(s.dir)) {
			continue // a zombie has no command line
		}
		running = append(running, process{pid, string(bytes.ReplaceAll(bytes.TrimRight(command, "\x00"), []byte{0}, []byte{' '}))})
	}
	return running
}
