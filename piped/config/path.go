package config

import (
	"fmt"
	"slices"
	"strings"
)

// Step is one step on the way that a path of an IgnoreRule leads through an object:
// into a field or an item of a list.
type Step struct {
	// Key is the key of a map, or the index of a list's item; "" with Item.
	Key string
	// Item are the fields of a list's item and what they say as text; the field "" is
	// the item itself.
	Item [][2]string
}

// ParsePath reads a path of an IgnoreRule, which has the form that IgnoreRule.Paths
// says. There is at least one step without an error; the error quotes the path.
func ParsePath(path string) ([]Step, error) {
	segments, ok := strings.CutPrefix(path, "/")
	if !ok {
		return nil, fmt.Errorf("expected a JSON pointer such as /spec/replicas, found %q", path)
	}
	if !escapesAreKnown(path) {
		return nil, fmt.Errorf("expected ~ to be followed by 0 or 1, since ~0 stands for ~ and ~1 for /, found %q", path)
	}
	var steps []Step
	for segment := range strings.SplitSeq(segments, "/") {
		if segment == "" {
			return nil, fmt.Errorf("expected a key, an index or an item after each /, found %q", path)
		}
		key, item, isItem := strings.Cut(segment, "[")
		if key != "" {
			steps = append(steps, Step{Key: unescape(key)})
		}
		fields, ok := parseItem(item)
		if strings.Contains(key, "]") || isItem && !ok {
			return nil, fmt.Errorf("expected an item of a list as list[key=value], list[key=value,key=value] or list[=value], "+
				"with ~1 for any / of a value, found %q in %q", segment, path)
		}
		if isItem {
			steps = append(steps, Step{Item: fields})
		}
	}
	return steps, nil
}

// parseItem reads what follows the [ of an item.
func parseItem(text string) (fields [][2]string, ok bool) {
	text, closed := strings.CutSuffix(text, "]")
	if !closed || strings.ContainsAny(text, "[]") {
		return nil, false
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		name, value = unescape(name), unescape(value)
		twice := slices.ContainsFunc(fields, func(f [2]string) bool { return f[0] == name || f[0] == "" || name == "" })
		if !ok || value == "" || twice {
			return nil, false
		}
		fields = append(fields, [2]string{name, value})
	}
	return fields, true
}

func unescape(text string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(text) }

func escapesAreKnown(path string) bool {
	_, rest, found := strings.Cut(path, "~")
	for found {
		if !strings.HasPrefix(rest, "0") && !strings.HasPrefix(rest, "1") {
			return false
		}
		_, rest, found = strings.Cut(rest, "~")
	}
	return true
}
