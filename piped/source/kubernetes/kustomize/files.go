package kustomize

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/c785c783/piped/piped/deploy"
)

// remotesDir is the directory of remote bases in the virtual file system. No commit can contain
// a file of that name.
const remotesDir = "/.git/remotes/"

// mount is a tree in the virtual file system.
type mount struct {
	id    string    // of a remote base: its remote and commit
	at    string    // the absolute path; "/" for the application's repository
	show  string    // the prefix of its files in messages
	from  remoteRef // of a remote base; its directory is not used
	tree  fs.FS
	depth int // 0 for the application's repository, 1 for its remote bases, and so on
}

// path returns the path of a file of the mount in the virtual file system.
func (m *mount) path(name string) string { return path.Join(m.at, name) }

// named returns the name of a file of the mount for messages.
func (m *mount) named(name string) string { return m.show + name }

// virtual returns the path of a directory of the application's repository in the virtual file
// system.
func virtual(dir string) string { return path.Join("/", dir) }

// files is the virtual file system of one build. It is read-only and contains the rewritten
// kustomizations of the plan. The methods that Kustomize does not use are those of the embedded
// empty file system.
type files struct {
	filesys.FileSystem
	ctx            context.Context // after it ends, all reads fail
	mounts         []*mount        // the application's repository first
	kustomizations map[string][]byte
	made           map[string]made // generated files, by path
	managed        bool            // objects get the label of buildMetadata
	schema         bool            // a kustomization sets the OpenAPI schema
	left           Limits
	limits         Limits
	failure        error // the first error of a refused file, which Kustomize does not wrap
}

// locate returns the mount of a path, and the file's name relative to the mount.
func (f *files) locate(file string) (m *mount, name string) {
	file = path.Join("/", file)
	for _, m := range f.mounts[1:] {
		if rest, ok := strings.CutPrefix(file, m.at); ok && (rest == "" || rest[0] == '/') {
			return m, path.Join(".", rest)
		}
	}
	return f.mounts[0], path.Join(".", file)
}

// refuse stores the first error as f.failure, and returns err.
func (f *files) refuse(err error) error {
	if f.failure == nil {
		f.failure = err
	}
	return err
}

// ReadFile implements filesys.FileSystem.
func (f *files) ReadFile(file string) ([]byte, error) {
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	m, name := f.locate(file)
	data, ok := f.kustomizations[m.path(name)]
	if file, is := f.made[m.path(name)]; is {
		data, ok = file.data, true
	}
	if !ok {
		if isKustomization(path.Base(name)) { // the plan did not rewrite this one
			return nil, fmt.Errorf("read %s: %w", file, fs.ErrNotExist)
		}
		var err error
		if data, err = readFile(m, name, f.left.Bytes); err != nil {
			if deploy.IsKind(err, deploy.Invalid) {
				return nil, f.refuse(err)
			}
			return nil, err
		}
		if err := checkAliases(data); err != nil {
			return nil, f.refuse(deploy.Errorf(deploy.Invalid, "%s: %w", m.named(name), err))
		}
	}
	if f.left.Objects -= countKinds(data); f.left.Objects < 0 {
		return nil, f.refuse(deploy.Errorf(deploy.Invalid, "%s: the files of the build hold more than %d objects; split the application", m.named(name), f.limits.Objects))
	}
	f.left.Bytes -= int64(len(data))
	f.left.Files--
	if f.left.Bytes < 0 || f.left.Files < 0 {
		return nil, f.refuse(deploy.Errorf(deploy.Invalid, "%s: the build reads more than %d bytes or %d files; split the application",
			m.named(name), f.limits.Bytes, f.limits.Files))
	}
	return data, nil
}

// CleanedAbs implements filesys.FileSystem. It does not resolve symbolic links; the trees
// follow links whose target is inside.
func (f *files) CleanedAbs(file string) (filesys.ConfirmedDir, string, error) {
	if f.ctx.Err() != nil {
		return "", "", context.Cause(f.ctx)
	}
	m, name := f.locate(file)
	if full := m.path(name); f.made[full].data != nil {
		return filesys.ConfirmedDir(path.Dir(full)), path.Base(full), nil
	}
	info, err := fs.Stat(m.tree, name)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", m.named(name), err)
	}
	full := m.path(name)
	if info.IsDir() {
		return filesys.ConfirmedDir(full), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(full)), path.Base(full), nil
}

// explain returns the text of an error of Kustomize, with the file names of messages.
func (f *files) explain(err error) string {
	text := withoutDumps(err.Error())
	for _, m := range f.mounts[1:] {
		text = strings.ReplaceAll(text, m.at+"/", m.show)
	}
	return text
}

// Quotes of its input in Kustomize's errors, verbatim or escaped.
var (
	configDump  = regexp.MustCompile("(?s)with config: `.*`: ")
	inlinePatch = regexp.MustCompile(`(?s)\[patch: \\*".*"\]`)
)

// withoutDumps returns the first line of an error without quotes of the input, which may
// contain secrets.
func withoutDumps(text string) string {
	text = configDump.ReplaceAllLiteralString(text, "from this file: ")
	return firstLine(inlinePatch.ReplaceAllLiteralString(text, "an inline patch"))
}

// readFile reads a file of at most limit bytes. The error is of kind Invalid if the file is
// larger, or is a symbolic link with a target outside of the repository.
func readFile(m *mount, name string, limit int64) ([]byte, error) {
	in, err := m.tree.Open(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil, deploy.Errorf(deploy.Invalid, "%s: a symbolic link points out of the repository", m.named(name))
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", m.named(name)))
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", m.named(name), err)
	}
	if int64(len(data)) > limit {
		return nil, deploy.Errorf(deploy.Invalid, "%s: the files of the build have more bytes than the %d that are left to it; split the application", m.named(name), limit)
	}
	return data, nil
}
