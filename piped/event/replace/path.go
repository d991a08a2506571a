package replace

import (
	"fmt"
	"strconv"
	"strings"
)

// step is one step of a path: to a named member, to an item by index, or to all members or
// items.
type step struct {
	name  string
	index int  // of a step without name; every means all
	deep  bool // the name matches at any depth
}

// every is the index of a step to all members or items.
const every = -1

// isName reports whether the step leads to a named member.
func (s step) isName() bool { return s.index == named }

// named is the index of a step to a named member.
const named = -2

// parsePath parses a path such as $.spec.containers[0].image. Names with dots or brackets
// are quoted, as .'app.kubernetes.io/version' or ['app.kubernetes.io/version']; [*] is
// every item, .. any depth.
func parsePath(path string) ([]step, error) {
	rest, ok := strings.CutPrefix(path, "$")
	if !ok {
		return nil, fmt.Errorf("path %s does not begin with $", path)
	}
	var steps []step
	for rest != "" {
		s, after, err := nextStep(rest)
		if err != nil {
			return nil, fmt.Errorf("path %s: %w", path, err)
		}
		steps, rest = append(steps, s), after
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("path %s names no field; expected one such as $.spec.replicas", path)
	}
	return steps, nil
}

// nextStep parses the first step of rest; after is the remaining path.
func nextStep(rest string) (s step, after string, err error) {
	if inner, ok := strings.CutPrefix(rest, "["); ok {
		return bracketStep(inner)
	}
	rest, ok := strings.CutPrefix(rest, ".")
	if !ok {
		return s, "", fmt.Errorf("expected . or [ at %q", rest)
	}
	s = step{index: named}
	if deeper, ok := strings.CutPrefix(rest, "."); ok {
		s.deep, rest = true, deeper
	}
	if strings.HasPrefix(rest, "'") || strings.HasPrefix(rest, `"`) {
		s.name, after, err = quoted(rest)
		return s, after, err
	}
	end := strings.IndexAny(rest, ".[")
	if end < 0 {
		end = len(rest)
	}
	s.name, after = rest[:end], rest[end:]
	switch s.name {
	case "":
		return s, "", fmt.Errorf("a name is missing before %q", after)
	case "*":
		return step{index: every}, after, nil
	}
	return s, after, nil
}

// bracketStep parses the text after a bracket.
func bracketStep(rest string) (s step, after string, err error) {
	if strings.HasPrefix(rest, "'") || strings.HasPrefix(rest, `"`) {
		s.index = named
		if s.name, rest, err = quoted(rest); err != nil {
			return s, "", err
		}
	} else {
		end := max(0, strings.IndexByte(rest, ']'))
		if s.index, err = strconv.Atoi(rest[:end]); rest[:end] == "*" {
			s.index = every
		} else if err != nil || s.index < 0 {
			return s, "", fmt.Errorf("expected an index, * or a name in quotes at %q", "["+rest)
		}
		rest = rest[end:]
	}
	after, ok := strings.CutPrefix(rest, "]")
	if !ok {
		return s, "", fmt.Errorf("expected ] at %q", rest)
	}
	return s, after, nil
}

// quoted parses a key of a path such as ["a.b"]: rest begins with its quote, single or double,
// and after is what follows the closing one. There are no escapes.
func quoted(rest string) (name, after string, err error) {
	name, after, ok := strings.Cut(rest[1:], rest[:1])
	if !ok {
		return "", "", fmt.Errorf("the quote at %q does not end", rest)
	}
	return name, after, nil
}
