package render

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/c785c783/piped/piped/deploy"
)

// ReadFile returns at most limit+1 bytes of a file, so that a parser with that limit can detect
// a file that is too large. If the file does not exist, the error is of kind deploy.NotFound.
func ReadFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, deploy.Errorf(deploy.NotFound, "%s: there is no such file in the commit", name)
	}
	if errors.Is(err, fs.ErrPermission) { // a symbolic link that points out of the repository
		return nil, deploy.Errorf(deploy.Invalid, "read the commit: %w", err)
	}
	if deploy.IsKind(err, deploy.Invalid) { // the error already names the file
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, deploy.Errorf(deploy.Invalid, "%s: expected a regular file, found %s", name, fileKind(info.Mode()))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data, nil
}

func fileKind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	}
	return "a special file"
}
