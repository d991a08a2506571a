package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The bytes of an archive depend neither on the order of its files nor on their times and
// places here.
func TestArchivesAreReproducible(t *testing.T) {
	var archives [][]byte
	for i := range 2 {
		program := filepath.Join(t.TempDir(), fmt.Sprint("program", i))
		if err := os.WriteFile(program, []byte("run"), os.FileMode(0o600+0o100*i)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(program, time.Time{}, time.Unix(int64(i), 0)); err != nil {
			t.Fatal(err)
		}
		files := WithParents([]File{Executable("a/program", program), Text("a/b/text", []byte("text")), Directory("/a/data", 0o700, 65532)})
		if i == 1 {
			slices.Reverse(files)
		}
		archive := filepath.Join(t.TempDir(), "archive.tar.gz")
		if err := WriteArchive(archive, files, time.Unix(1795000000, 0)); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, content)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the second archive differs")
	}
}

// Directories come before what they contain, and each file has what was given.
func TestWrite(t *testing.T) {
	var out bytes.Buffer
	files := WithParents([]File{Text("b/text", []byte("text")), Directory("a", 0o1777, 7)})
	if err := Write(&out, files, time.Unix(1795000000, 0)); err != nil {
		t.Fatal(err)
	}
	var got []string
	for in := tar.NewReader(&out); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %d:%d %d %s", h.Name, h.Mode, h.Uid, h.Gid, h.ModTime.Unix(), content))
	}
	want := []string{"a/ 1777 7:7 1795000000 ", "b/ 755 0:0 1795000000 ", "b/text 644 0:0 1795000000 text"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

// A file that is not there is named.
func TestMissingFile(t *testing.T) {
	err := WriteArchive(filepath.Join(t.TempDir(), "archive.tar.gz"), []File{Executable("program", "/nowhere/program")}, time.Time{})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
