package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moby/patternmatcher"
)

// Pattern is one path pattern in PipeCD's language (that of .dockerignore):
// * and ? stay inside a path segment, ** crosses them, a pattern also matches
// everything below what it matches, and a leading ! excludes. There are no
// braces. It is safe for concurrent use.
type Pattern struct {
	text    string
	exclude bool
	matcher *patternmatcher.PatternMatcher
}

// UnmarshalText compiles a pattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	trimmed := strings.TrimSpace(string(text))
	body, exclude := strings.CutPrefix(trimmed, "!")
	if exclude && strings.TrimSpace(body) == "" {
		return errors.New(`expected a path pattern after "!"`)
	}
	m, err := patternmatcher.New([]string{body})
	if err == nil {
		// The matcher compiles at its first use, which must not be a concurrent one.
		_, err = m.MatchesOrParentMatches("x")
	}
	if err != nil {
		return fmt.Errorf("expected a path pattern such as charts/**, found %q: %w", text, err)
	}
	*p = Pattern{text: trimmed, exclude: exclude, matcher: m}
	return nil
}

// Expected says what a Pattern is read from.
func (p Pattern) Expected() string { return "a path pattern such as charts/**" }

// String returns the pattern as written.
func (p Pattern) String() string { return p.text }

// Equal reports whether p and o were written the same.
func (p Pattern) Equal(o Pattern) bool { return p.text == o.text }

func (p Pattern) match(file string) bool {
	if p.matcher == nil {
		return false
	}
	ok, err := p.matcher.MatchesOrParentMatches(file)
	return ok && err == nil // compiled when read: no error is left
}

// Patterns is a list of patterns. It is safe for concurrent use.
type Patterns []Pattern

// Match reports whether any pattern, each taken alone, matches the
// slash-separated path. An excluding pattern taken alone matches nothing. This
// is how trigger.onCommit.paths and .ignores are read.
func (ps Patterns) Match(file string) bool {
	for _, p := range ps {
		if !p.exclude && p.match(file) {
			return true
		}
	}
	return false
}

// MatchCombined reports whether the patterns taken together match the path:
// one includes it and none excludes it, whatever their order.
func (ps Patterns) MatchCombined(file string) bool {
	for _, p := range ps {
		if p.exclude && p.match(file) {
			return false
		}
	}
	return ps.Match(file)
}

// MarshalText returns the pattern as written.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(p.text), nil }
