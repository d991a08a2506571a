package manifest

import (
	"strconv"
	"strings"
)

// Place is the position of a value in an object; the zero Place is the object itself.
type Place struct {
	Path   string // as in Change
	key    string // key of the containing map; of a list item, the list's key
	parent string // the key above key
}

// Field returns the place of a map's field.
func (p Place) Field(key string) Place {
	path := key
	switch {
	case !plainKey(key):
		path = p.Path + "[" + strconv.Quote(key) + "]"
	case p.Path != "":
		path = p.Path + "." + key
	}
	return Place{Path: path, key: key, parent: p.key}
}

// Item returns the place of a list item with that name.
func (p Place) Item(name string) Place {
	return Place{Path: p.Path + "[" + name + "]", key: p.key, parent: p.parent}
}

// Diff returns the differences between two values at the place, like the function Diff.
// Values of Secrets are not masked.
func (p Place) Diff(before, after any) []Change {
	var d differ
	d.values(p, before, after)
	return d.changes
}

func plainKey(key string) bool {
	return key != "" && strings.IndexFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}) < 0
}

// Confidential reports whether the value at a path of an object must not be displayed: the
// data of a Secret, and its annotations, which may contain copies of the data.
func Confidential(apiVersion, kind, path string) bool {
	return apiVersion == "v1" && kind == "Secret" && !showable(path)
}
