package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/config"
)

const root = "../.."

// block is a fenced block of a page.
type block struct {
	page, language, text string
	line                 int
}

// pages calls visit with the name and the text of README.md, CONTRIBUTING.md and every
// page below docs/.
func pages(t *testing.T, visit func(name, text string)) {
	t.Helper()
	names, err := listPages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(names, filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		visit(strings.TrimPrefix(name, root+"/"), string(text))
	}
}

// blocks returns the blocks of all pages in one of some languages.
func blocks(t *testing.T, languages ...string) (out []block) {
	pages(t, func(name, text string) {
		var current *block
		for i, line := range strings.Split(text, "\n") {
			language, fence := strings.CutPrefix(line, "```")
			switch {
			case fence && current == nil:
				current = &block{page: name, language: language, line: i + 1}
			case fence:
				if slices.Contains(languages, current.language) {
					out = append(out, *current)
				}
				current = nil
			case current != nil:
				current.text += line + "\n"
			}
		}
		if current != nil {
			t.Errorf("%s:%d: the block does not end", name, current.line)
		}
	})
	return out
}

// Every YAML block is what a program of its kind can read.
func TestEveryYAMLBlockParses(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	all := blocks(t, "yaml")
	if len(all) < 40 {
		t.Errorf("found only %d blocks", len(all))
	}
	for _, b := range all {
		for text := range strings.SplitSeq(b.text, "\n---\n") {
			if err := parseYAML(b.page, text); err != nil {
				t.Errorf("%s:%d: %v", b.page, b.line, err)
			}
		}
	}
}

// parseYAML reads one document. One without apiVersion is the spec of what its page is
// about, an application in most.
func parseYAML(page, text string) error {
	var head struct {
		APIVersion, Kind string
		ScrapeConfigs    []any `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return err
	}
	switch {
	case head.APIVersion == "" && (head.ScrapeConfigs != nil || page == "docs/reference/pipectl.md"):
		return nil // Prometheus', or pipectl's, which piped/pipectl checks
	case head.APIVersion == "":
		head.APIVersion, head.Kind = config.APIVersion, app.Kinds()[0].File
		if page == "docs/reference/agent.md" || page == "docs/concepts/access.md" {
			head.Kind = config.KindPiped
		}
		text = fmt.Sprintf("apiVersion: %s\nkind: %s\nspec:\n  %s\n", head.APIVersion, head.Kind, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  "))
	}
	if head.APIVersion == config.APIVersion {
		return parseOurs(page, head.Kind, []byte(text))
	}
	version, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return err
	}
	object, err := scheme.Scheme.New(version.WithKind(head.Kind))
	if err != nil {
		return nil // of another tool, such as Argo CD
	}
	return sigsyaml.UnmarshalStrict([]byte(text), object)
}

func parseOurs(page, kind string, text []byte) (err error) {
	switch kind {
	case config.KindPiped:
		_, _, err = app.Kinds().ParsePiped(page, text)
	case config.KindAnalysisTemplate:
		_, _, err = config.ParseAnalysisTemplates(page, text)
	case config.KindEventWatcher:
		_, _, err = config.ParseEventRules(page, text)
	default:
		_, err = app.Kinds().ParseApplication(page, text)
		if err != nil && strings.Contains(string(text), "resourceRoutes:") {
			return nil // a section says that it is refused
		}
	}
	return err
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// anchors returns what links to headings of a page may name.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(link.ReplaceAllString(m[1], "]"))
		name = regexp.MustCompile(`[^\p{L}\p{N}\- _]`).ReplaceAllString(name, "")
		out[strings.ReplaceAll(name, " ", "-")] = true
	}
	return out
}

// Every link inside the repository leads to a file, and to a heading of it.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	pages(t, func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(root, filepath.Dir(name), file)
			if file == "" {
				target = filepath.Join(root, name)
			}
			content, err := os.ReadFile(target)
			if err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
			} else if anchor != "" && !anchors(string(content))[anchor] {
				t.Errorf("%s: %s has no heading #%s", name, m[1], anchor)
			}
		}
	})
}

var codePath = regexp.MustCompile("`((?:piped|trigger|planner|scheduler|executor|proto|examples)(?:/[\\w.-]+)+/?)`")

// Every folder and file of the code that a page names is there.
func TestEveryPathOfTheCodeIsThere(t *testing.T) {
	pages(t, func(name, text string) {
		for _, m := range codePath.FindAllStringSubmatch(text, -1) {
			if _, err := fs.Stat(os.DirFS(root), strings.TrimSuffix(m[1], "/")); err != nil {
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	})
}

// Every page can be found: README.md or another page links to it.
func TestEveryPageIsLinked(t *testing.T) {
	linked := map[string]bool{"README.md": true, "CONTRIBUTING.md": true}
	pages(t, func(name, text string) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			file, _, _ := strings.Cut(m[1], "#")
			linked[filepath.Join(filepath.Dir(name), file)] = true
		}
	})
	pages(t, func(name, _ string) {
		if !linked[name] {
			t.Errorf("no page links to %s", name)
		}
	})
}

// README.md stays one page.
func TestReadmeIsOnePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 150 {
		t.Errorf("it has %d lines, want at most 150", lines)
	}
}

// The check of a signature that a page shows is the one that a test of the webhook runs.
func TestTheSignatureCheckIsTested(t *testing.T) {
	tested, err := os.ReadFile(filepath.Join(root, "piped/notify/webhook/webhook_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks(t, "go") {
		if !strings.Contains(string(tested), b.text) {
			t.Errorf("%s:%d: piped/notify/webhook/webhook_test.go does not run this code", b.page, b.line)
		}
	}
}
