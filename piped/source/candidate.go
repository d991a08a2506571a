package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Candidate is one application configuration found in a tree. Config is nil
// exactly when Err is not; errors.As tells a *config.UnsupportedKind.
type Candidate struct {
	Dir        string // slash-separated, from the root of the tree; "." is the root
	ConfigFile string // base name
	Config     *config.Application
	Err        error
}

// Path returns the configuration file's path from the root of the tree.
func (c Candidate) Path() string { return path.Join(c.Dir, c.ConfigFile) }

// Candidates returns every application configuration in the tree, ordered by
// path. A file that cannot be read or does not parse carries its own error and
// spoils no other; the error returned is for a tree that cannot be walked.
// Other files are not opened. A directory whose name is not UTF-8 is passed over
// with all that is in it: it has no path by which an application could be named.
func Candidates(fsys fs.FS) ([]Candidate, error) {
	var out []Candidate
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("list %s: %w", name, err)
		case entry.IsDir() && (entry.Name() == ".git" || !utf8.ValidString(entry.Name())):
			return fs.SkipDir
		case entry.IsDir() || !config.IsApplicationConfig(entry.Name()):
			return nil
		}
		out = append(out, CandidateAt(fsys, name))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for application configurations: %w", err)
	}
	return out, nil
}

// CandidateAt returns the application configuration at a path of the tree. Its
// error is of kind deploy.NotFound when there is no such file. A panic on what the
// file holds is the error of that file alone.
func CandidateAt(fsys fs.FS, name string) (c Candidate) {
	c = Candidate{Dir: path.Dir(name), ConfigFile: path.Base(name)}
	defer func() {
		if cause := recover(); cause != nil {
			c.Config, c.Err = nil, deploy.Errorf(deploy.Invalid, "%s: internal error while reading it: %v; please report it with the file", name, cause)
		}
	}()
	c.Config, c.Err = readConfig(fsys, name)
	return c
}

func readConfig(fsys fs.FS, name string) (*config.Application, error) {
	data, err := readFile(fsys, name, strict.MaxSize)
	if err != nil {
		return nil, err
	}
	return config.ParseApplication(name, data)
}

// readFile returns at most limit+1 bytes of a file, so that a parser with that
// limit can refuse it. The error for a file that is not there is of kind
// deploy.NotFound.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return nil, deploy.Errorf(deploy.NotFound, "%s: there is no such file in the commit", name)
	}
	if errors.Is(err, fs.ErrPermission) { // a symbolic link that points out of the repository
		return nil, deploy.Errorf(deploy.Invalid, "read the commit: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", name, err)
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
