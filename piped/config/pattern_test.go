package config

import (
	"strings"
	"sync"
	"testing"
)

func TestPatternsMatchAlone(t *testing.T) {
	tests := []struct {
		patterns, file string
		want           bool
	}{
		{"charts/demo", "charts/demo/a/b.yaml", true},
		{"charts/demo", "charts/demo2/b.yaml", false},
		{"charts/bar/*", "charts/bar/x.yaml", true},
		{"charts/bar/*", "charts/bar/s/x.yaml", true}, // by its parent
		{"*/hello.txt", "app/hello.txt", true},
		{"*/hello.txt", "app/sub/hello.txt", false},
		{"*.md", "docs/a.md", false},
		{"**/*.md", "docs/a.md", true},
		{"**/*.md", "a.md", true},
		{"docs/**", "docs/a/b", true},
		{"docs/", "docs/a", true},
		{" docs ", "docs/a", true},
		{"a?c", "abc", true},
		{"a?c", "a/c", false},
		{"a.c", "abc", false},
		{"{a,b}", "a", false}, // no braces
		{"a+", "aa", false},   // and no regular expressions
		{"(a|b)", "a", false},
		{"[ab]", "b", true},
		{"", "a", false},
		{"!docs", "docs/a", false},
		{"!docs", "src/a", false},
		{"docs !docs/README.md", "docs/README.md", true}, // each alone: ! has no effect
	}
	for _, tt := range tests {
		if got := patterns(t, words(tt.patterns)...).Match(tt.file); got != tt.want {
			t.Errorf("%q on %s: got %t, want %t", tt.patterns, tt.file, got, tt.want)
		}
	}
}

func TestPatternsMatchCombined(t *testing.T) {
	tests := []struct {
		patterns, file string
		want           bool
	}{
		{"docs !docs/README.md", "docs/README.md", false},
		{"docs !docs/README.md", "docs/other.md", true},
		{"!docs/README.md docs", "docs/README.md", false}, // any exclusion wins
		{"!docs", "src/a", false},
	}
	for _, tt := range tests {
		if got := patterns(t, words(tt.patterns)...).MatchCombined(tt.file); got != tt.want {
			t.Errorf("%q on %s: got %t, want %t", tt.patterns, tt.file, got, tt.want)
		}
	}
}

// words splits at spaces between patterns; a single one keeps its spaces.
func words(s string) []string {
	if strings.TrimSpace(s) != s || s == "" {
		return []string{s}
	}
	return strings.Fields(s)
}

func TestBadPatternsAreRefused(t *testing.T) {
	for _, text := range []string{"[a-", "!", "! ", `a\`, "[]"} {
		if err := new(Pattern).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
}

// Patterns are shared by all readers of a configuration: run with -race.
func TestPatternsMatchConcurrently(t *testing.T) {
	ps := patterns(t, "a/*.md", "**/b", "c/**", "d", "!e/*")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for file, want := range map[string]bool{"a/x.md": true, "x/b": true, "c/y": true, "d/z": true, "e/f": false} {
				if got := ps.MatchCombined(file); got != want {
					t.Errorf("%s matches: %t, want %t", file, got, want)
				}
			}
		})
	}
	wg.Wait()
}
