package git

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// at commits what stage put into a new repository and opens the commit.
func at(t *testing.T, stage func(*gittest.Repo) error, edit ...func(*Config)) fs.FS {
	t.Helper()
	up := gittest.New(t)
	up.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
	if err := stage(up); err != nil {
		t.Fatal(err)
	}
	hash := up.Push(t, "commit", nil)
	r := open(t, up.Dir, edit...)
	mustSync(t, r, hash, true)
	fsys, err := r.At(hash)
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestACommitIsAFileSystem(t *testing.T) {
	fsys := at(t, func(up *gittest.Repo) error {
		up.Submodule("module", strings.Repeat("1", 40))
		return errors.Join(
			up.Write(map[string]string{
				"README.md": "hello", "empty": "", "dir/a.yaml": "a", "dir/sub/b.yaml": "b",
				"dir-x": "sorts between dir and dir/", "größe/日本.yaml": "ü", "run.sh": "#!/bin/sh", "with space/ a": "s",
			}),
			up.SetExecutable("run.sh", true),
			up.Symlink("dir/link.yaml", "../README.md"),
			up.Symlink("dir/up", "../größe"),
			up.Symlink("here", "."),
			up.Symlink("twice", "dir/up/日本.yaml"),
		)
	})
	if err := fstest.TestFS(fsys, "README.md", "empty", "dir/a.yaml", "dir/sub/b.yaml", "dir-x", "größe/日本.yaml", "run.sh", "module", "dir/link.yaml", "dir/up", "with space/ a"); err != nil {
		t.Error(err)
	}
	var walked []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		walked = append(walked, info.Mode().String()+" "+name)
		return nil
	})
	want := []string{
		"drwxr-xr-x .", "-rw-r--r-- README.md", "drwxr-xr-x dir", "-rw-r--r-- dir/a.yaml", "Lrwxrwxrwx dir/link.yaml", "drwxr-xr-x dir/sub",
		"-rw-r--r-- dir/sub/b.yaml", "Lrwxrwxrwx dir/up", "-rw-r--r-- dir-x", "-rw-r--r-- empty", "drwxr-xr-x größe", "-rw-r--r-- größe/日本.yaml",
		"Lrwxrwxrwx here", "drwxr-xr-x module", "-rwxr-xr-x run.sh", "Lrwxrwxrwx twice", "drwxr-xr-x with space", "-rw-r--r-- with space/ a",
	}
	if diff := cmp.Diff(want, walked); err != nil || diff != "" {
		t.Errorf("walk: %v (-want +got):\n%s", err, diff)
	}
	for name, want := range map[string]string{
		"dir/link.yaml": "hello", "dir/up/日本.yaml": "ü", "twice": "ü", "here/here/dir/../dir/a.yaml": "", "here/here/dir/a.yaml": "a", "empty": "",
	} {
		data, err := fs.ReadFile(fsys, name)
		if wantErr := !fs.ValidPath(name); (err != nil) != wantErr || string(data) != want {
			t.Errorf("read %s = %q, %v", name, data, err)
		}
	}
	info, err := fs.Stat(fsys, "dir/link.yaml")
	if err != nil || info.Size() != 5 || info.Mode() != 0o644 || info.Name() != "link.yaml" || !info.ModTime().Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("stat of a link's target: %v, %v", info, err)
	}
	info, err = fs.Lstat(fsys, "dir/link.yaml")
	if err != nil || info.Size() != 12 || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("lstat of a link: %v, %v", info, err)
	}
	if target, err := fs.ReadLink(fsys, "dir/link.yaml"); err != nil || target != "../README.md" {
		t.Errorf("readlink = %q, %v", target, err)
	}
}

// TestNamesThatAreNotUTF8 are in repositories, and io/fs has none: a walk of a
// commit must not fail at them.
func TestNamesThatAreNotUTF8(t *testing.T) {
	fsys := at(t, func(up *gittest.Repo) error {
		return errors.Join(up.Write(map[string]string{"caf\xe9/na\xefve": "x"}), up.Symlink("link", "caf\xe9"))
	})
	var read []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		read = append(read, name+": "+string(data))
		return err
	})
	if diff := cmp.Diff([]string{"caf\xe9/na\xefve: x"}, read); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if data, err := fs.ReadFile(fsys, "link/na\xefve"); err != nil || string(data) != "x" {
		t.Errorf("through a link: %q, %v", data, err)
	}
	if _, err := fs.ReadFile(fsys, "caf\xe9/../caf\xe9/na\xefve"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path that leads up: %v", err)
	}
}

func TestPathsThatCannotBeOpened(t *testing.T) {
	fsys := at(t, func(up *gittest.Repo) error {
		up.Submodule("module", strings.Repeat("1", 40))
		return errors.Join(
			up.Write(map[string]string{"file": "f", "dir/file": "f", "large": strings.Repeat("x", 101)}),
			up.Symlink("absolute", "/etc/passwd"),
			up.Symlink("above", "../file"),
			up.Symlink("dir/above", "../../dir/file"),
			up.Symlink("dir/inside-then-above", "../dir/../../file"),
			up.Symlink("through", "dir/above"),
			up.Symlink("above-dir", ".."),
			up.Symlink("loop", "loop"),
			up.Symlink("ping", "pong"),
			up.Symlink("pong", "ping"),
			up.Symlink("dangling", "nothing"),
			up.Symlink("through-file", "file/x"),
			up.Symlink("long", strings.Repeat("x/", maxSymlinkLength)),
		)
	}, func(c *Config) { c.MaxFileSize = 100 })
	for name, want := range map[string]error{
		"absolute": fs.ErrPermission, "above": fs.ErrPermission, "dir/above": fs.ErrPermission, "dir/inside-then-above": fs.ErrPermission,
		"through": fs.ErrPermission, "above-dir": fs.ErrPermission, "above-dir/etc": fs.ErrPermission,
		"dangling": fs.ErrNotExist, "nothing": fs.ErrNotExist, "file/x": fs.ErrNotExist, "through-file": fs.ErrNotExist, "dir/file/x/y": fs.ErrNotExist,
		"module/x": fs.ErrNotExist, "../file": fs.ErrInvalid, "/file": fs.ErrInvalid, "dir/../file": fs.ErrInvalid, "": fs.ErrInvalid,
		"loop": nil, "ping": nil, "long": nil, "large": nil,
	} {
		_, errOpen := fsys.Open(name)
		_, errRead := fs.ReadFile(fsys, name)
		for _, err := range []error{errOpen, errRead} {
			var pathErr *fs.PathError
			if !errors.As(err, &pathErr) || pathErr.Path != name || want != nil && !errors.Is(err, want) {
				t.Errorf("%q: %v; want a path error with %v", name, err, want)
			}
		}
	}
	for name, want := range map[string]string{
		"loop": "too many symbolic links", "large": "the file has 101 bytes, more than the limit of 100",
		"absolute": "a symbolic link points out of the repository",
	} {
		if _, err := fsys.Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("open %s: %v; want %q", name, err, want)
		}
	}
	if _, err := fs.ReadFile(fsys, "dir"); err == nil {
		t.Error("a directory was read as a file")
	}
	if _, err := fs.ReadDir(fsys, "file"); err == nil {
		t.Error("a file was listed as a directory")
	}
	if info, err := fs.Stat(fsys, "large"); err != nil || info.Size() != 101 {
		t.Errorf("stat large: %v, %v", info, err)
	}
}

func TestATreeWithForbiddenNamesIsRefused(t *testing.T) {
	for _, name := range []string{".git/config", ".GIT/config"} {
		fsys := at(t, func(up *gittest.Repo) error { return up.Write(map[string]string{"dir/" + name: "x"}) })
		if _, err := fs.ReadDir(fsys, "dir"); err == nil || !strings.Contains(err.Error(), "forbidden name") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadersDoNotDisturbOneAnotherNorAFetch(t *testing.T) {
	up := gittest.New(t)
	files := map[string]string{}
	for _, dir := range []string{"a", "b", "c", "d"} {
		for _, name := range []string{"1", "2", "3", "4", "5"} {
			files[dir+"/"+name] = dir + name
		}
	}
	first := up.Push(t, "first", files)
	r := open(t, up.HTTP(t, gittest.HTTPOptions{}).URL)
	mustSync(t, r, first, true)
	fsys, err := r.At(first)
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for range 20 {
				for name, want := range files {
					f, err := fsys.Open(name)
					if err != nil {
						t.Error(err)
						return
					}
					if data, err := io.ReadAll(f); err != nil || string(data) != want {
						t.Errorf("%s = %q, %v", name, data, err)
					}
				}
				if _, err := r.Changed(t.Context(), first, first); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 5 {
		mustSync(t, r, up.Push(t, "next", map[string]string{"a/1": strings.Repeat("n", i+1)}), true)
	}
	wait.Wait()
}

func TestAtOfAnUnknownCommit(t *testing.T) {
	up := gittest.New(t)
	r := open(t, up.Dir)
	for _, hash := range []string{"", "abc", strings.Repeat("0", 40), strings.Repeat("a", 40)} {
		if _, err := r.At(hash); !deploy.IsKind(err, deploy.NotFound) {
			t.Errorf("At(%q) = %v", hash, err)
		}
	}
}
