// Docs writes the generated parts of the pages below docs/: tables of configuration
// keys and stage options from the types and doc comments of piped/config, pipectl's
// commands from cobra, metrics from the registry, and the methods of the API from the
// .proto files. It also writes docs/reference/openapi.json, from the .proto files.
//
// A page marks where generated text goes:
//
//	<!-- generated: keys Piped api web -->
//	<!-- end of generated text -->
//
// The first word selects the generator; see generators. The command replaces what is
// between the two lines and changes nothing else of a page. With -check it changes
// nothing and fails if a page is stale.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stderr))
}

// run returns the exit code: 0, 1 when a page cannot be generated or is stale, 2 for a
// wrong command line.
func run(args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("docs", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", ".", "directory of the repository")
	check := flags.Bool("check", false, "change nothing, and fail if a page is stale")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	stale, err := generate(*root, *check)
	if err != nil {
		fmt.Fprintln(stderr, "docs:", err)
		return 1
	}
	if *check && len(stale) > 0 {
		fmt.Fprintf(stderr, "docs: stale: %s; run: make generate\n", strings.Join(stale, ", "))
		return 1
	}
	return 0
}

// generate renews the pages and the OpenAPI description, and returns those that were stale.
func generate(root string, dry bool) (stale []string, err error) {
	pages, err := listPages(root)
	if err != nil {
		return nil, err
	}
	g, err := newGenerators(root)
	if err != nil {
		return nil, err
	}
	renew := func(name string, content func(old []byte) ([]byte, error)) error {
		old, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		renewed, err := content(old)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if bytes.Equal(old, renewed) {
			return nil
		}
		stale = append(stale, name)
		if dry {
			return nil
		}
		return os.WriteFile(name, renewed, 0o644)
	}
	for _, page := range pages {
		if err := renew(page, g.page); err != nil {
			return nil, err
		}
	}
	if err := renew(filepath.Join(root, openAPIFile), func([]byte) ([]byte, error) { return describeAPI(root) }); err != nil {
		return nil, err
	}
	return stale, g.complete()
}

// listPages returns README.md and the pages below docs/.
func listPages(root string) ([]string, error) {
	pages, err := findFiles(filepath.Join(root, "docs"), ".md")
	return append([]string{filepath.Join(root, "README.md")}, pages...), err
}

// findFiles returns the files below a directory whose names have an extension.
func findFiles(dir, extension string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == extension {
			files = append(files, path)
		}
		return err
	})
	return files, err
}

// generators make the generated texts of all pages.
type generators struct {
	*keys
	root string
}

func newGenerators(root string) (*generators, error) {
	k, err := newKeys(root)
	return &generators{k, root}, err
}

const end = "<!-- end of generated text -->"

var marked = regexp.MustCompile(`(?s)<!-- generated: ([^\n]+?) -->\n.*?` + end)

// page returns the text of a page with its generated parts renewed.
func (g *generators) page(text []byte) ([]byte, error) {
	if begun, ended := bytes.Count(text, []byte("<!-- generated: ")), bytes.Count(text, []byte(end)); begun != ended {
		return nil, fmt.Errorf("%d generated texts begin and %d end", begun, ended)
	}
	var failed error
	out := marked.ReplaceAllFunc(text, func(part []byte) []byte {
		what := string(marked.FindSubmatch(part)[1])
		generated, err := g.text(strings.Fields(what))
		if err != nil && failed == nil {
			failed = fmt.Errorf("generate %q: %w", what, err)
		}
		return []byte("<!-- generated: " + what + " -->\n" + strings.TrimSpace(generated) + "\n" + end)
	})
	return out, failed
}

// text returns one generated text.
func (g *generators) text(words []string) (string, error) {
	rest := words[1:]
	switch {
	case words[0] == "keys" && len(rest) > 1:
		return g.table(rest[0], rest[1:])
	case words[0] == "options" && len(rest) == 1:
		return g.options(rest[0])
	case words[0] == "own" && len(rest) == 1:
		return g.own(rest[0])
	case words[0] == "commands" && len(rest) == 0:
		return commandTable(), nil
	case words[0] == "flags" && len(rest) == 0:
		return commandReference(), nil
	case words[0] == "metrics" && len(rest) == 0:
		return metricTable(), nil
	case words[0] == "methods" && len(rest) == 2:
		return methodTable(filepath.Join(g.root, rest[0]), rest[1])
	}
	return "", fmt.Errorf("there is no such generator")
}

// table returns a table in Markdown.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	fmt.Fprintf(&b, "%s|\n", strings.Repeat("|---", len(head)))
	for _, row := range rows {
		cells := slices.Clone(row)
		for i := range cells {
			cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(cells[i]), " "), "|", `\|`)
		}
		line(cells)
	}
	return b.String()
}
