package manifest

import (
	"strconv"
	"strings"
)

// Place is where a value stands in an object; the zero Place is the object itself.
type Place struct {
	Path   string // as in Change
	key    string // the key of the map it stands in; of a list's item, the list's
	parent string // the key above key
}

// Field is the place of a map's field.
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

// Item is the place of a list's item, by what names it there.
func (p Place) Item(name string) Place {
	return Place{Path: p.Path + "[" + name + "]", key: p.key, parent: p.parent}
}

// Diff returns what differs between two values of the place, as the function Diff
// does for objects. What a Secret may hold is not left out.
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

// Confidential reports whether what stands at a path of an object of the kind and
// version may not be shown: what a Secret holds, and its annotations, where copies of
// that are found.
func Confidential(apiVersion, kind, path string) bool {
	return apiVersion == "v1" && kind == "Secret" && !harmless(path)
}
