package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// treeLimits bound the output of Materialise, so that no commit fills the disk.
type treeLimits struct {
	files int   // files, directories and links
	bytes int64 // of all files together
}

// Materialise writes a commit's tree below dir, for programs that need a real directory. It
// creates dir with mode 0700 if it does not exist.
//
// Files keep their executable bit. Symbolic links are written if their target is inside the
// tree, even if it does not exist, and skipped otherwise. Nothing is written outside of dir. A
// tree with more than 200,000 entries or 2 GiB is an error of kind Invalid. A file that is too
// large for fsys to open is also an error. After an error the caller must remove dir.
func Materialise(ctx context.Context, fsys fs.FS, dir string) error {
	return materialise(ctx, fsys, dir, treeLimits{files: 200_000, bytes: 2 << 30})
}

func materialise(ctx context.Context, fsys fs.FS, dir string, left treeLimits) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write the commit's files: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("write the commit's files: %w", err)
	}
	defer root.Close()
	w := &treeWriter{fsys: fsys, root: root, limits: left, left: left}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == ".":
			return nil
		}
		return w.write(name, entry)
	})
	if err != nil {
		return fmt.Errorf("write the commit's files: %w", err)
	}
	return nil
}

// treeWriter copies a tree entry by entry.
type treeWriter struct {
	fsys         fs.FS
	root         *os.Root
	limits, left treeLimits
}

func (w *treeWriter) write(name string, entry fs.DirEntry) error {
	if w.left.files--; w.left.files < 0 {
		return deploy.Errorf(deploy.Invalid, "%s: the commit holds more than %d files and directories", name, w.limits.files)
	}
	local := filepath.FromSlash(name)
	switch {
	case entry.IsDir():
		return w.root.Mkdir(local, 0o755)
	case entry.Type()&fs.ModeSymlink != 0:
		return w.link(name, local)
	case entry.Type().IsRegular():
		return w.file(name, local)
	}
	return nil // a device or similar, which does not occur in Git
}

// link writes a symbolic link if its target is inside the tree. fsys resolves the link, because
// its path may contain other links.
func (w *treeWriter) link(name, local string) error {
	target, err := fs.ReadLink(w.fsys, name)
	if err != nil {
		return err
	}
	joined := path.Join(path.Dir(name), target)
	if path.IsAbs(target) || joined == ".." || strings.HasPrefix(joined, "../") {
		return nil
	}
	if _, err := fs.Stat(w.fsys, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return w.root.Symlink(filepath.FromSlash(target), local)
}

func (w *treeWriter) file(name, local string) (err error) {
	in, err := w.fsys.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	out, err := w.root.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	n, err := io.Copy(out, io.LimitReader(in, w.left.bytes+1))
	if err != nil {
		return err
	}
	if w.left.bytes -= n; w.left.bytes < 0 {
		return deploy.Errorf(deploy.Invalid, "%s: the commit holds more than %d bytes", name, w.limits.bytes)
	}
	return nil
}
