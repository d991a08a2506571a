package strict

import (
	"fmt"
	"strings"
)

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

// choice describes values: all of them, or some when they are many.
func choice(values []string) string {
	if len(values) > maxListed {
		return fmt.Sprintf("one of %d values such as %s", len(values), values[0])
	}
	return Alternatives(values)
}

// suggest returns the end of a sentence about a wrong value that is close to one
// of many: of few, all are listed already.
func suggest(wrong string, values []string) string {
	if near := nearest(wrong, values); near != "" && len(values) > maxListed {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
