package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/ignore"

	"github.com/c785c783/piped/piped/deploy"
)

// file is one file of a chart. Its name is relative to the chart's directory.
type file = archive.BufferedFile

// budget is the remaining limit for the files of a chart and its dependencies.
type budget struct {
	files int
	bytes int64
}

// take reads a file from in, without a byte order mark, and subtracts it from the budget.
func (b *budget) take(name string, in io.Reader) (*file, error) {
	if b.files--; b.files < 0 {
		return nil, deploy.Errorf(deploy.Invalid, "%s: the chart with its dependencies has too many files", name)
	}
	data, err := io.ReadAll(io.LimitReader(in, b.bytes+1))
	if err != nil {
		return nil, err
	}
	if b.bytes -= int64(len(data)); b.bytes < 0 {
		return nil, deploy.Errorf(deploy.Invalid, "%s: the chart with its dependencies has too many bytes", name)
	}
	return &file{Name: name, Data: bytes.TrimPrefix(data, []byte("\ufeff"))}, nil
}

// maxDirectories is the maximum nesting of a chart's directories. Symbolic links can make it
// infinite.
const maxDirectories = 32

// readTree returns the sorted files of a chart's directory, except those that its .helmignore
// excludes.
func readTree(ctx context.Context, fsys fs.FS, dir string, left *budget) ([]*file, error) {
	rules, err := ignored(fsys, dir)
	if err != nil {
		return nil, err
	}
	t := treeReader{ctx: ctx, fsys: fsys, root: dir, rules: rules, left: left}
	if err := t.dir("", maxDirectories); err != nil {
		return nil, err
	}
	return t.files, nil
}

// ignored returns the rules of a chart's .helmignore, if there is one, and Helm's default rules.
func ignored(fsys fs.FS, dir string) (*ignore.Rules, error) {
	rules := ignore.Empty()
	name := path.Join(dir, ignore.HelmIgnore)
	data, err := fs.ReadFile(fsys, name)
	if err == nil {
		if rules, err = ignore.Parse(bytes.NewReader(data)); err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "%s: %w", name, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	rules.AddDefaults()
	return rules, nil
}

type treeReader struct {
	ctx   context.Context
	fsys  fs.FS
	root  string
	rules *ignore.Rules
	left  *budget
	files []*file
}

// dir reads a directory recursively. Its name is relative to the root.
func (t *treeReader) dir(name string, depth int) error {
	if err := t.ctx.Err(); err != nil {
		return context.Cause(t.ctx)
	}
	at := path.Join(t.root, name)
	if t.left.files--; t.left.files < 0 { // directories also count: links can multiply them
		return deploy.Errorf(deploy.Invalid, "%s: the chart with its dependencies has too many files and directories", at)
	}
	if depth == 0 {
		return deploy.Errorf(deploy.Invalid, "%s: the directories of the chart are nested more than %d deep", at, maxDirectories)
	}
	entries, err := fs.ReadDir(t.fsys, at)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		below := path.Join(name, entry.Name())
		info, err := fs.Stat(t.fsys, path.Join(t.root, below)) // follows links inside the repository
		if err != nil {
			return deploy.Errorf(deploy.Invalid, "%s: %w", path.Join(t.root, below), err)
		}
		switch {
		case t.rules.Ignore(below, info):
		case info.IsDir():
			err = t.dir(below, depth-1)
		default:
			err = t.read(below)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// isSealed reports whether an error means that a file is encrypted and none of the agent's keys
// can decrypt it.
func isSealed(err error) bool {
	var sealed interface{ Sealed() bool }
	return errors.As(err, &sealed) && sealed.Sealed()
}

func (t *treeReader) read(name string) error {
	in, err := t.fsys.Open(path.Join(t.root, name))
	if isSealed(err) && isExtra(name) { // usually the values of another installation
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := t.left.take(name, in)
	if err != nil {
		return err
	}
	t.files = append(t.files, f)
	return nil
}

// unpack returns the sorted files of a chart archive. In the archive all names begin with the
// chart's directory, which unpack removes.
func unpack(data []byte, left *budget) ([]*file, error) {
	zr, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "it is not a gzipped archive: %w", err)
	}
	var files []*file
	for tr := tar.NewReader(zr); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "the archive is broken: %w", err)
		}
		if header.Typeflag != tar.TypeReg {
			continue // a directory, a link, or something about the archive
		}
		name := strings.ReplaceAll(header.Name, `\`, "/")
		_, inside, _ := strings.Cut(strings.TrimPrefix(name, "./"), "/")
		if inside == "" || !filepath.IsLocal(inside) || path.IsAbs(name) {
			return nil, deploy.Errorf(deploy.Invalid, "the archive holds %q, which is not inside a chart's directory", header.Name)
		}
		f, err := left.take(path.Clean(inside), tr)
		switch {
		case err != nil && deploy.KindOf(err) == deploy.Internal:
			return nil, deploy.Errorf(deploy.Invalid, "the archive is broken: %w", err)
		case err != nil:
			return nil, err
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, deploy.Errorf(deploy.Invalid, "the archive is empty")
	}
	slices.SortStableFunc(files, func(a, b *file) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// isExtra reports whether a file of a chart has no special meaning in Helm.
func isExtra(name string) bool {
	switch dir, _, _ := strings.Cut(name, "/"); dir {
	case "templates", "crds", "charts", "Chart.yaml", "Chart.lock", "values.yaml", "values.schema.json":
		return false
	}
	return true
}
