package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// comment is the doc comment of a field that is read from a configuration.
type comment struct {
	text         string // without the field's name
	required     string // "Required...", or ""
	defaults     string // of "Default: ..."
	typ          string // of "Type: ..."
	own          bool   // "Not in PipeCD."
	sameKeysAsOf bool   // "Same keys as ...": what stands below is described there
}

// comments are the doc comments of fields, by package path, type and field with dots
// between them.
type comments map[string]comment

// configPackages hold the types that configurations are read into.
var configPackages = []string{"piped/config", "piped/config/kubernetes", "piped/config/opentofu", "piped/config/analysis"}

const module = "github.com/c785c783/piped/"

// readComments reads the doc comments of the fields of every struct of configPackages.
func readComments(root string) (comments, error) {
	out := comments{}
	for _, pkg := range configPackages {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, name := range files {
			if err := out.read(name, module+pkg); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (c comments) read(name, pkg string) error {
	source, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				for _, ident := range f.Names {
					c[pkg+"."+spec.Name.Name+"."+ident.Name] = parseComment(ident.Name, f.Doc.Text())
				}
			}
		}
		return true
	})
	return nil
}

// markers are sentences on the last line of a comment's first paragraph, which say what
// the type does not.
var markers = regexp.MustCompile(`(?:^|\s)(Required[^.]*|Default: (?:[^.]|\.\S)*|Type: [^.]*|Not in PipeCD)\.(?:\s|$)`)

// parseComment reads the doc comment of a field. The first paragraph is for readers of
// the docs; what follows is for those of the code.
func parseComment(field, doc string) comment {
	first, _, _ := strings.Cut(doc, "\n\n")
	c := comment{sameKeysAsOf: strings.Contains(first, "Same keys as ")}
	text := " " + strings.Join(strings.Fields(first), " ") + " "
	for m := markers.FindStringSubmatchIndex(text); m != nil; m = markers.FindStringSubmatchIndex(text) {
		marker := text[m[2]:m[3]]
		switch {
		case marker == "Not in PipeCD":
			c.own = true
		case strings.HasPrefix(marker, "Default: "):
			c.defaults = strings.TrimPrefix(marker, "Default: ")
		case strings.HasPrefix(marker, "Type: "):
			c.typ = strings.TrimPrefix(marker, "Type: ")
		default:
			c.required = strings.ToLower(marker[:1]) + marker[1:]
		}
		text = text[:m[0]] + " " + text[m[1]:]
	}
	text = strings.TrimSpace(text)
	for _, verb := range []string{" is ", " are ", " "} {
		if rest, ok := strings.CutPrefix(text, field+verb); ok {
			text = strings.ToUpper(rest[:1]) + rest[1:]
			break
		}
	}
	c.text = text
	return c
}
