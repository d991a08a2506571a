package app

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mentioned matches a name or path of a source file or a page in a comment.
var mentioned = regexp.MustCompile(`(?:^|[^\w/.:@-])((?:[\w.-]+/)*[\w.-]+\.(?:go|proto|md))\b`)

// TestFilesInCommentsExist: a comment that names a Go file names one of its directory or
// gives its path; a .proto file or a page may lie anywhere.
func TestFilesInCommentsExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	have, sources := map[string]bool{}, []string{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin"):
			return filepath.SkipDir
		case entry.IsDir():
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if suffix := path.Ext(name); suffix == ".go" && !strings.HasSuffix(name, ".pb.go") || suffix == ".proto" {
			sources = append(sources, name)
		}
		for short := name; ; { // by each end of its path
			have[short] = true
			_, rest, more := strings.Cut(short, "/")
			if !more {
				break
			}
			short = rest
		}
		have["/"+name] = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		for _, comment := range commentsOf(t, root, source) {
			for _, m := range mentioned.FindAllStringSubmatch(comment, -1) {
				name := m[1]
				anywhere := strings.Contains(name, "/") || !strings.HasSuffix(name, ".go")
				if !have["/"+path.Join(path.Dir(source), name)] && !(anywhere && have[name]) {
					t.Errorf("%s: a comment names %s, which does not exist:\n%s", source, name, comment)
				}
			}
		}
	}
}

// commentsOf returns the comments of a Go or .proto file.
func commentsOf(t *testing.T, root, name string) (comments []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".proto") {
		for line := range strings.Lines(string(text)) {
			if _, comment, ok := strings.Cut(line, "//"); ok {
				comments = append(comments, comment)
			}
		}
		return comments
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(name, -1, len(text)), text, nil, scanner.ScanComments)
	for {
		switch _, tok, literal := s.Scan(); tok {
		case token.EOF:
			return comments
		case token.COMMENT:
			comments = append(comments, literal)
		}
	}
}
