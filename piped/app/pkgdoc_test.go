package app

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryPackageHasOneDoc walks the repository: each package says once what it
// owns.
func TestEveryPackageHasOneDoc(t *testing.T) {
	t.Parallel()
	docs := map[string][]string{} // directory -> files with a package doc
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "bin"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		docs[dir] = append(docs[dir], nil...)
		generated := strings.HasSuffix(path, ".pb.go")
		if file.Doc != nil || generated && docs[dir] == nil {
			docs[dir] = append(docs[dir], path)
		} else if docs[dir] == nil {
			docs[dir] = []string{}
		}
		if file.Doc != nil && !generated && !strings.HasPrefix(file.Doc.Text(), "Package "+file.Name.Name+" ") && file.Name.Name != "main" {
			t.Errorf("%s: the package doc must begin with %q", path, "Package "+file.Name.Name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for dir, files := range docs {
		if len(files) != 1 && !strings.Contains(dir, "proto") {
			t.Errorf("%s has %d package docs, want one: %v", dir, len(files), files)
		}
	}
}
