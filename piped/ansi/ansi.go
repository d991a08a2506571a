// Package ansi finds and removes the escape sequences of terminals (ECMA-48) in the output of
// programs.
package ansi

import (
	"regexp"
	"strings"
)

// Sequence matches an escape sequence. It ends at the end of its line at the latest.
var Sequence = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b\n]*(\x07|\x1b\\\\)?|[@-_])")

// Strip removes the escape sequences from a text.
func Strip(text string) string {
	if !strings.Contains(text, "\x1b") {
		return text
	}
	return Sequence.ReplaceAllString(text, "")
}
