package strict

import "strings"

// Enum is implemented by string types that hold one of a few values. A field of
// such a type takes no other.
type Enum interface{ Values() []string }

// Alternatives joins values for a sentence: "a, b or c".
func Alternatives(values []string) string {
	last := len(values) - 1
	if last < 1 {
		return strings.Join(values, "")
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}
