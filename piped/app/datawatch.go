package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

const (
	// dataWatchEvery is the interval of checks of the data directory. A loss is detected
	// within a minute, also if a check fails for another reason.
	dataWatchEvery = 15 * time.Second
	// dataWatchFailures is how many consecutive checks may fail for another reason.
	dataWatchFailures = 3
)

// dataWatch stops the agent if its data directory, the lock in it or the file of its store is
// deleted or replaced: further writes would be lost, and another agent could start on the same
// path.
type dataWatch struct {
	dir      string
	every    time.Duration
	files    []watchedFile
	failures int // consecutive failed checks
}

// watchedFile is a path and its file at the start.
type watchedFile struct {
	what, path string
	info       os.FileInfo
}

// newDataWatch records the present files.
func newDataWatch(cfg *config.Piped, every time.Duration) (*dataWatch, error) {
	w := &dataWatch{dir: cfg.DataDir, every: every, files: []watchedFile{
		{what: "the data directory", path: cfg.DataDir}, {what: "the lock of the data directory", path: filepath.Join(cfg.DataDir, lockFile)},
	}}
	if file, ok := strings.CutPrefix(cfg.Store.DSN.Reveal(), "sqlite://"); ok {
		w.files = append(w.files, watchedFile{what: "the file of the store", path: file})
	}
	for i := range w.files {
		var err error
		if w.files[i].info, err = os.Stat(w.files[i].path); err != nil {
			return nil, deploy.Errorf(deploy.Internal, "watch %s: %w", w.files[i].what, err)
		}
	}
	return w, nil
}

// Run checks until ctx ends. It returns an error if a file is deleted or replaced.
func (w *dataWatch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := w.check(); err != nil {
			return err
		}
	}
}

func (w *dataWatch) check() error {
	for _, f := range w.files {
		now, err := os.Stat(f.path)
		if how := f.loss(now, err); how != "" {
			dir := w.files[0] // it may have been replaced since it was checked, with what it contains
			if replaced := dir.loss(os.Stat(dir.path)); replaced != "" {
				f, how = dir, replaced
			}
			return w.gone(f, how)
		}
		if err != nil {
			if w.failures++; w.failures >= dataWatchFailures {
				return w.gone(f, fmt.Sprintf("cannot be read (%v)", err))
			}
			return nil
		}
	}
	w.failures = 0
	return nil
}

// loss says how the file was lost, given what is at its path now; "" if it was not, or if that
// is unknown.
func (f watchedFile) loss(now os.FileInfo, err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return "is gone"
	case err == nil && !os.SameFile(f.info, now):
		return "is another one than at the start"
	}
	return ""
}

func (w *dataWatch) gone(f watchedFile, how string) error {
	return deploy.Errorf(deploy.Internal, "%s, %s, %s: the agent stops, because what it writes would be lost. "+
		"Bring %s back (mount the volume, or restore a backup with `piped restore`) and start the agent; an empty directory begins without history and keys, and takes over what runs",
		f.what, f.path, how, w.dir)
}
