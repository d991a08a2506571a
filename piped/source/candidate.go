package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source/render"
)

// Candidate is one application configuration found in a tree. Exactly one of Config and Err
// is set. For a kind that the agent does not support, Err wraps a *config.UnsupportedKind.
type Candidate struct {
	Dir        string // slash-separated, from the root of the tree; "." is the root
	ConfigFile string // base name
	// Kind is the kind of the file, such as KubernetesApp, also if the file has kind
	// Application or is invalid; "" if it cannot be determined.
	Kind   string
	Config *config.Application
	Err    error
}

// Path returns the configuration file's path from the root of the tree.
func (c Candidate) Path() string { return path.Join(c.Dir, c.ConfigFile) }

// Bounds of the application configurations of one tree. They bound the time, too: no duration
// does, because a head that takes longer than it on a busy machine would be refused for good.
const (
	maxCandidates     = 10_000
	maxCandidateBytes = 32 << 20 // of all of them
)

// finder is a tree that finds files in bounded time and memory, even if it contains the same
// directory many times. The trees of package git implement it.
type finder interface {
	Find(ctx context.Context, dir string, enter, wanted func(name string) bool, most int) ([]string, error)
}

// Candidates returns every application configuration in the tree, ordered by path. If a file
// cannot be read or parsed, its Candidate has an error. Candidates itself returns an error if
// the tree cannot be read, and one of kind deploy.Invalid if it has too many configurations.
// It opens no other files. It skips directories whose name is not UTF-8, because no
// application path can refer to them.
func Candidates(ctx context.Context, fsys fs.FS, kinds config.Kinds) ([]Candidate, error) {
	names, err := FindFiles(ctx, fsys, ".", func(dir string) bool { return dir != ".git" && utf8.ValidString(dir) }, config.IsApplicationConfig, maxCandidates)
	if err != nil {
		return nil, fmt.Errorf("find application configurations: %w", err)
	}
	out := make([]Candidate, 0, len(names))
	left := int64(maxCandidateBytes)
	for _, name := range names {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("read application configurations: %w", context.Cause(ctx))
		}
		c, size := candidateAt(fsys, name, kinds)
		if left -= size; left < 0 {
			return nil, deploy.Errorf(deploy.Invalid, "%s: the application configurations of the commit have more than %d bytes; remove some, or split the repository", name, maxCandidateBytes)
		}
		out = append(out, c)
	}
	return out, nil
}

// FindFiles returns the paths of all files below dir for whose base name wanted returns true,
// in the order of fs.WalkDir. It skips directories for whose base name enter returns false.
// More than most files are an error of kind deploy.Invalid.
func FindFiles(ctx context.Context, fsys fs.FS, dir string, enter, wanted func(name string) bool, most int) ([]string, error) {
	if f, ok := fsys.(finder); ok {
		names, err := f.Find(ctx, dir, enter, wanted, most)
		if errors.Is(err, git.ErrBeyond) {
			return nil, deploy.Errorf(deploy.Invalid, "%w; remove files, or split the repository", err)
		}
		return names, err
	}
	var out []string
	err := fs.WalkDir(fsys, dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("list %s: %w", name, err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case entry.IsDir() && name != dir && !enter(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !wanted(entry.Name()):
			return nil
		case len(out) == most:
			return deploy.Errorf(deploy.Invalid, "%s: one of more than %d such files; remove files, or split the repository", name, most)
		}
		out = append(out, name)
		return nil
	})
	return out, err
}

// CandidateAt returns the application configuration at a path of the tree. Its Err is of kind
// deploy.NotFound if there is no such file. A panic while parsing the file is returned as Err.
func CandidateAt(fsys fs.FS, name string, kinds config.Kinds) Candidate {
	c, _ := candidateAt(fsys, name, kinds)
	return c
}

// candidateAt is CandidateAt, and also returns the number of bytes that were read.
func candidateAt(fsys fs.FS, name string, kinds config.Kinds) (c Candidate, size int64) {
	c = Candidate{Dir: path.Dir(name), ConfigFile: path.Base(name)}
	defer func() {
		if cause := recover(); cause != nil {
			c.Config, c.Err = nil, deploy.Errorf(deploy.Invalid, "%s: internal error while reading it: %v; please report it with the file", name, cause)
		}
	}()
	data, err := render.ReadFile(fsys, name, strict.MaxSize)
	if err != nil {
		c.Err = err
		return c, 0
	}
	size = int64(len(data))
	c.Config, c.Err = kinds.ParseApplication(name, data)
	if c.Err != nil {
		c.Kind = kinds.FileKind(data)
	} else if kind, ok := kinds.Find(c.Config.Kind); ok {
		c.Kind = kind.File
	}
	return c, size
}

func readConfig(fsys fs.FS, name string, kinds config.Kinds) (*config.Application, error) {
	data, err := render.ReadFile(fsys, name, strict.MaxSize)
	if err != nil {
		return nil, err
	}
	return kinds.ParseApplication(name, data)
}
